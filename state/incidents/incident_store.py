"""The events of one cluster's incidents: the latest one of each, and what is on the events topic, on its way, and over.

Law: the order on the events topic decides. Of two events with one sequence the first counts, because a consumer that
keeps `ce_id` drops the second; compaction keeps the last record.

  * An abort by hand has its own incident, which does not take the span.
  * Of an incident that ended long ago only its id and last sequence are kept, so that the id is not used again. After
    the retention (ledger.py) these go too, if this process has itself known for an hour that the incident ended.

An id whose sequences another writer has used up is spent: its incident ends, and continues under another id.

Pure: no I/O, no clock. The ledger makes the changes of this process (`enter`), and `take` takes the records of the
topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, NamedTuple

from txnwatch.state.incidents.claims import EndedIncident, is_long_ago, is_long_over, is_usable
from txnwatch.state.incidents.life import Known
from txnwatch.state.model.incident import (
    SPENT_SEQUENCE,
    IncidentEvent,
    Overwritten,
    SpanKey,
    repeat_incident_id,
)
from txnwatch.state.model.values import LONG_AGO, DurationMs, ProducerId, TimestampMs, TopicPartition

USED_UP: Final = "a record of another writer has used up its sequence; its subject continues under another incident id"


class TakenRecord(NamedTuple):
    """A record of the events topic.

    Attributes:
        is_own: whether this process has written it.
        is_next: whether its sequence is above all of its incident before it.
    """

    is_own: bool
    is_next: bool


@dataclass(slots=True)
class IncidentStore:
    """The incidents of one cluster.

    Attributes:
        content_of: what to store of another writer's event: its sequence and status, and its content only if this
            process has none of its own.
        is_found: whether this process has found the subject of an incident.
        known: the latest event of each incident that is open, or ended less than a day ago.
        hidden: the incidents whose last record is no event.
        looked_ms: when the topic was read before, by the clock of this process: what comes now was written since.
        ended_since_ms: by incident, the look before the one that has shown its end, if another writer has ended it.
    """

    cluster_id: str
    content_of: Callable[[IncidentEvent, TimestampMs], IncidentEvent] = lambda event, _: event
    is_found: Callable[[IncidentEvent], bool] = lambda _: True
    known: dict[str, IncidentEvent] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    looked_ms: TimestampMs = LONG_AGO
    ended_since_ms: dict[str, TimestampMs] = field(default_factory=dict)
    _heard_ms: dict[str, TimestampMs] = field(default_factory=dict)  # when an end, or an abort by hand, was read
    _spans: dict[SpanKey, str] = field(default_factory=dict)
    _on_topic: dict[str, int] = field(default_factory=dict)
    _first: dict[str, int] = field(default_factory=dict)  # the sequence whose first record on the topic is ours
    _in_flight: dict[str, dict[int, IncidentEvent]] = field(default_factory=dict)  # by incident and sequence
    _ended: dict[str, EndedIncident] = field(default_factory=dict)
    _spent: list[IncidentEvent] = field(default_factory=list)

    def remember(self, records: Iterable[IncidentEvent | Overwritten], now_ms: TimestampMs) -> None:
        """Loads published events: the highest sequence of each incident counts; of two equal ones, the first."""
        for event in records:
            if isinstance(event, Overwritten):
                self.hide(event)
                continue
            incident_id = event.incident_id
            self.hidden.discard(incident_id)
            if not self._is_usable(event):
                self._pass_over(event, now_ms)
                continue
            if event.sequence > self._last_on_topic(incident_id):
                self._on_topic[incident_id] = self._first[incident_id] = event.sequence
            if event.sequence > self.sequence(incident_id):
                self.known.pop(incident_id, None)
                self._ended.pop(incident_id, None)
                self.known[incident_id] = self.content_of(event, now_ms)
                if event.is_by_hand:
                    self._heard_ms[incident_id] = now_ms
                if is_long_over(event, now_ms):
                    self._let_go(event, now_ms)
        for event in list(self.known.values()):
            self.enter(event)

    def known_as(self, incident: IncidentEvent | None) -> Known:
        """What this process knows of an incident; only its command has found an abort by hand."""
        if incident is None:
            return Known.NOTHING
        if not incident.is_open:
            return Known.ENDED
        return Known.FOUND if self.is_found(incident) and not incident.is_by_hand else Known.CLAIMED

    def expired(self, now_ms: TimestampMs, retention_ms: DurationMs, most: int) -> list[str]:
        """The ids of incidents that ended before the retention, at most `most`."""
        expired = (incident_id for incident_id, ended in self._ended.items() if ended.is_expired(now_ms, retention_ms))
        return list(islice(expired, most))

    def drop(self, incident_ids: Iterable[str]) -> None:
        """Forgets incidents completely: their ids may be used again."""
        for incident_id in incident_ids:
            self._ended.pop(incident_id, None)

    def forget(self, now_ms: TimestampMs) -> None:
        """Drops incidents that ended long ago, unless the end is still on its way to the topic."""
        for event in list(self.known.values()):
            heard_ms = self._heard_ms.get(event.incident_id, LONG_AGO)
            if is_long_over(event, now_ms) and is_long_ago(heard_ms, now_ms) and self._sent(event) is None:
                self._let_go(event, now_ms)

    def _let_go(self, event: IncidentEvent, now_ms: TimestampMs) -> None:
        incident_id = event.incident_id
        del self.known[incident_id]
        kept: tuple[dict[str, Any], ...] = (
            self._heard_ms,
            self.ended_since_ms,
            self._first,
            self._in_flight,
        )
        for by_incident in kept:
            by_incident.pop(incident_id, None)
        sequence = max(event.sequence, self._on_topic.pop(incident_id, 0))
        self._ended[incident_id] = EndedIncident(sequence, event.time_ms, now_ms)

    def hide(self, record: Overwritten) -> None:
        """Takes that the last record of an incident, or of every incident, is no event."""
        self.hidden.update(self.known if record.incident_id is None else [record.incident_id])

    def take_hidden(self) -> list[str]:
        """The incidents whose last record is no event; each is returned once."""
        hidden, self.hidden = sorted(self.hidden), set()
        return hidden

    def stands_behind(self, record: IncidentEvent) -> bool:
        """Whether an event of this process with a higher sequence is on its way to the topic, and follows a record."""
        return max(self._in_flight.get(record.incident_id, ()), default=0) > record.sequence

    def take_spent(self) -> list[IncidentEvent]:
        """The last events of incidents whose ids are spent, each once: an end to publish again, or one that is open."""
        spent, self._spent = self._spent, []
        return spent

    def _is_usable(self, event: IncidentEvent) -> bool:
        return is_usable(event, self.cluster_id, self._sent(event))

    def _pass_over(self, event: IncidentEvent, now_ms: TimestampMs) -> None:
        """Skips an event that is not valid in this cluster; an id that it has used up is never used again."""
        incident_id = event.incident_id
        if event.cluster_id != self.cluster_id:
            if self.is_used(incident_id):
                self.hidden.add(incident_id)
            return
        incident = self.known.pop(incident_id, None)
        self._on_topic.pop(incident_id, None)
        self._ended[incident_id] = EndedIncident(SPENT_SEQUENCE, now_ms, now_ms)
        is_end_unread = incident is not None and not incident.is_open and self._sent(incident) is not None
        for kept in (self._in_flight, self._first, self.ended_since_ms, self._heard_ms):
            kept.pop(incident_id, None)
        if incident is not None and incident.is_open:
            self._release(incident)
        elif event.is_open and not event.is_spent:  # no other instance would end this incident
            incident = replace(self.content_of(event, now_ms), action=None)
        if incident is not None and (incident.is_open or is_end_unread):  # the end may stand before this record
            above = max(incident.sequence, 0 if event.is_spent else event.sequence)
            self._spent.append(replace(incident, sequence=above + (not incident.is_open)))

    def has_ended(self, incident_id: str) -> bool:
        """Whether the incident ended long ago."""
        return incident_id in self._ended

    def is_spent(self, incident_id: str) -> bool:
        """Whether another writer has used up its sequences."""
        return self._ended_sequence(incident_id) == SPENT_SEQUENCE

    def is_used(self, incident_id: str) -> bool:
        """Whether an incident with this id exists, or existed."""
        return incident_id in self.known or incident_id in self._ended

    def sequence(self, incident_id: str) -> int:
        """The sequence of the latest event, 0 for none."""
        incident = self.known.get(incident_id)
        return incident.sequence if incident is not None else self._ended_sequence(incident_id)

    def _last_on_topic(self, incident_id: str) -> int:
        return self._on_topic.get(incident_id, self._ended_sequence(incident_id))

    def _ended_sequence(self, incident_id: str) -> int:
        ended = self._ended.get(incident_id)
        return ended.sequence if ended is not None else 0

    @property
    def open_incidents(self) -> list[IncidentEvent]:
        """The latest event of every open incident, oldest first."""
        return sorted((event for event in self.known.values() if event.is_open), key=lambda event: event.open_since_ms)

    def left_to_us(self, now_ms: TimestampMs) -> list[IncidentEvent]:
        """Open incidents, without aborts by hand whose command may still publish the end."""
        open_now = self.open_incidents
        return [
            incident
            for incident in open_now
            if is_left_to_watch(incident, self._heard_ms.get(incident.incident_id, LONG_AGO), now_ms)
        ]

    def enter(self, event: IncidentEvent) -> IncidentEvent:
        """Stores an event as the latest of its incident."""
        self._ended.pop(event.incident_id, None)
        self.known[event.incident_id] = event
        if event.is_by_hand:
            return event  # the span stays with the watcher's own incident
        if not event.is_open:
            self._release(event)
        elif event.span is not None and not self._has_another(event.span, event.incident_id):
            self._spans[event.span] = event.incident_id
        return event

    def _release(self, event: IncidentEvent) -> None:
        if event.span is not None and self._spans.get(event.span) == event.incident_id:
            del self._spans[event.span]

    def _has_another(self, span: SpanKey, incident_id: str) -> bool:
        """Whether another open incident is about the span already."""
        other = self._spans.get(span, incident_id)
        return other != incident_id and other in self.known and self.known[other].is_open

    def is_double(self, event: IncidentEvent) -> bool:
        """Whether another open incident is about the same span."""
        return event.span is not None and not event.is_by_hand and self._has_another(event.span, event.incident_id)

    def is_next(self, event: IncidentEvent) -> bool:
        """Whether it comes after all known events of its incident, which is still open."""
        incident = self.known.get(event.incident_id)
        return incident is not None and incident.is_open and incident.sequence < event.sequence

    def is_behind(self, event: IncidentEvent) -> bool:
        """Whether the topic has a later event of the incident."""
        return event.sequence < self._on_topic.get(event.incident_id, 0)

    def top(self, incident_id: str) -> int:
        """The highest sequence of the incident that is on the topic, or on its way there; 0 for none."""
        return max(self._last_on_topic(incident_id), *self._in_flight.get(incident_id, ()), 0)

    def is_last_ours(self, incident: IncidentEvent) -> bool:
        """Whether no other writer has a record with the sequence of our last event, or above it, before it."""
        incident_id = incident.incident_id
        return self._first.get(incident_id) == incident.sequence == self._on_topic.get(incident_id)

    def open_span(self, topic_id: str, partition: TopicPartition, producer_id: ProducerId) -> IncidentEvent | None:
        """The open incident about a span."""
        incident_id = self._spans.get((topic_id, partition, producer_id))
        return self.known.get(incident_id) if incident_id is not None else None

    def used_ids(self, incident_id: str) -> Iterator[str]:
        """The id under which an incident was first opened, and those under which it was opened again."""
        used_id, times = incident_id, 0
        while self.is_used(used_id):
            yield used_id
            times += 1
            used_id = repeat_incident_id(incident_id, times)

    def open_one(self, incident_id: str) -> IncidentEvent | None:
        """The open incident of this id, or of an id under which it was opened again."""
        events = (self.known.get(used_id) for used_id in self.used_ids(incident_id))
        return next((event for event in events if event is not None and event.is_open), None)

    def unused(self, incident_id: str) -> str:
        """The id for a newly confirmed incident; another one if an incident with this id was resolved.

        A leader election can remove the marker that ended a transaction, which then hangs again, at the same offset.
        And anyone who may write the topic can write a false end.
        """
        times = sum(1 for _ in self.used_ids(incident_id))
        return repeat_incident_id(incident_id, times) if times else incident_id

    def is_earlier(self, record: IncidentEvent, own: IncidentEvent) -> bool:
        """Whether the id of a record comes before that of an open incident, in the order in which ids are used."""
        if record.first_id is None or record.incident_id == own.incident_id:
            return False
        in_order = (*self.used_ids(record.first_id), self.unused(record.first_id))
        own_id = own.incident_id if own.is_open else None
        first = next((some_id for some_id in in_order if some_id in {record.incident_id, own_id}), None)
        return first == record.incident_id

    def sent(self, events: Iterable[IncidentEvent]) -> None:
        """Registers events that are on their way to the topic and will be read back from it."""
        for event in events:
            self._in_flight.setdefault(event.incident_id, {})[event.sequence] = event

    def _sent(self, event: IncidentEvent) -> IncidentEvent | None:
        """What this process has sent with the incident and the sequence of an event, and not yet read back."""
        return self._in_flight.get(event.incident_id, {}).get(event.sequence)

    def unsent(self, event: IncidentEvent) -> None:
        """Takes that an event that was sent will not come to the topic."""
        if self._sent(event) is not None:
            self._forget_sent(event)

    @property
    def on_their_way(self) -> list[str]:
        """The incidents with events that were sent and not read back."""
        return list(self._in_flight)

    def take(self, record: IncidentEvent, now_ms: TimestampMs) -> TakenRecord | None:
        """Takes the next record of the topic; None for one that is not used."""
        if not self._is_usable(record):
            self._pass_over(record, now_ms)
            return None
        incident_id = record.incident_id
        self.hidden.discard(incident_id)
        before, sent = self._last_on_topic(incident_id), self._sent(record)
        if record.sequence >= before:
            self._on_topic[incident_id] = record.sequence
        is_own, is_next = sent is not None and record == sent, record.sequence > before
        if is_own:
            self._forget_sent(record)
            if is_next:
                self._first[incident_id] = record.sequence
        return TakenRecord(is_own, is_next)

    def _forget_sent(self, event: IncidentEvent) -> None:
        sent = self._in_flight[event.incident_id]
        del sent[event.sequence]
        if not sent:
            del self._in_flight[event.incident_id]

    def adopt(self, taken: IncidentEvent, now_ms: TimestampMs) -> None:
        """Stores what the topic says about an incident, as this process sees it."""
        incident = self.known.get(taken.incident_id)
        if incident is not None:
            self._release(incident)
        self.enter(taken)
        self._first.pop(taken.incident_id, None)
        if taken.is_by_hand or not taken.is_open:
            self._heard_ms[taken.incident_id] = now_ms  # its own time is of another clock, or forged
        if not taken.is_open:
            self.ended_since_ms[taken.incident_id] = self.looked_ms


IN_HAND_MS: Final = DurationMs(60_000)


def is_left_to_watch(event: IncidentEvent, heard_ms: TimestampMs, now_ms: TimestampMs) -> bool:
    """Whether a watch may end the incident: not an abort by hand whose command may still publish the end.

    `heard_ms` is when this process read the event, because the time in it is the clock of the command's machine.
    """
    return not event.is_by_hand or now_ms - heard_ms >= IN_HAND_MS
