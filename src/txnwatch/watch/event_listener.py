"""What a watch hears on the events topic: events for its ledger; the rest is counted, or is of other watchers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from txnwatch.sinks.delivery.event_log import Found
from txnwatch.sinks.delivery.heartbeat import Heartbeat
from txnwatch.sinks.delivery.skipped_records import PassedOverRecords
from txnwatch.state.model.errors import BadEventError, SinkError
from txnwatch.state.model.incident import IncidentEvent, Overwritten

_MOST = 1_000  # instances that are remembered: whoever may write the topic can make up any number
_PAUSE_MS = 600_000


@dataclass(slots=True)
class Listening:
    """Sorts what was found.

    Attributes:
        passed_over: records that are no events.
        heartbeats: the last of each instance, by the record's key.
    """

    passed_over: PassedOverRecords
    heartbeats: dict[str, Heartbeat] = field(default_factory=dict)
    _due_ms: int = 0

    def heard(self, found: Iterable[Found]) -> Iterator[IncidentEvent | Overwritten]:
        """What the ledger takes in."""
        for one in found:
            if isinstance(one, BadEventError):
                self.passed_over.take(one)
                if one.key is not None:
                    yield Overwritten(one.key)
            elif isinstance(one, Heartbeat):
                self.heartbeats.pop(one.key, None)
                self.heartbeats[one.key] = one
                if len(self.heartbeats) > _MOST:
                    del self.heartbeats[next(iter(self.heartbeats))]
            else:
                yield one
        self.passed_over.say()

    def bury_old(self, retention_ms: int, now_ms: int, bury: Callable[[list[str]], None]) -> None:
        """Takes the heartbeats of instances that are long gone away from the topic; looks now and then."""
        if now_ms < self._due_ms:
            return
        self._due_ms = now_ms + _PAUSE_MS
        old = [key for key, last in self.heartbeats.items() if now_ms - last.time_ms >= retention_ms]
        if old:
            try:
                bury(old)
            except SinkError:
                return  # it is tried again
        for key in old:
            del self.heartbeats[key]
