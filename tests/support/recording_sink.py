"""The events topic and a mirror in memory, for tests without Kafka and Redis; both pass the contract suites."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.incident import IncidentEvent


class RecordingSink:
    """Keeps the events that it gets.

    Attributes:
        is_away: while it is, every delivery is a SinkError.
        breaks_after: the next delivery takes so many events and then fails; the caller knows of none.
        tries: every delivery as it was asked for, failed ones too.
        published: each event once, in the order of first arrival.
        latest: the event of the highest sequence of every incident.
    """

    def __init__(self, name: str = "recording") -> None:
        self.name = name
        self.is_away = False
        self.breaks_after: int | None = None
        self.tries: list[tuple[IncidentEvent, ...]] = []
        self.published: list[IncidentEvent] = []
        self.latest: dict[str, IncidentEvent] = {}

    @property
    def open_incidents(self) -> list[IncidentEvent]:
        """Those that go on, oldest first."""
        return sorted((event for event in self.latest.values() if event.is_open), key=lambda event: event.open_since_ms)

    def record(self, events: Sequence[IncidentEvent]) -> None:
        """Takes the events in order."""
        self.tries.append(tuple(events))
        if self.is_away:
            raise SinkError(f"{self.name}: away")
        for number, event in enumerate(events):
            if number == self.breaks_after:
                self.breaks_after = None
                raise SinkError(f"{self.name}: broke after {number} events")
            self._take(event)

    def _take(self, event: IncidentEvent) -> None:
        if event.event_id not in {known.event_id for known in self.published}:
            self.published.append(event)
        known = self.latest.get(event.incident_id)
        if known is None or known.sequence < event.sequence:
            self.latest[event.incident_id] = event


class RecordingTopic(RecordingSink):
    """An EventsTopicWriter."""

    def publish(self, events: Sequence[IncidentEvent]) -> None:
        """See EventsTopicWriter."""
        self.record(events)


class RecordingMirror(RecordingSink):
    """A Mirror with a view of the open incidents.

    Attributes:
        is_emptied: it has lost everything, which it reports once.
    """

    is_emptied = False

    def deliver(self, events: Sequence[IncidentEvent]) -> None:
        """See Mirror."""
        self.record(events)

    def has_lost_everything(self) -> bool:
        """See OpenIncidentsView."""
        was, self.is_emptied = self.is_emptied, False
        return was

    def forget(self, has_ended: Callable[[str], bool]) -> None:
        """See OpenIncidentsView."""
        if not self.is_away:
            for event in filter(lambda event: has_ended(event.incident_id), self.open_incidents):
                del self.latest[event.incident_id]
