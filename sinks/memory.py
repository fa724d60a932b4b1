"""What was told: the latest event of every incident, and what other instances add to it.

Law: the events topic decides. Of two events of one sequence the first on the topic counts, because a consumer that
keeps `ce_id` drops the second; who told the second takes the first over, and says an end that was dropped so once more,
behind it. An event that came to stand behind a later one of its incident, or behind its end, is followed by that one
again, because compaction keeps what stands last. An abort by hand has an incident of its own; it takes no span.
Of what ended long ago only that it was told is kept, and how far: its id is never used again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from txnwatch.state.ids import TopicPartition
from txnwatch.state.incident import IncidentEvent, id_once_more, resolved

IN_HAND_MS = 60_000
KEPT_MS = 24 * 3_600_000  # longer than an abort counts in its budget, and than any instance may be behind
SpanKey = tuple[str, TopicPartition, int]


@dataclass(slots=True)
class Memory:
    """The incidents of one cluster.

    Attributes:
        known: the latest event of each incident that is open, or ended less than a day ago.
    """

    cluster_id: str
    known: dict[str, IncidentEvent] = field(default_factory=dict)
    _spans: dict[SpanKey, str] = field(default_factory=dict)
    _on_topic: dict[str, int] = field(default_factory=dict)
    _unheard: dict[str, IncidentEvent] = field(default_factory=dict)
    _past: dict[str, int] = field(default_factory=dict)

    def remember(self, events: Iterable[IncidentEvent], now_ms: int) -> None:
        """Takes in what was published before: the highest sequence of each incident counts, and of two the first."""
        for event in events:
            incident_id = event.incident_id
            if event.cluster_id != self.cluster_id:
                continue
            if event.sequence > self._last_on_topic(incident_id):
                self._on_topic[incident_id] = event.sequence
            if event.sequence > self.sequence(incident_id):
                self.known.pop(incident_id, None)
                self._past.pop(incident_id, None)
                self.known[incident_id] = event
                if _is_long_over(event, now_ms):
                    self._let_go(event)
        for event in list(self.known.values()):
            self.enter(event)

    def forget(self, now_ms: int) -> None:
        """Lets go of what ended long ago, unless its end is still on its way to the topic."""
        on_their_way = {event.incident_id for event in self._unheard.values()}
        for event in list(self.known.values()):
            if _is_long_over(event, now_ms) and event.incident_id not in on_their_way:
                self._let_go(event)

    def _let_go(self, event: IncidentEvent) -> None:
        del self.known[event.incident_id]
        self._past[event.incident_id] = max(event.sequence, self._on_topic.pop(event.incident_id, 0))

    def is_past(self, incident_id: str) -> bool:
        """Whether the incident ended long ago."""
        return incident_id in self._past

    def is_used(self, incident_id: str) -> bool:
        """Whether there is, or ever was, such an incident."""
        return incident_id in self.known or incident_id in self._past

    def sequence(self, incident_id: str) -> int:
        """The sequence of the latest event, 0 for none."""
        known = self.known.get(incident_id)
        return known.sequence if known is not None else self._past.get(incident_id, 0)

    def _last_on_topic(self, incident_id: str) -> int:
        return self._on_topic.get(incident_id, self._past.get(incident_id, 0))

    @property
    def open_incidents(self) -> list[IncidentEvent]:
        """The latest event of every open incident, oldest first."""
        return sorted((event for event in self.known.values() if event.is_open), key=lambda event: event.open_since_ms)

    def left_to_us(self, now_ms: int) -> list[IncidentEvent]:
        """Open incidents, without those whose end the hand that told them may be about to tell."""
        return [one for one in self.open_incidents if not one.is_by_hand or now_ms - one.time_ms >= IN_HAND_MS]

    def enter(self, event: IncidentEvent) -> IncidentEvent:
        """This is the latest event of its incident now."""
        self._past.pop(event.incident_id, None)
        self.known[event.incident_id] = event
        if event.is_by_hand:
            return event  # the span belongs to the watch's own incident, which goes on
        if event.topic is not None and event.partition is not None and event.topic_id is not None:
            key = (event.topic_id, TopicPartition(event.topic, event.partition), event.producer_id)
            if event.is_open:
                self._spans[key] = event.incident_id
            elif self._spans.get(key) == event.incident_id:
                del self._spans[key]
        return event

    def is_next(self, event: IncidentEvent) -> bool:
        """Whether it comes after all that is known of its incident, which has not ended."""
        known = self.known.get(event.incident_id)
        return known is not None and known.is_open and known.sequence < event.sequence

    def open_span(self, topic_id: str, partition: TopicPartition, producer_id: int) -> IncidentEvent | None:
        """The open incident about a span."""
        incident_id = self._spans.get((topic_id, partition, producer_id))
        return self.known[incident_id] if incident_id is not None else None

    def unused(self, incident_id: str) -> str:
        """The id for a span that was just confirmed; another one if it hung before and was resolved.

        An election can take the very marker away that ended it, and then it hangs again, at the same offset.
        """
        found, times = incident_id, 0
        while self.is_used(found):
            times += 1
            found = id_once_more(incident_id, times)
        return found

    def telling(self, events: Iterable[IncidentEvent]) -> None:
        """These are on their way to the topic and will be heard from there."""
        self._unheard.update({event.event_id: event for event in events})

    def _end_hidden_by(self, event: IncidentEvent) -> IncidentEvent | None:
        """The end of an incident, where another event of the same sequence has come to stand behind it."""
        known = self.known.get(event.incident_id)
        is_hidden = known is not None and known.sequence == event.sequence and not known.is_open and event.is_open
        return known if is_hidden else None

    def hear(self, event: IncidentEvent, now_ms: int) -> tuple[bool, IncidentEvent | None]:
        """An event as it stands on the topic next, ours or another instance's.

        Returns whether it is news to us, and what has to be told because of it.
        """
        if event.cluster_id != self.cluster_id:
            return False, None
        ours = self._unheard.pop(event.event_id, None)
        last = self._last_on_topic(event.incident_id)
        if event.sequence < last:
            return False, self.known.get(event.incident_id)
        if event.sequence == last:
            return False, self._end_hidden_by(event)
        self._on_topic[event.incident_id] = event.sequence
        known = self.known.get(event.incident_id)
        if event == ours or (known is not None and known.sequence > event.sequence):
            return False, None
        self.enter(event)
        self._unheard = {key: told for key, told in self._unheard.items() if told.incident_id != event.incident_id}
        if ours is None or ours.is_open or ours.resolution is None or not event.is_open:
            return True, None
        return True, self.enter(resolved(event, now_ms, ours.resolution))


def _is_long_over(event: IncidentEvent, now_ms: int) -> bool:
    return not event.is_open and now_ms - event.time_ms >= KEPT_MS
