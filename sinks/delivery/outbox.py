"""The queue of undelivered events of one sink: in order, kept while the sink does not answer, with backoff."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ports import EventSink, Log

_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 1_000, 30_000
_FORGET_PAUSE_MS = 600_000
_AT_A_TIME = 500


class Outbox:
    """Delivers to one sink and never raises. While a sink does not answer, retries come after growing pauses.

    Attributes:
        failures: deliveries that failed.
    """

    def __init__(self, sink: EventSink, log: Log) -> None:
        self._sink = sink
        self._log = log
        self._waiting: deque[IncidentEvent] = deque()
        self._pause_ms = 0
        self._due_ms = 0
        self._forget_ms = 0
        self.failures = 0

    @property
    def name(self) -> str:
        """The sink's name."""
        return self._sink.name

    @property
    def waiting(self) -> int:
        """The number of undelivered events."""
        return len(self._waiting)

    @property
    def waiting_incidents(self) -> set[str]:
        """The ids of incidents with undelivered events."""
        return {event.incident_id for event in self._waiting}

    def put(self, events: Sequence[IncidentEvent]) -> None:
        """Adds events at the end of the queue."""
        self._waiting.extend(events)

    def withdraw(self, event: IncidentEvent) -> None:
        """Drops queued events of the same incident that are not newer than this event."""
        self._waiting = deque(
            waiting
            for waiting in self._waiting
            if waiting.incident_id != event.incident_id or waiting.sequence > event.sequence
        )

    def has_lost_everything(self) -> bool:
        """See EventSink."""
        return self._sink.has_lost_everything()

    def forget(self, is_past: Callable[[str], bool], now_ms: int) -> None:
        """See EventSink; called only every 10 minutes, because a sink that does not answer costs time."""
        if now_ms >= self._forget_ms:
            self._forget_ms = now_ms + _FORGET_PAUSE_MS
            self._sink.forget(is_past)

    def deliver(self, now_ms: int) -> list[IncidentEvent]:
        """Delivers queued events until one delivery fails; returns those that the sink took."""
        taken: list[IncidentEvent] = []
        if not self._waiting or now_ms < self._due_ms:
            return taken
        try:
            while self._waiting:
                part = [self._waiting[position] for position in range(min(_AT_A_TIME, len(self._waiting)))]
                self._sink.deliver(part)
                taken.extend(self._waiting.popleft() for _ in part)
        except SinkError as exc:
            self.failures += 1
            if not self._pause_ms:
                self._log.warning(f"{exc}; {self.waiting} events are kept and delivered later")
            self._pause_ms = min(max(2 * self._pause_ms, _FIRST_PAUSE_MS), _LONGEST_PAUSE_MS)
            self._due_ms = now_ms + self._pause_ms
        else:
            if self._pause_ms:
                self._log.info(f"{self.name} works again: all kept events are delivered")
            self._pause_ms = 0
        return taken

    def close(self, now_ms: int) -> None:
        """Tries to deliver once more, then closes the sink."""
        self._due_ms = 0
        self.deliver(now_ms)
        self._sink.close()
