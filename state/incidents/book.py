"""What is known about the incidents of one cluster: the events on the topic, and what this process has found itself.

`IncidentStore` has the latest event of every incident, from this instance and from others. `Book` adds what this
process has found.

Law: a claim never replaces a finding. Anyone who may write the events topic can write an `opened` about a healthy
transaction, a `resolved` about a hanging one, any outcome and any command. So of an event of another writer about an
incident that this process has found, only the sequence, the status, the time, the action and the resolution are used.

Law: the order on the events topic decides (claims.py).
  * The writer of the second of two events with one sequence takes over the first.
  * An abort by hand has its own incident, which does not take the span.
  * Of an incident that ended long ago only its id and last sequence are kept, so that the id is not used again. After
    the retention (ledger.py) these go too, if this process has itself known for an hour that the incident ended.
  * A tombstone, or any invalid record, ends nothing: an open incident is published again after it.

An id whose sequences another writer has used up is spent: its incident ends, and continues under another id.

No I/O, no clock. The ledger makes the changes of this process (`enter`), and `receive` takes the records of other
writers. The parts of the ledger add what they find to `findings`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, NamedTuple

from txnwatch.state.evidence.ending import no_longer_open
from txnwatch.state.evidence.outcome import Outcome, unknown, with_outcome
from txnwatch.state.evidence.proven_hang import ProvenHang
from txnwatch.state.incidents.claims import (
    Arrival,
    EndedIncident,
    arrival,
    claimed,
    differs,
    hides,
    is_before_end,
    is_long_ago,
    is_long_over,
    is_usable,
    keeps_content,
    with_claim,
)
from txnwatch.state.incidents.ends import Ends
from txnwatch.state.incidents.event_builder import LookTimes, named
from txnwatch.state.incidents.life import Happening, Known, NextStep, step
from txnwatch.state.incidents.own_findings import OwnFindings, key_of
from txnwatch.state.incidents.speakers import Silence
from txnwatch.state.model.findings import SpanCandidate, TransactionCandidate, TransactionMoved
from txnwatch.state.model.incident import (
    SPENT_SEQUENCE,
    Action,
    IncidentEvent,
    OutcomeDoubt,
    Overwritten,
    Resolution,
    SpanKey,
    repeat_incident_id,
    resolved,
    transaction_incident_id,
)
from txnwatch.state.model.transaction import TransactionView
from txnwatch.state.model.values import LONG_AGO, DurationMs, Offset, ProducerId, TimestampMs, TopicPartition
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.telling.commands import Origin, as_read

_USED_UP = "a record of another writer has used up its sequence; its subject continues under another incident id"


class Received(NamedTuple):
    """What a record of the events topic is.

    Attributes:
        is_new: whether it is the next event of its incident, of another writer.
        happens: what it means for its incident; None for nothing.
        known: the latest event of the incident, with this one.
        was: what this process knows of the incident.
        end: the end that this process has sent, and that the record came before; None for none.
    """

    is_new: bool
    happens: Happening | None = None
    known: IncidentEvent | None = None
    was: Known = Known.NOTHING
    end: IncidentEvent | None = None


_OF_NO_MEANING = Received(is_new=False)


@dataclass(slots=True)
class IncidentStore:
    """The incidents of one cluster.

    Attributes:
        content_of: what to store of another writer's event: its sequence and status, and its content only if this
            process has none of its own.
        is_found: whether this process has found the subject of an incident.
        known: the latest event of each incident that is open, or ended less than a day ago.
    """

    cluster_id: str
    content_of: Callable[[IncidentEvent, TimestampMs], IncidentEvent] = lambda event, _: event
    is_found: Callable[[IncidentEvent], bool] = lambda _: True
    known: dict[str, IncidentEvent] = field(default_factory=dict)
    _spans: dict[SpanKey, str] = field(default_factory=dict)
    _on_topic: dict[str, int] = field(default_factory=dict)
    _in_flight: dict[str, dict[int, IncidentEvent]] = field(default_factory=dict)  # by incident and sequence
    _ended: dict[str, EndedIncident] = field(default_factory=dict)
    _overwritten: set[str] = field(default_factory=set)
    _spent: list[IncidentEvent] = field(default_factory=list)
    _heard_ms: dict[str, TimestampMs] = field(default_factory=dict)  # when an end, or an abort by hand, was read

    def remember(self, found: Iterable[IncidentEvent | Overwritten], now_ms: TimestampMs) -> None:
        """Loads published events: the highest sequence of each incident counts; of two equal ones, the first."""
        for event in found:
            incident_id = event.incident_id
            if isinstance(event, Overwritten):
                self._overwritten.add(incident_id)
                continue
            self._overwritten.discard(incident_id)
            if not self._is_usable(event):
                self._pass_over(event, now_ms)
                continue
            if event.sequence > self._last_on_topic(incident_id):
                self._on_topic[incident_id] = event.sequence
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

    def known_as(self, known: IncidentEvent | None) -> Known:
        """What this process knows of an incident."""
        if known is None:
            return Known.NOTHING
        return self._found_or_claimed(known) if known.is_open else Known.ENDED

    def _found_or_claimed(self, known: IncidentEvent) -> Known:
        """Only its command has found an abort by hand."""
        return Known.FOUND if self.is_found(known) and not known.is_by_hand else Known.CLAIMED

    def overwritten(self) -> list[tuple[IncidentEvent, NextStep]]:
        """Incidents whose last record is invalid, and what is done about them; each is returned once."""
        known = [self.known.get(incident_id) for incident_id in sorted(self._overwritten)]
        self._overwritten.clear()
        return [(one, step(self.known_as(one), Happening.RECORD_IS_INVALID)) for one in known if one is not None]

    def overwrite(self, incident_id: str) -> None:
        """Records that an invalid record follows those of an incident."""
        self._overwritten.add(incident_id)

    def expired(self, now_ms: TimestampMs, retention_ms: DurationMs, most: int) -> list[str]:
        """The ids of incidents that ended before the retention, at most `most`."""
        found = (one for one, ended in self._ended.items() if ended.is_expired(now_ms, retention_ms))
        return list(islice(found, most))

    def drop(self, incident_ids: Iterable[str]) -> None:
        """Forgets incidents completely: their ids may be used again."""
        for incident_id in incident_ids:
            self._ended.pop(incident_id, None)

    def forget(self, now_ms: TimestampMs) -> None:
        """Drops incidents that ended long ago, unless the end is still on its way to the topic."""
        for event in list(self.known.values()):
            heard_ms = self._heard_ms.get(event.incident_id, LONG_AGO)
            if (
                is_long_over(event, now_ms)
                and is_long_ago(heard_ms, now_ms)
                and event.incident_id not in self._in_flight
            ):
                self._let_go(event, now_ms)

    def _let_go(self, event: IncidentEvent, now_ms: TimestampMs) -> None:
        del self.known[event.incident_id]
        self._heard_ms.pop(event.incident_id, None)
        sequence = max(event.sequence, self._on_topic.pop(event.incident_id, 0))
        self._ended[event.incident_id] = EndedIncident(sequence, event.time_ms, now_ms)

    def take_spent(self) -> list[IncidentEvent]:
        """The ends of incidents whose ids are spent; each is returned once."""
        spent, self._spent = self._spent, []
        return spent

    def _is_usable(self, event: IncidentEvent) -> bool:
        return is_usable(event, self.cluster_id, self._sent(event))

    def _pass_over(self, event: IncidentEvent, now_ms: TimestampMs) -> None:
        """Skips an event that is not valid in this cluster; an id that it has used up is never used again."""
        incident_id = event.incident_id
        if event.cluster_id != self.cluster_id:
            if self.is_used(incident_id):
                self.overwrite(incident_id)
            return
        known = self.known.pop(incident_id, None)
        is_end_unread = known is not None and not known.is_open and self._sent(known) is not None
        self._on_topic.pop(incident_id, None)
        self._ended[incident_id] = EndedIncident(SPENT_SEQUENCE, now_ms, now_ms)
        self._in_flight.pop(incident_id, None)
        if known is not None and known.is_open:
            self._release(known)
        elif event.is_open and not event.is_spent:  # no other instance would end this incident
            known = replace(event, action=None)
        if known is not None and is_end_unread:  # it may not be on the topic, or stands before this record
            self._spent.append(known if event.is_spent else replace(known, sequence=event.sequence + 1))
        elif known is not None and step(self.known_as(known), Happening.ID_IS_SPENT) is NextStep.END_AND_READ_AGAIN:
            above = known.sequence if event.is_spent else max(known.sequence, event.sequence)
            self._spent.append(resolved(replace(known, sequence=above), now_ms, no_longer_open(now_ms, _USED_UP)))

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
        known = self.known.get(incident_id)
        return known.sequence if known is not None else self._ended_sequence(incident_id)

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
        heard_ms = self._heard_ms
        return [
            one for one in self.open_incidents if is_left_to_watch(one, heard_ms.get(one.incident_id, LONG_AGO), now_ms)
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
        known = self.known.get(event.incident_id)
        return known is not None and known.is_open and known.sequence < event.sequence

    def is_behind(self, event: IncidentEvent) -> bool:
        """Whether the topic has a later event of the incident."""
        return event.sequence < self._on_topic.get(event.incident_id, 0)

    def open_span(self, topic_id: str, partition: TopicPartition, producer_id: ProducerId) -> IncidentEvent | None:
        """The open incident about a span."""
        incident_id = self._spans.get((topic_id, partition, producer_id))
        return self.known.get(incident_id) if incident_id is not None else None

    def used_ids(self, incident_id: str) -> Iterator[str]:
        """The id under which an incident was first opened, and those under which it was opened again."""
        found, times = incident_id, 0
        while self.is_used(found):
            yield found
            times += 1
            found = repeat_incident_id(incident_id, times)

    def open_one(self, incident_id: str) -> IncidentEvent | None:
        """The open incident of this id, or of an id under which it was opened again."""
        known = (self.known.get(one) for one in self.used_ids(incident_id))
        return next((one for one in known if one is not None and one.is_open), None)

    def unused(self, incident_id: str) -> str:
        """The id for a newly confirmed incident; another one if an incident with this id was resolved.

        A leader election can remove the marker that ended a transaction, which then hangs again, at the same offset.
        And anyone who may write the topic can write a false end.
        """
        times = sum(1 for _ in self.used_ids(incident_id))
        return repeat_incident_id(incident_id, times) if times else incident_id

    def sent(self, events: Iterable[IncidentEvent]) -> None:
        """Registers events that are on their way to the topic and will be read back from it."""
        for event in events:
            self._in_flight.setdefault(event.incident_id, {})[event.sequence] = event

    def _sent(self, event: IncidentEvent) -> IncidentEvent | None:
        """What this process has sent with the incident and the sequence of an event, and not yet read back."""
        return self._in_flight.get(event.incident_id, {}).get(event.sequence)

    def _read_back(self, event: IncidentEvent) -> None:
        sent = self._in_flight.get(event.incident_id, {})
        sent.pop(event.sequence, None)
        if not sent:
            self._in_flight.pop(event.incident_id, None)

    def receive(self, event: IncidentEvent, now_ms: TimestampMs) -> Received:
        """Takes the next event on the topic, from this instance or another."""
        if not self._is_usable(event):
            self._pass_over(event, now_ms)
            return _OF_NO_MEANING
        incident_id, known = event.incident_id, self.known.get(event.incident_id)
        sent = self._sent(event)
        self._read_back(event)
        self._overwritten.discard(incident_id)
        match arrival(event, self._last_on_topic(incident_id), known, sent):
            case Arrival.OLDER:
                return Received(False, Happening.RECORD_IS_OLDER, known, self.known_as(known))
            case Arrival.REPEATED:
                happens = Happening.RECORD_HIDES_LAST if known is not None and hides(event, known) else None
                return Received(False, happens, known, self.known_as(known))
            case Arrival.KNOWN:
                self._on_topic[incident_id] = event.sequence
                return _OF_NO_MEANING
            case Arrival.NEW:
                self._on_topic[incident_id] = event.sequence
        taken = self.content_of(event, now_ms)
        if known is not None:
            self._release(known)
        self.enter(taken)
        self._in_flight.pop(incident_id, None)
        if event.is_by_hand or not event.is_open:
            self._heard_ms[incident_id] = now_ms  # its own time is of another clock, or forged
        if is_before_end(event, sent):
            return Received(True, Happening.RECORD_BEFORE_END, taken, Known.ENDED, sent)
        return Received(True, meaning(event, taken), taken, self._found_or_claimed(taken))


IN_HAND_MS: Final = DurationMs(60_000)


def is_left_to_watch(event: IncidentEvent, heard_ms: TimestampMs, now_ms: TimestampMs) -> bool:
    """Whether a watch may end the incident: not an abort by hand whose command may still publish the end.

    `heard_ms` is when this process read the event, because the time in it is the clock of the command's machine.
    """
    return not event.is_by_hand or now_ms - heard_ms >= IN_HAND_MS


def meaning(event: IncidentEvent, taken: IncidentEvent) -> Happening:
    """What the next event of another writer is, compared with what is known with it."""
    if not taken.is_open:
        return Happening.RECORD_ENDS
    return Happening.RECORD_DIFFERS if differs(event, taken) else Happening.RECORD_AGREES


_COMPARED: Final = {None, Happening.RECORD_ENDS, Happening.RECORD_AGREES, Happening.RECORD_DIFFERS}


@dataclass(slots=True)
class Book:
    """The incidents of one cluster.

    Attributes:
        findings: what this process has found; the abort uses nothing else.
        store: the latest event of each incident.
        silence: what waits because another instance knows more.
        ends: the ends that were found here, and those of other writers.
        looks: when the last barriers were listed.
        acted: the last decision of this process about each incident, as it was published.
        waiting: what has happened to the records of open incidents that this process has not found yet, by incident.
    """

    origin: Origin
    findings: OwnFindings
    store: IncidentStore = field(init=False)
    silence: Silence = field(default_factory=Silence)
    ends: Ends = field(default_factory=Ends)
    looks: LookTimes = field(default_factory=LookTimes)
    acted: dict[str, Action] = field(default_factory=dict)
    waiting: dict[str, Happening] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = IncidentStore(self.origin.cluster_id, self.content_of, self.is_found)

    @property
    def open_incidents(self) -> list[IncidentEvent]:
        """The latest event of every open incident, oldest first."""
        return self.store.open_incidents

    def open_about(self, candidate: SpanCandidate) -> IncidentEvent | None:
        """The open incident about a candidate's span."""
        return self.store.open_span(*key_of(candidate))

    def evidence_of(self, incident: IncidentEvent) -> ProvenHang | None:
        """The evidence of this process for an incident that it has found."""
        key = incident.span
        return self.findings.get(key) if key is not None and self.is_found(incident) else None

    def step(self, incident: IncidentEvent | None, happens: Happening) -> NextStep:
        """What this process does about an incident, or if there is none; the table of life.py decides."""
        return step(self.store.known_as(incident), happens)

    def step_once_found(self, incident: IncidentEvent) -> NextStep:
        """What this process does about the records of an open incident now that it has found it."""
        happened = self.waiting.get(incident.incident_id)
        return step(Known.FOUND, happened) if happened is not None else NextStep.NOTHING

    def is_found(self, incident: IncidentEvent) -> bool:
        """Whether this process has found the subject of the incident itself, and built the incident's content."""
        if incident.topic is None:
            return incident.incident_id in self.findings.transactions
        key = incident.span
        if key is None:
            return False
        evidence = self.findings.get(key)
        start = evidence.start_offset if evidence is not None else None
        return is_own(incident, start, self.findings.incident_of(key))

    def was_found(self, incident: IncidentEvent) -> bool:
        """Whether this process has found the incident's span, now or before its last restart."""
        return incident.span is not None and self.findings.has_known(incident.span)

    def as_found(self, event: IncidentEvent) -> IncidentEvent:
        """A hanging event with the outcome that this process has found; the one in the event may be forged."""
        evidence = self.evidence_of(event)
        found = outcome_as_found(
            event, evidence.known if evidence is not None else unknown(OutcomeDoubt.NOT_FOUND_HERE)
        )
        if event.expected_outcome == found.expected_outcome:
            return found
        return as_read(self.origin, found)

    def receive(self, record: IncidentEvent, now_ms: TimestampMs) -> Received:
        """Takes the next event on the topic, and compares it with the end that was found here."""
        before = self.store.known.get(record.incident_id)
        received = self.store.receive(record, now_ms)
        if received.known is None:
            return received
        if received.is_new:
            self.ends.take(record, before, received.was, now_ms)
        if received.end is not None:
            self.ends.take_found(received.end, now_ms)
        if received.happens is Happening.RECORD_HIDES_LAST and not record.is_open and not received.known.is_open:
            is_ours = self.ends.found(record.incident_id) is not None
            return received if is_ours else received._replace(happens=None)  # one end of others hides another
        if received.happens not in _COMPARED:
            return received
        happens = self.ends.meaning(record, received.known, is_new=received.is_new)
        return received if happens is None else received._replace(happens=happens, was=Known.ENDED)

    def last_version(self, known: IncidentEvent) -> IncidentEvent:
        """The last event of an incident, to publish it again: an end that was found here has its own content."""
        end = self.ends.found(known.incident_id) if not known.is_open else None
        if end is None:
            return known
        ours = replace(end, sequence=known.sequence, time_ms=known.time_ms)
        return known if hides(ours, known) else ours  # of two with one sequence the first counts

    def content_of(self, event: IncidentEvent, now_ms: TimestampMs) -> IncidentEvent:
        """What to store of an event from the topic, by the law of claims.py.

        Its content counts only if this process has none of its own.
        """
        known = self.store.known.get(event.incident_id)
        acted = self.acted.get(event.incident_id)
        if known is not None and keeps_content(event, known, is_found=self.is_found(known)):
            return with_claim(known, event, acted, now_ms)
        return named(
            as_read(self.origin, claimed(event, known, acted, now_ms)), self.origin.owners, self.origin.cluster
        )

    def transaction_id(
        self, producer_id: ProducerId, view: TransactionView, finding: TransactionCandidate | TransactionMoved
    ) -> str:
        """The id of the first incident about a transaction."""
        cluster_id, name = self.origin.cluster_id, view.transactional_id
        return transaction_incident_id(cluster_id, name, producer_id, view.start_ms, finding.verdict)

    def is_published(self, event: IncidentEvent) -> bool:
        """Whether the same subject was published before, and not another subject under its id."""
        known = self.store.known.get(event.incident_id)
        if known is None:
            return self.store.has_ended(event.incident_id) and not self.store.is_spent(event.incident_id)
        return is_same_span(known, event)

    def proven(self) -> Sequence[tuple[IncidentEvent, ProvenHang]]:
        """Open incidents about hanging transactions of which this process has its own evidence, with it."""
        return [
            (incident, evidence)
            for incident in self.open_incidents
            if incident.verdict == Verdict.HANGING and not incident.is_by_hand
            if (evidence := self.evidence_of(incident)) is not None
        ]

    def end_of(self, incident: IncidentEvent, resolution: Resolution, now_ms: TimestampMs) -> IncidentEvent:
        """The `resolved` event of an incident whose end this process has found, with the outcome that it has found."""
        return resolved(self.as_found(incident), now_ms, resolution)

    def forget_old(self, now_ms: TimestampMs) -> None:
        """Drops what is kept about incidents that the store no longer knows, and ends of long ago."""
        self.acted = {one: done for one, done in self.acted.items() if one in self.store.known}
        self.waiting = {one: happened for one, happened in self.waiting.items() if one in self.store.known}
        self.silence.forget_ended(self.store.known)
        self.ends.forget_old(self.store.is_used, now_ms)

    def forget_found(self, incident_id: str) -> TransactionCandidate | None:
        """Drops what this process has found and decided about an incident that has ended."""
        self.acted.pop(incident_id, None)
        self.waiting.pop(incident_id, None)
        return self.findings.transactions.pop(incident_id, None)


def is_own(incident: IncidentEvent, start_offset: Offset | None, published_as: str | None) -> bool:
    """Whether an incident about a span has the content that this process has built.

    Args:
        incident: the incident.
        start_offset: where the span begins that this process has found there; None if it has found none.
        published_as: the incident that this process has published about that span; None for none.
    """
    is_found_there = start_offset is not None and start_offset == incident.txn_start_offset
    return is_found_there and published_as == incident.incident_id


def is_same_span(one: IncidentEvent, other: IncidentEvent) -> bool:
    """Whether two events of one incident are about the same span, or both about no span."""
    return (one.span, one.txn_start_offset) == (other.span, other.txn_start_offset)


def outcome_as_found(event: IncidentEvent, found: Outcome) -> IncidentEvent:
    """The event to publish. Of a hanging span only the found outcome counts; the one in the event may be forged."""
    return with_outcome(event, found) if event.verdict == Verdict.HANGING else event
