"""An events topic in memory that several ledgers write and follow, and what a consumer of it makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.incident import IncidentEvent, Overwritten


class SharedLog:
    """Every record in the order of its arrival, doubles too.

    Attributes:
        is_away: while it is, nothing is taken and nothing is read.
        buried: where the last tombstone of an incident is that ended long ago: before the record of this number.
        invalid: the records that are no events, tombstones too, and where they are: before the record of this number.
    """

    def __init__(self) -> None:
        self.records: list[IncidentEvent] = []
        self.is_away = False
        self.buried: dict[str, int] = {}
        self.invalid: list[tuple[int, Overwritten]] = []

    @property
    def published(self) -> list[IncidentEvent]:
        """What a consumer sees that keeps `ce_id`: each event once."""
        return _first_of_each(self.records)

    @property
    def compacted(self) -> dict[str, IncidentEvent]:
        """The last event of each incident."""
        return {event.incident_id: event for event in self.records}

    @property
    def left(self) -> dict[str, IncidentEvent]:
        """What compaction leaves: the last record of each incident, if it is an event."""
        hidden = {one.incident_id: number for number, one in self.invalid}
        numbered = ((number, event) for number, event in enumerate(self.records))
        return {event.incident_id: event for number, event in numbered if number >= hidden.get(event.incident_id, 0)}

    @property
    def shown(self) -> dict[str, IncidentEvent]:
        """What a consumer shows that keeps the first of two events with one sequence until its incident is deleted.

        A record that is no event says nothing to it: only a `resolved` event ends an incident (docs/consumers.md).
        """
        since = self.buried
        kept = (event for number, event in enumerate(self.records) if number >= since.get(event.incident_id, 0))
        return {event.incident_id: event for event in sorted(_first_of_each(kept), key=lambda one: one.sequence)}

    def bury(self, incident_ids: Sequence[str]) -> None:
        """Writes tombstones."""
        self.invalid.extend((len(self.records), Overwritten(one)) for one in incident_ids)
        self.buried.update(dict.fromkeys(incident_ids, len(self.records)))

    def overwrite(self, incident_id: str) -> None:
        """Writes a record that is no event, or a tombstone of an incident that has not ended long ago."""
        self.invalid.append((len(self.records), Overwritten(incident_id)))

    def sink(self) -> SharedLogSink:
        """One instance's way of writing."""
        return SharedLogSink(self)

    def reader(self) -> Callable[[], Iterable[IncidentEvent | Overwritten]]:
        """One instance's way of following, from the end as it is now."""
        position, others = len(self.records), len(self.invalid)

        def new_records() -> Iterable[IncidentEvent | Overwritten]:
            nonlocal position, others
            if self.is_away:
                return []
            events = [(number, 1, one) for number, one in enumerate(self.records[position:], position)]
            invalid = [(number, 0, one) for number, one in self.invalid[others:]]
            position, others = len(self.records), len(self.invalid)
            return [one for _, _, one in sorted([*events, *invalid], key=lambda at: at[:2])]

        return new_records


def _first_of_each(records: Iterable[IncidentEvent]) -> list[IncidentEvent]:
    """The first record of each event id."""
    first: dict[str, IncidentEvent] = {}
    for event in records:
        first.setdefault(event.event_id, event)
    return list(first.values())


class SharedLogSink:
    """An EventsTopicWriter that writes to it."""

    name = "shared log"

    def __init__(self, log: SharedLog) -> None:
        self._log = log

    def publish(self, events: Sequence[IncidentEvent]) -> None:
        """See EventsTopicWriter."""
        if self._log.is_away:
            raise SinkError("shared log: away")
        self._log.records.extend(events)
