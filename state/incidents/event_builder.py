"""What an event says: its values, from what confirmed candidates prove.

All fields come from evidence. No I/O, no clock; no decision about an incident.

Law: no decision reads what `named` adds. An owner is found by the table of this process: of an event of another writer,
the owner in it is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final, NamedTuple

import msgspec

from txnwatch.state.evidence.confirmation import SpanConfirmation, TransactionConfirmation
from txnwatch.state.evidence.ending import decided_outcome
from txnwatch.state.evidence.outcome import Outcome, known_outcome, with_outcome
from txnwatch.state.evidence.read_committed import blocked_reads
from txnwatch.state.model.findings import (
    BucketCount,
    Finding,
    SpanCandidate,
    StrayWrite,
    TransactionCandidate,
)
from txnwatch.state.model.incident import (
    Evidence,
    ExpectedOutcome,
    IncidentEvent,
    IncidentStatus,
    SinceClock,
    span_incident_id,
    transaction_incident_id,
)
from txnwatch.state.model.ownership import FLINK, Advice, IdMaker, OwnerLookup, Subject
from txnwatch.state.model.ports import ActiveProducer, PartitionReading
from txnwatch.state.model.transaction import CoordinatorView, DescribedTransaction, TransactionState, TransactionView
from txnwatch.state.model.values import (
    NO_BARRIER,
    NO_TIME,
    BarrierNumber,
    Offset,
    TimestampMs,
    TopicPartition,
    elapsed,
)
from txnwatch.state.model.verdicts import RULE_OF, Family, Verdict
from txnwatch.state.telling.commands import Origin, with_command


class ListedAt(NamedTuple):
    """When the ends of a barrier were listed, by our clock; None if that is not known.

    Attributes:
        data_ms: those of the data partitions (D).
        log_ms: those of the coordinators' log (T).
    """

    data_ms: TimestampMs | None
    log_ms: TimestampMs | None


NOT_LISTED: Final = ListedAt(None, None)


# The events.


def span_event(
    origin: Origin,
    candidate: SpanCandidate,
    confirmation: SpanConfirmation,
    cleanup_policy: str | None,
    now_ms: TimestampMs,
    outcome: Outcome | None = None,
    first_look: ListedAt = NOT_LISTED,
) -> IncidentEvent:
    """The event that opens an incident about a confirmed span; `outcome` is what is known of it, by all reads."""
    reading, producer = _read(confirmation)
    view, description, span = candidate.view, confirmation.description, candidate.span
    outcome = outcome or known_outcome(candidate, confirmation)
    event = IncidentEvent(
        incident_id=_span_id(origin, reading.topic_id, candidate, producer.start_offset),
        sequence=1,
        status=IncidentStatus.OPENED,
        verdict=candidate.verdict,
        reason=confirmation.reason,
        severity=RULE_OF[candidate.verdict].severity,
        cluster_id=origin.cluster_id,
        topic=candidate.partition.topic,
        partition=candidate.partition.partition,
        topic_id=reading.topic_id,
        producer_id=candidate.producer_id,
        producer_epoch=producer.producer_epoch,
        transactional_id=_name_of(description or view),
        coordinator_epoch=producer.coordinator_epoch,
        coordinator_id=description.coordinator if description is not None else None,
        transaction_state=description.state if description is not None else None,
        transaction_timeout_ms=description.timeout_ms if description is not None else None,
        txn_start_offset=producer.start_offset,
        open_since_ms=span.first_seen_ms,
        open_since_clock=SinceClock.OBSERVED,
        last_write_ms=producer.last_timestamp_ms,
        age_ms=elapsed(span.first_seen_ms, now_ms),
        cleanup_policy=cleanup_policy,
        evidence=_span_evidence(origin, candidate, confirmation, now_ms, first_look),
        expected_outcome=outcome.outcome,
        detected_at_ms=now_ms,
        detection_latency_ms=elapsed(_unowned_since_ms(candidate), now_ms),
        time_ms=now_ms,
    )
    whole = with_command(origin, with_outcome(event, outcome), description)
    return blocked_reads(reading, producer.start_offset).added_to(whole)


def _unowned_since_ms(candidate: SpanCandidate) -> TimestampMs:
    """Since when the log shows that no live transaction owns the span."""
    view, seen_ms = candidate.view, candidate.span.first_seen_ms
    return seen_ms if view is None or view.is_live else max(seen_ms, view.record_timestamp_ms)


def transaction_event(
    origin: Origin, candidate: TransactionCandidate, confirmation: TransactionConfirmation, now_ms: TimestampMs
) -> IncidentEvent:
    """The event that opens an incident about a transaction the coordinator still has."""
    view, description = candidate.view, confirmation.description
    assert description is not None
    assert description.producer_epoch is not None  # the transaction is live
    stuck = RULE_OF[candidate.verdict].family is Family.PREPARE
    event = IncidentEvent(
        incident_id=transaction_incident_id(
            origin.cluster_id, view.transactional_id, candidate.producer_id, view.start_ms, candidate.verdict
        ),
        sequence=1,
        status=IncidentStatus.OPENED,
        verdict=candidate.verdict,
        severity=RULE_OF[candidate.verdict].severity,
        cluster_id=origin.cluster_id,
        producer_id=candidate.producer_id,
        producer_epoch=description.producer_epoch,
        transactional_id=view.transactional_id,
        coordinator_id=description.coordinator,
        transaction_state=description.state,
        open_since_ms=_since_ms(view, is_decided=stuck),
        open_since_clock=SinceClock.COORDINATOR,
        transaction_timeout_ms=description.timeout_ms,
        age_ms=max(NO_TIME, candidate.age_ms),
        overdue_ms=candidate.overdue_ms,
        pending_partitions=_sorted(description.partitions) if stuck else (),
        evidence=replace(
            _coordinators(origin, view, description),
            coordinator_listed_ms=candidate.coordinator_listed_ms,
            confirmed_ms=now_ms,
        ),
        expected_outcome=decided_outcome(description.state),
        detected_at_ms=now_ms,
        detection_latency_ms=max(NO_TIME, candidate.overdue_ms + (now_ms - candidate.coordinator_listed_ms)),
        time_ms=now_ms,
    )
    return with_command(origin, event)


def _since_ms(view: TransactionView, *, is_decided: bool) -> TimestampMs:
    """When the transaction began, or when its outcome was decided, by the clock of its coordinator."""
    if isinstance(view, CoordinatorView) and (is_decided or view.start_ms is None):
        return view.record_timestamp_ms
    assert view.start_ms is not None  # without a record or a start there is no claim about an age
    return view.start_ms


def stray_event(origin: Origin, stray: StrayWrite, now_ms: TimestampMs, looks: LookTimes) -> IncidentEvent:
    """The event about data that no transaction owned and that a later transaction took in."""
    joined, view = stray.joined, stray.view
    first_barrier, second_barrier = stray.looks if stray.looks is not None else (None, None)
    first, second = looks.of(first_barrier), looks.of(second_barrier)
    event = IncidentEvent(
        incident_id=_span_id(origin, stray.topic_id, stray, joined.start_offset),
        sequence=1,
        status=IncidentStatus.OPENED,
        verdict=Verdict.STRAY_WRITE,
        severity=RULE_OF[Verdict.STRAY_WRITE].severity,
        cluster_id=origin.cluster_id,
        topic=stray.partition.topic,
        partition=stray.partition.partition,
        topic_id=stray.topic_id,
        producer_id=stray.producer_id,
        producer_epoch=joined.start_epoch,
        transactional_id=_name_of(view),
        transaction_state=view.state if view is not None else None,
        txn_start_offset=joined.start_offset,
        open_since_ms=stray.first_seen_ms,
        open_since_clock=SinceClock.OBSERVED,
        last_write_ms=stray.last_timestamp_ms,
        transaction_timeout_ms=view.timeout_ms if view is not None else None,
        age_ms=elapsed(stray.first_seen_ms, now_ms),
        evidence=replace(
            _coordinators(origin, view, None),
            first_barrier=first_barrier,
            second_barrier=second_barrier,
            first_data_listed_ms=first.data_ms,
            first_coordinator_listed_ms=first.log_ms,
            data_listed_ms=second.data_ms,
            coordinator_listed_ms=second.log_ms,
            joined_at_offset=joined.offset,
            joined_by_epoch=joined.epoch,
        ),
        expected_outcome=ExpectedOutcome.UNKNOWN,
        detected_at_ms=now_ms,
        detection_latency_ms=elapsed(stray.first_seen_ms, now_ms),
        time_ms=now_ms,
    )
    return with_command(origin, event)


def _read(confirmation: SpanConfirmation) -> tuple[PartitionReading, ActiveProducer]:
    """What the fresh read of a confirmed span has read."""
    assert confirmation.reading is not None
    assert confirmation.producer is not None
    return confirmation.reading, confirmation.producer


def _span_id(origin: Origin, topic_id: str, finding: SpanCandidate | StrayWrite, start_offset: Offset) -> str:
    partition = finding.partition.partition
    return span_incident_id(origin.cluster_id, topic_id, partition, finding.producer_id, start_offset)


def _name_of(owner: TransactionView | None) -> str | None:
    """The transactional id of the producer, None if it is not known."""
    return owner.transactional_id if owner is not None else None


def _sorted(partitions: Iterable[TopicPartition]) -> tuple[str, ...]:
    return tuple(sorted(str(partition) for partition in partitions))


def _log_place(view: TransactionView | None) -> str | None:
    """Where the record of a view is in the coordinators' log; None if the log does not show it now."""
    if not isinstance(view, CoordinatorView) or view.is_unseen:
        return None
    return f"{view.log_partition}@{view.log_offset}"


def _span_evidence(
    origin: Origin, candidate: SpanCandidate, confirmation: SpanConfirmation, now_ms: TimestampMs, first_look: ListedAt
) -> Evidence:
    reading, producer = _read(confirmation)
    return replace(
        _coordinators(origin, candidate.view, confirmation.description),
        first_barrier=candidate.first_barrier,
        second_barrier=candidate.second_barrier,
        first_data_listed_ms=first_look.data_ms,
        first_coordinator_listed_ms=first_look.log_ms,
        data_listed_ms=candidate.data_listed_ms,
        coordinator_listed_ms=candidate.coordinator_listed_ms,
        confirmed_ms=now_ms,
        leader=reading.leader,
        leader_epoch=reading.leader_epoch,
        end_before=reading.end_before,
        end_after=reading.end_after,
        last_sequence=producer.last_sequence,
    )


def _coordinators(origin: Origin, view: TransactionView | None, description: DescribedTransaction | None) -> Evidence:
    """What the coordinators' log shows of the producer, and what its coordinator has answered."""
    evidence = Evidence(complete=True, coordinator_log=_log_place(view), coordinator_view=origin.coordinator_view)
    if description is None:
        return evidence
    return replace(
        evidence,
        coordinator_producer_id=description.producer_id,
        coordinator_producer_epoch=description.producer_epoch,
        coordinator_partitions=_sorted(description.partitions),
    )


# The owner of a transaction, what has made its transactional id, and what to know before it is ended.


def named(event: IncidentEvent, owners: OwnerLookup, cluster: str | None = None) -> IncidentEvent:
    """The event with the owner of its transaction, and with the name of its cluster if it is given."""
    owner, application = owners.of(subject_of(event))
    name = cluster if cluster is not None else event.cluster_name
    return replace(event, cluster_name=name, owner=owner, application=application, advice=_advice(event, application))


def subject_of(event: IncidentEvent) -> Subject:
    """What the owner of an event's transaction is found by."""
    participants = (*event.evidence.coordinator_partitions, *event.pending_partitions)
    affected = {group.group_id for group in event.consumer_groups}
    return Subject(
        event.transactional_id,
        event.topic,
        frozenset(topics_of(participants)) | ({event.topic} if event.topic is not None else frozenset()),
        frozenset(affected | {group.group_id for group in event.waiting_groups}),
    )


def topics_of(partitions: Iterable[str]) -> Iterable[str]:
    """The topics of partitions that are given as text."""
    return (TopicPartition.parse(partition).topic for partition in partitions)


def _advice(event: IncidentEvent, application: IdMaker | None) -> Advice | None:
    if RULE_OF[event.verdict].needs_marker:
        is_undecided = event.expected_outcome is ExpectedOutcome.UNKNOWN
    else:
        is_undecided = event.topic is None and event.transaction_state is TransactionState.ONGOING
    return advice_about(application) if is_undecided and event.is_open else None


def advice_about(application: IdMaker | None) -> Advice | None:
    """What to know before a transaction without an outcome is ended."""
    return Advice.RESUME_FLINK_JOB if application is not None and application.framework == FLINK else None


# When the listings of the last barriers were made: an event has the times of both looks of its proof.
#
# A candidate has the number of its first look and no time of it, because the state of a span keeps the number only.
# After a restart between the looks the time is not known, and the event has null.

MOST_LISTED: Final = 4_096  # at the default trigger, half an hour


@dataclass(slots=True)
class LookTimes:
    """The last barriers."""

    _times: dict[BarrierNumber, ListedAt] = field(default_factory=dict)

    def take(self, emitted: Iterable[Finding]) -> None:
        """Takes the barriers of a micro-batch; all buckets have the same one."""
        for finding in emitted:
            if isinstance(finding, BucketCount):
                listed_ms = finding.data_listed_ms
                self._times[finding.barrier] = ListedAt(listed_ms, listed_ms + finding.log_after_ms)
        while len(self._times) > MOST_LISTED:
            del self._times[next(iter(self._times))]

    @property
    def last(self) -> BarrierNumber:
        """The barrier of the current micro-batch."""
        return max(self._times, default=NO_BARRIER)

    def of(self, barrier: BarrierNumber | None) -> ListedAt:
        """The times of a barrier."""
        return self._times.get(barrier, NOT_LISTED) if barrier is not None else NOT_LISTED


# Cuts an event so that it fits into a record of the events topic.
#
# Clients choose the names of groups and topics: as long as Kafka allows, and as many as they like. A record that is too
# large is never delivered, and every later event would wait behind it. So each list of an event is cut to its first
# entries; the first consumer groups are the most affected ones.

# Brokers accept 1 MiB by default, librdkafka 1,000,000 bytes. A transactional id can take 200 kB of JSON, and it can
# also be in the command and in two texts.
LIST_BYTES: Final = 60_000


def fitting(event: IncidentEvent) -> IncidentEvent:
    """The event, with its lists cut if they are too long; the same object if they are not."""
    partitions = event.evidence.coordinator_partitions
    lists = (event.pending_partitions, event.consumer_groups, event.waiting_groups, partitions)
    pending, groups, waiting, participants = fits = tuple(_first(entries) for entries in lists)
    if fits == tuple(map(len, lists)):
        return event
    return replace(
        event,
        pending_partitions=event.pending_partitions[:pending],
        consumer_groups=event.consumer_groups[:groups],
        waiting_groups=event.waiting_groups[:waiting],
        evidence=replace(event.evidence, coordinator_partitions=partitions[:participants]),
    )


def _first(values: Sequence[object]) -> int:
    """How many values fit."""
    sizes = (len(json.dumps(msgspec.to_builtins(value))) + 1 for value in values)
    return sum(total <= LIST_BYTES for total in accumulate(sizes))
