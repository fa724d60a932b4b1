"""Checks open incidents again: an end that was missed, the state of the partition, the affected groups, false claims.

Open incidents are read again from time to time, because an end may be missed before a restart, or in a gap.
`state/evidence` decides (ending.py, read_committed.py). A missing answer changes nothing that is known. Its reason is
reported once until it changes.

What nobody here has found is read afresh, too. A hang that another writer has published and that a fresh read
contradicts ends. A published age is not checked: another writer may have observed the transaction for longer, and our
clock proves nothing. Its incident ends with the transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from txnwatch.state.evidence import ending
from txnwatch.state.evidence.confirmation import Answer
from txnwatch.state.evidence.ending import (
    LOG_SHOWS_MS,
    absences_in_a_row,
    is_end_missed,
    is_unexplained,
    needs_update,
    no_longer_open,
    pause_ms,
    span_end,
    span_resolution,
    transaction_end,
    unexplained_since,
    with_marker,
    with_owner,
)
from txnwatch.state.evidence.read_committed import UnmovedOffset, blocked_reads, look_again
from txnwatch.state.incidents.abort_protocol import closing_marker
from txnwatch.state.incidents.book import Book
from txnwatch.state.incidents.confirm import CANDIDATES_AT_A_TIME, confirm_spans
from txnwatch.state.incidents.life import Happening, NextStep
from txnwatch.state.incidents.own_findings import key_of
from txnwatch.state.incidents.wanted import (
    Change,
    DescribeTransactions,
    Plan,
    ReadGroups,
    ReadPartitions,
    ReadWaitingGroups,
    Say,
    ask,
)
from txnwatch.state.model.findings import SpanCandidate, SpanEnd, SpanEnded
from txnwatch.state.model.incident import (
    AffectedGroup,
    ConnectUse,
    IncidentEvent,
    Resolution,
    WaitingGroup,
    partition_of,
    updated,
)
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.transaction import Span, TransactionDescription
from txnwatch.state.model.values import (
    AT_ONCE,
    FIRST_OFFSET,
    LONG_AGO,
    NO_BARRIER,
    DurationMs,
    SpanStart,
    TimestampMs,
    TopicPartition,
    elapsed,
)
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.text import Said

# What others claim.

Ends = list[tuple[IncidentEvent, Resolution]]


def contradictions(book: Book, incidents: Sequence[IncidentEvent], now_ms: TimestampMs) -> Plan[Ends]:
    """The ends of incidents that this process has not found, and that a fresh read contradicts."""
    spans = [incident for incident in incidents if is_doubtful_span(incident, was_found=book.was_found(incident))]
    spans = spans[:CANDIDATES_AT_A_TIME]
    ends: Ends = []
    answers = yield from confirm_spans([candidate_of(incident) for incident in spans])
    for incident, (_, read) in zip(spans, answers, strict=True):
        if read.answer is Answer.REFUTED and read.description is not None:
            ends.append((incident, ending.refuted(now_ms, read.description)))
    return ends


def is_doubtful_span(incident: IncidentEvent, *, was_found: bool) -> bool:
    """Whether another writer published a hang that this process has not found, not even before a restart."""
    if incident.verdict != Verdict.HANGING or incident.is_by_hand or incident.txn_start_offset is None:
        return False
    return incident.span is not None and not was_found


def candidate_of(incident: IncidentEvent) -> SpanCandidate:
    """A published incident as a candidate for a fresh read: does this producer's transaction hang there?"""
    assert incident.span is not None
    assert incident.txn_start_offset is not None
    (topic_id, partition, producer_id), start = incident.span, incident.txn_start_offset
    epoch = incident.producer_epoch
    return SpanCandidate(
        verdict=Verdict.HANGING,
        producer_id=producer_id,
        partition=partition,
        span=Span(topic_id, start, epoch, epoch, start, LONG_AGO, LONG_AGO, NO_BARRIER),
        view=None,
        first_barrier=NO_BARRIER,
        second_barrier=NO_BARRIER,
        data_listed_ms=LONG_AGO,
        coordinator_listed_ms=LONG_AGO,
    )


# The checks from time to time.


class Checked(NamedTuple):
    """The result of a check of one open incident: its resolution, or else the incident with the current values."""

    incident: IncidentEvent
    now: IncidentEvent
    resolution: Resolution | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What blocks the readers of a partition, and who waits for it.

    Attributes:
        consumer_groups: None if the affected groups are not known.
        waiting_groups: by span; a span is missing if the groups that wait for it are not known.
        connect: what Kafka Connect keeps on the partition, if it does.
    """

    lso_standing_ms: DurationMs
    consumer_groups: tuple[AffectedGroup, ...] | None = None
    waiting_groups: Mapping[SpanStart, tuple[WaitingGroup, ...]] = field(default_factory=dict)
    connect: ConnectUse | None = None

    def added_to(self, incident: IncidentEvent) -> IncidentEvent:
        """The incident with these values; the groups that it has stay if the current ones are not known."""
        groups = incident.consumer_groups if self.consumer_groups is None else self.consumer_groups
        waiting = self.waiting_groups.get(_span_of(incident), incident.waiting_groups)
        return replace(
            incident,
            lso_standing_ms=self.lso_standing_ms,
            consumer_groups=groups,
            waiting_groups=waiting,
            connect=self.connect or incident.connect,
        )


@dataclass(slots=True)
class FollowUp:
    """Checks open incidents. It remembers each partition's last stable offset, and since when it has not moved."""

    _unmoved: dict[TopicPartition, UnmovedOffset] = field(default_factory=dict)
    _affected: dict[TopicPartition, tuple[AffectedGroup, ...]] = field(default_factory=dict)
    _gone: dict[str, TimestampMs] = field(default_factory=dict)
    _absences: dict[TopicPartition, int] = field(default_factory=dict)
    _said: Said[str] = field(default_factory=Said)

    @property
    def is_waiting(self) -> bool:
        """Whether an incident is over and the log has not shown its end yet, or its partition may be deleted."""
        return bool(self._gone or self._absences)

    def look(self, incidents: Sequence[IncidentEvent], now_ms: TimestampMs) -> Plan[list[Checked]]:
        """Reads open incidents again. An end that the log should show is returned only if the log does not show it."""
        checked = yield from self._checked(incidents, now_ms)
        over = [check.incident.incident_id for check in checked if is_unexplained(check.resolution)]
        self._gone = unexplained_since(self._gone, over, now_ms)
        since = [(check, self._gone.get(check.incident.incident_id)) for check in checked]
        return [check for check, since_ms in since if since_ms is None or is_end_missed(since_ms, now_ms)]

    def _checked(self, incidents: Sequence[IncidentEvent], now_ms: TimestampMs) -> Plan[list[Checked]]:
        names = sorted({name for incident in incidents if (name := incident.transactional_id) is not None})
        owners = (yield from ask(DescribeTransactions(names))) if names else {}
        spans = {incident.incident_id: partition_of(incident) for incident in incidents if incident.topic is not None}
        readings = (yield from ask(ReadPartitions(set(spans.values())))) if spans else {}
        self._absences = absences_in_a_row(self._absences, readings)
        read = [(incident, self.end_of(incident, owners, readings, now_ms)) for incident in incidents]
        still_open = {
            spans[incident.incident_id] for incident, end in read if end is None and incident.incident_id in spans
        }
        around = yield from self.around(
            {partition: readings[partition] for partition in still_open},
            now_ms,
            incidents,
            [_span_of(incident) for incident, end in read if end is None and incident.incident_id in spans],
        )
        self._unmoved = {partition: self._unmoved[partition] for partition in still_open & self._unmoved.keys()}
        self._affected = {partition: self._affected[partition] for partition in still_open & self._affected.keys()}
        checked = []
        for incident, end in read:
            partition = spans.get(incident.incident_id)
            if end is not None:
                checked.append(Checked(incident, incident, end))
            elif partition is not None:
                now = with_blocked_reads(incident, readings[partition])
                now = around[partition].added_to(now) if partition in around else now
                checked.append(Checked(incident, with_owner(now, _owner(incident, owners))))
        return checked

    def end_of(
        self,
        incident: IncidentEvent,
        owners: Mapping[str, TransactionDescription],
        readings: Mapping[TopicPartition, PartitionReading],
        now_ms: TimestampMs,
    ) -> Resolution | None:
        """The end of an open incident that a fresh read shows; None if it goes on."""
        if incident.topic is None:
            return transaction_end(incident, _owner(incident, owners), now_ms)
        partition = partition_of(incident)
        return span_end(incident, readings[partition], self._absences.get(partition, 0), now_ms)

    def around(
        self,
        readings: Mapping[TopicPartition, PartitionReading],
        now_ms: TimestampMs,
        incidents: Sequence[IncidentEvent] = (),
        spans: Iterable[SpanStart] = (),
    ) -> Plan[dict[TopicPartition, Surroundings]]:
        """How long each last stable offset has not moved, the affected groups, and the groups that wait for `spans`."""
        surroundings: dict[TopicPartition, Surroundings] = {}
        readable = {
            at: (reading.last_stable_offset, reading.high_watermark)
            for at, reading in readings.items()
            if reading.problem is None and reading.last_stable_offset is not None and reading.high_watermark is not None
        }
        if not readable:
            return surroundings
        answer = yield from ask(ReadGroups(readable))
        waiting = yield from ask(ReadWaitingGroups([span for span in spans if span.partition in readable]))
        yield from self._report_once(frozenset((*answer.problems, *waiting.problems)))
        before = {**_recalled(incidents), **self._unmoved}
        affected_before = {
            partition_of(incident): incident.consumer_groups for incident in incidents if incident.topic is not None
        } | self._affected
        for partition, (stable, end) in readable.items():
            seen = look_again(
                before.get(partition),
                affected_before.get(partition, ()),
                stable,
                end,
                answer.offsets.get(partition, ()),
                now_ms,
                is_complete=not answer.problems,
                unassigned=answer.unassigned,
            )
            self._unmoved[partition] = seen.offset
            standing_ms, connect = elapsed(seen.offset.since_ms, now_ms), answer.connect.get(partition.topic)
            surroundings[partition] = Surroundings(standing_ms, seen.affected, waiting.groups, connect)
            if seen.affected is not None:
                self._affected[partition] = seen.affected
        return surroundings

    def _report_once(self, problems: frozenset[str]) -> Plan[None]:
        new, _ = self._said.update(problems)
        for problem in sorted(new):
            yield Say(f"the list of affected groups is incomplete: {problem}")


def with_blocked_reads(incident: IncidentEvent, reading: PartitionReading) -> IncidentEvent:
    """An open incident with the current values of its partition; without an answer the known values stay."""
    if reading.problem is not None or reading.last_stable_offset is None or incident.txn_start_offset is None:
        return incident
    return blocked_reads(reading, incident.txn_start_offset).added_to(incident)


def _span_of(incident: IncidentEvent) -> SpanStart:
    start = FIRST_OFFSET if incident.txn_start_offset is None else incident.txn_start_offset
    return SpanStart(partition_of(incident), incident.producer_id, start)


def _owner(incident: IncidentEvent, owners: Mapping[str, TransactionDescription]) -> TransactionDescription | None:
    return owners.get(incident.transactional_id or "")


def _recalled(events: Iterable[IncidentEvent]) -> dict[TopicPartition, UnmovedOffset]:
    """Since when each last stable offset has not moved, by events that were published before a restart."""
    return {
        partition_of(event): UnmovedOffset(event.last_stable_offset, event.time_ms - event.lso_standing_ms)
        for event in events
        if event.topic is not None and event.last_stable_offset is not None and event.lso_standing_ms is not None
    }


def changed(book: Book, incident: IncidentEvent, event: IncidentEvent) -> Plan[None]:
    """Publishes the next event of an open incident that has learned something."""
    then = book.step(incident, Happening.CHANGED)
    if then is NextStep.UPDATE:
        yield Change(event, then)


DOUBLE: Final = "another open incident is about the same transaction"


@dataclass(slots=True)
class OpenChecks:
    """Checks open incidents from time to time; `due_ms` is the time of the next check."""

    book: Book
    due_ms: TimestampMs = AT_ONCE
    follow_up: FollowUp = field(default_factory=FollowUp)

    def not_after(self, time_ms: TimestampMs) -> None:
        """Moves the next check to this time, if it is later."""
        self.due_ms = min(self.due_ms, time_ms)

    def check(self, now_ms: TimestampMs) -> Plan[None]:
        """Reads open incidents again if the check is due, and changes or ends them."""
        if now_ms < self.due_ms:
            return
        book, store = self.book, self.book.store
        self.due_ms = now_ms + pause_ms((incident.detected_at_ms for incident in store.open_incidents), now_ms)
        for incident, now, resolution in (yield from self.follow_up.look(book.left_to_us(now_ms), now_ms)):
            if resolution is not None:
                read = yield from self._with_marker(incident, resolution, now_ms)
                yield from self._end(incident, Happening.OVER, read, now_ms)
            elif needs_update(incident, update := updated(now, now_ms)):
                yield from changed(book, incident, book.as_found(update))
        left = book.left_to_us(now_ms)
        for incident in [incident for incident in left if store.is_double(incident)]:
            yield from self._end(incident, Happening.DOUBLED, no_longer_open(now_ms, DOUBLE), now_ms)
        for incident, resolution in (yield from contradictions(book, store.left_to_us(now_ms), now_ms)):
            yield from self._end(incident, Happening.CONTRADICTED, resolution, now_ms)
        if self.follow_up.is_waiting:
            self.due_ms = now_ms + LOG_SHOWS_MS

    def _with_marker(self, incident: IncidentEvent, end: Resolution, now_ms: TimestampMs) -> Plan[Resolution]:
        """The end with the marker that closed the data: nobody has read it where the state has not shown the end."""
        proof = self.book.findings.get(incident.span) if incident.span is not None else None
        if proof is None or not is_unexplained(end) or not self.book.is_found(incident):
            return end
        closing = yield from closing_marker(incident)
        if closing is None:
            return end
        candidate = proof.candidate
        ended = SpanEnded(candidate.producer_id, candidate.partition, candidate.span, SpanEnd.CENSUS, None)
        ours = self.book.findings.marker(key_of(candidate))
        return span_resolution(with_marker(ended, closing), incident, None, now_ms, candidate.view, ours)

    def _end(
        self, incident: IncidentEvent, happens: Happening, resolution: Resolution, now_ms: TimestampMs
    ) -> Plan[None]:
        """Ends an incident after a check, if it is still open, and drops the findings about it."""
        book, key = self.book, incident.span
        latest = book.store.known[incident.incident_id]
        then = book.step(latest, happens)
        if then is not NextStep.END:
            return
        its_own = book.store.open_span(*key) if key is not None else None
        is_found = book.is_found(incident)
        yield Change(book.end_of(latest, resolution, now_ms), then)
        if key is not None and is_found and its_own is not None and its_own.incident_id == incident.incident_id:
            book.findings.over(key)
