"""Sorts the records of the events topic: events go to the ledger, heartbeats are kept, bad records are counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from txnwatch.sinks.delivery.event_log import Found
from txnwatch.sinks.delivery.skipped_records import SkippedRecords
from txnwatch.state.events.heartbeat import Heartbeat
from txnwatch.state.model.errors import BadEventError, SinkError
from txnwatch.state.model.incident import IncidentEvent, Overwritten
from txnwatch.state.model.quantities import AT_ONCE, DurationMs, TimestampMs

_MOST = 1_000  # instances to keep; anybody who may write to the topic can invent any number
_PAUSE_MS = DurationMs(600_000)


@dataclass(slots=True)
class EventListener:
    """The reader of one watch.

    Attributes:
        passed_over: the counter of records that are not events.
        heartbeats: the last heartbeat of each instance, by the record's key.
    """

    passed_over: SkippedRecords
    heartbeats: dict[str, Heartbeat] = field(default_factory=dict)
    _due_ms: TimestampMs = AT_ONCE

    def events_of(self, found: Iterable[Found]) -> Iterator[IncidentEvent | Overwritten]:
        """Yields what the ledger needs: events, and incidents whose record a bad record has overwritten."""
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
        self.passed_over.report_when_due()

    def remove_expired_heartbeats(
        self, retention_ms: DurationMs, now_ms: TimestampMs, bury: Callable[[list[str]], None]
    ) -> None:
        """Writes tombstones for heartbeats that are older than the retention; checks every 10 minutes."""
        if now_ms < self._due_ms:
            return
        self._due_ms = now_ms + _PAUSE_MS
        old = [key for key, last in self.heartbeats.items() if last.is_expired(retention_ms, now_ms)]
        if old:
            try:
                bury(old)
            except SinkError:
                return  # tried again at the next check
        for key in old:
            del self.heartbeats[key]
