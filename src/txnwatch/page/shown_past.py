"""The history of the events topic as the page keeps it, with what was made of it. No I/O, no clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from txnwatch.state.incidents.past_incidents import IncidentHistory
from txnwatch.state.incidents.past_summary import PastSummary, PastWindow, summary_of
from txnwatch.state.model.values import DAY_MS, DurationMs, TimestampMs

STEP_MS: Final = DurationMs(900_000)
_PAUSE_MS: Final = 2_000
_KEPT: Final = 8
_INCIDENTS_A_MS: Final = 5  # the pause grows with the work
T = TypeVar("T")


@dataclass(slots=True)
class ShownPast:
    """The history of one events topic, and what was made of it last: a storm does not count everything twice a second.

    Attributes:
        topic: its name.
        is_signed: whether records without a valid signature are left out.
    """

    topic: str
    history: IncidentHistory
    is_signed: bool = False
    _made: dict[Hashable, _Made] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def made(self, key: Hashable, make: Callable[[], T], now_ms: TimestampMs) -> T:
        """What `make` makes, or has made of the same history; several threads wait for one of them."""
        with self._lock:
            made: _Made | None = self._made.get(key)
            if made is None or made.is_due(self.history, now_ms):
                version = self.history.version
                made = _Made(make(), version, now_ms)
                self._made = {**dict(list(self._made.items())[-_KEPT:]), key: made}
            return made.value  # type: ignore[no-any-return]

    def summary(self, cluster_id: str, days: int, now_ms: TimestampMs) -> PastSummary:
        """The incidents of the last days."""
        window = PastWindow(TimestampMs(now_ms - days * DAY_MS), now_ms)
        return self.made(("summary", days), lambda: summary_of(self.history, window, cluster_id), now_ms)


class _Made(NamedTuple):
    """A value, and of what it was made."""

    value: Any
    version: int
    at_ms: TimestampMs

    def is_due(self, history: IncidentHistory, now_ms: TimestampMs) -> bool:
        """Whether it is out of date, and so old that it may be made again: the pause grows with the work."""
        is_other = (self.version, self.at_ms // STEP_MS) != (history.version, now_ms // STEP_MS)
        pause_ms = _PAUSE_MS + len(history) // _INCIDENTS_A_MS
        return is_other and not 0 <= now_ms - self.at_ms < pause_ms
