"""Builds events from confirmed candidates. All fields come from evidence. Pure: no I/O, no clock, no decisions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from txnwatch.sinks.incidents.commands import Origin, end_hanging, explain_id, explain_partition
from txnwatch.state.evidence.confirmation import SpanConfirmation, TransactionConfirmation
from txnwatch.state.evidence.known_outcome import known_outcome
from txnwatch.state.evidence.resolution import ended_by
from txnwatch.state.model.findings import (
    SpanCandidate,
    SpanEnd,
    SpanEnded,
    StrayWrite,
    TransactionCandidate,
    TransactionMoved,
)
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.incident import IncidentEvent, span_incident_id, transaction_incident_id
from txnwatch.state.model.incident_payload import (
    EndedBy,
    EndKind,
    Evidence,
    ExpectedOutcome,
    IncidentStatus,
    Resolution,
    SinceClock,
)
from txnwatch.state.model.ports import PartitionReading, TransactionDescription
from txnwatch.state.model.transaction import CoordinatorView, Marker, TransactionState
from txnwatch.state.model.verdicts import RULE_OF, Family, Verdict

_END_OF = {ExpectedOutcome.COMMIT: EndKind.COMMITTED, ExpectedOutcome.ABORT: EndKind.ABORTED}
_CLAIMED = "txnwatch announced a marker, but this process cannot prove that it is this one"


def hanging_event(
    origin: Origin,
    candidate: SpanCandidate,
    found: SpanConfirmation,
    cleanup_policy: str | None,
    now_ms: int,
    outcome: ExpectedOutcome | None = None,
) -> IncidentEvent:
    """The event that opens an incident about a confirmed hanging span; `outcome` is the outcome, if already known."""
    reading, producer = found.reading, found.producer
    assert reading is not None
    assert producer is not None
    view, description, span = candidate.view, found.description, candidate.span
    completed_ms = view.record_timestamp_ms if view is not None and not view.is_live else 0
    since_ms = max(span.first_seen_ms, completed_ms)
    outcome = outcome or outcome_of(candidate, found)
    stable = reading.last_stable_offset if reading.last_stable_offset >= 0 else None
    return IncidentEvent(
        incident_id=span_incident_id(
            origin.cluster_id,
            reading.topic_id,
            candidate.partition.partition,
            candidate.producer_id,
            producer.txn_start_offset,
        ),
        sequence=1,
        status=IncidentStatus.OPENED,
        verdict=Verdict.HANGING,
        reason=found.reason,
        severity=RULE_OF[Verdict.HANGING].severity,
        cluster_id=origin.cluster_id,
        topic=candidate.partition.topic,
        partition=candidate.partition.partition,
        topic_id=reading.topic_id,
        producer_id=candidate.producer_id,
        producer_epoch=producer.producer_epoch,
        transactional_id=(
            description.transactional_id
            if description is not None
            else (view.transactional_id if view is not None else None)
        ),
        coordinator_id=description.coordinator if description is not None else None,
        coordinator_epoch=producer.coordinator_epoch,
        transaction_state=description.state if description is not None else None,
        txn_start_offset=producer.txn_start_offset,
        open_since_ms=span.first_seen_ms,
        open_since_clock=SinceClock.OBSERVED,
        last_write_ms=producer.last_timestamp_ms,
        transaction_timeout_ms=description.timeout_ms if description is not None else None,
        age_ms=max(0, now_ms - span.first_seen_ms),
        last_stable_offset=stable,
        high_watermark=reading.high_watermark,
        hidden_records=reading.high_watermark - stable if stable is not None else None,
        is_lso_blocker=(
            producer.txn_start_offset <= max(stable, reading.log_start_offset) if stable is not None else None
        ),
        cleanup_policy=cleanup_policy,
        evidence=_span_evidence(candidate, found, now_ms),
        expected_outcome=outcome,
        suggested_command=end_hanging(origin, candidate.partition, producer.txn_start_offset, outcome),
        detected_at_ms=now_ms,
        detection_latency_ms=max(0, now_ms - since_ms),
        time_ms=now_ms,
    )


def outcome_of(candidate: SpanCandidate, found: SpanConfirmation) -> ExpectedOutcome:
    """The expected outcome for an event; `found.past` must be set."""
    return known_outcome(candidate, found).word


def transaction_event(
    origin: Origin, candidate: TransactionCandidate, found: TransactionConfirmation, now_ms: int
) -> IncidentEvent:
    """The event that opens an incident about a transaction the coordinator still has."""
    view, description = candidate.view, found.description
    assert description is not None
    stuck = RULE_OF[candidate.verdict].family is Family.PREPARE
    since_ms = view.record_timestamp_ms if stuck else view.start_ms
    return IncidentEvent(
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
        open_since_ms=since_ms,
        open_since_clock=SinceClock.COORDINATOR,
        transaction_timeout_ms=description.timeout_ms,
        age_ms=max(0, candidate.age_ms),
        overdue_ms=candidate.overdue_ms,
        pending_partitions=_sorted(description.partitions) if stuck else (),
        evidence=Evidence(
            complete=True,
            coordinator_listed_ms=candidate.coordinator_listed_ms,
            confirmed_ms=now_ms,
            coordinator_producer_id=description.producer_id,
            coordinator_producer_epoch=description.producer_epoch,
            coordinator_partitions=_sorted(description.partitions),
            coordinator_log=_log_place(view),
        ),
        expected_outcome=_decided(description.state),
        suggested_command=explain_id(origin, view.transactional_id),
        detected_at_ms=now_ms,
        detection_latency_ms=max(0, candidate.overdue_ms + now_ms - candidate.coordinator_listed_ms),
        time_ms=now_ms,
    )


def stray_event(origin: Origin, stray: StrayWrite, now_ms: int) -> IncidentEvent:
    """The event about data that no transaction owned and that a later transaction took in."""
    joined, view = stray.joined, stray.view
    return IncidentEvent(
        incident_id=span_incident_id(
            origin.cluster_id, stray.topic_id, stray.partition.partition, stray.producer_id, joined.start_offset
        ),
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
        transactional_id=view.transactional_id if view is not None else None,
        transaction_state=view.state if view is not None else None,
        txn_start_offset=joined.start_offset,
        open_since_ms=stray.first_seen_ms,
        open_since_clock=SinceClock.OBSERVED,
        last_write_ms=stray.last_timestamp_ms,
        transaction_timeout_ms=view.timeout_ms if view is not None else None,
        age_ms=max(0, now_ms - stray.first_seen_ms),
        evidence=Evidence(
            complete=True,
            first_barrier=stray.first_barrier,
            second_barrier=stray.second_barrier,
            joined_at_offset=joined.offset,
            joined_by_epoch=joined.epoch,
            coordinator_log=_log_place(view),
        ),
        expected_outcome=ExpectedOutcome.UNKNOWN,
        suggested_command=explain_partition(origin, stray.partition),
        detected_at_ms=now_ms,
        detection_latency_ms=max(0, now_ms - stray.first_seen_ms),
        time_ms=now_ms,
    )


def span_resolution(
    ended: SpanEnded,
    incident: IncidentEvent,
    owner: TransactionDescription | None,
    now_ms: int,
    ours: Marker | None = None,
) -> Resolution:
    """The resolution of an incident about a span, by what ended it; `ours` is a marker proven to be ours."""
    marker = ended.marker
    match ended.how:
        case SpanEnd.MARKER if marker is not None:
            by = ended_by(marker, incident, owner, ours)
            is_claimed = by is EndedBy.ADMINISTRATOR and incident.action is not None and incident.action.is_marker
            return _ended(_end_kind(marker), by, now_ms, _CLAIMED if is_claimed else None, marker)
        case SpanEnd.ABSORBED if marker is not None:
            return absorbed(marker, now_ms)
        case SpanEnd.PARTITION_GONE:
            return partition_gone(now_ms)
        case SpanEnd.TRUNCATED:
            return _ended(EndKind.TRUNCATED, EndedBy.UNKNOWN, now_ms, "the log was truncated below the open data")
        case _:
            return no_longer_open(now_ms, "the partition's leader no longer has it open")


def partition_gone(now_ms: int) -> Resolution:
    """The resolution of an incident whose partition no longer exists."""
    return _ended(EndKind.PARTITION_GONE, EndedBy.ADMINISTRATOR, now_ms, "the topic was deleted or re-created")


def refuted(now_ms: int, owner: TransactionDescription) -> Resolution:
    """The resolution of an incident that a fresh read contradicts: the span's own transaction is live."""
    detail = f"{owner.transactional_id} is {owner.state} and owns this transaction: its coordinator will end it"
    return _ended(EndKind.REFUTED, EndedBy.COORDINATOR, now_ms, detail)


def surroundings(incident: IncidentEvent, reading: PartitionReading) -> dict[str, Any]:
    """Event fields of the partition around an open span, from a fresh read."""
    if reading.problem is not None or reading.last_stable_offset < 0 or incident.txn_start_offset is None:
        return {}
    stable = reading.last_stable_offset
    return {
        "last_stable_offset": stable,
        "high_watermark": reading.high_watermark,
        "hidden_records": reading.high_watermark - stable,
        "is_lso_blocker": incident.txn_start_offset <= max(stable, reading.log_start_offset),
    }


def absorbed(marker: Marker, now_ms: int) -> Resolution:
    """The resolution of data that was committed or aborted together with a later transaction."""
    detail = f"{_end_kind(marker)} together with a later transaction of the same producer"
    return _ended(EndKind.ABSORBED, EndedBy.NEXT_TRANSACTION, now_ms, detail, marker)


def changes(known: IncidentEvent, event: IncidentEvent) -> dict[str, Any]:
    """The fields that a newer verdict about the same span changes; the incident's identity and start stay."""
    fixed = {
        "incident_id",
        "sequence",
        "status",
        "txn_start_offset",
        "open_since_ms",
        "open_since_clock",
        "age_ms",
        "time_ms",
    }
    names = (spec.name for spec in fields(IncidentEvent) if spec.name not in fixed)
    return {name: getattr(event, name) for name in names if getattr(event, name) != getattr(known, name)}


def no_longer_open(now_ms: int, detail: str) -> Resolution:
    """The resolution of an incident that is over, but whose end was not seen."""
    return _ended(EndKind.NO_LONGER_OPEN, EndedBy.UNKNOWN, now_ms, detail)


def transaction_resolution(moved: TransactionMoved, now_ms: int) -> Resolution:
    """The resolution of an incident about a transaction, by what the coordinator did next."""
    view = moved.view
    if view.state is TransactionState.DEAD:
        return no_longer_open(now_ms, "the coordinator no longer has the id")
    how = _END_OF.get(_decided(view.state), EndKind.MOVED_ON)
    return _ended(how, EndedBy.COORDINATOR, now_ms, f"the coordinator moved on to {view.state}")


def _ended(
    how: EndKind, by: EndedBy, now_ms: int, detail: str | None = None, marker: Marker | None = None
) -> Resolution:
    offset = marker.offset if marker is not None else None
    return Resolution(how=how, by=by, marker_offset=offset, detail=detail, at_ms=now_ms)


def _end_kind(marker: Marker) -> EndKind:
    return EndKind.COMMITTED if marker.commit else EndKind.ABORTED


def _decided(state: TransactionState | None) -> ExpectedOutcome:
    outcome = state.outcome if state is not None else None
    return ExpectedOutcome(outcome) if outcome is not None else ExpectedOutcome.UNKNOWN


def _sorted(partitions: Iterable[TopicPartition]) -> tuple[str, ...]:
    return tuple(sorted(str(partition) for partition in partitions))


def _log_place(view: CoordinatorView | None) -> str | None:
    return f"{view.log_partition}@{view.log_offset}" if view is not None else None


def _span_evidence(candidate: SpanCandidate, found: SpanConfirmation, now_ms: int) -> Evidence:
    reading, producer, description, view = found.reading, found.producer, found.description, candidate.view
    assert reading is not None
    assert producer is not None
    return Evidence(
        complete=True,
        first_barrier=candidate.first_barrier,
        second_barrier=candidate.second_barrier,
        data_listed_ms=candidate.data_listed_ms,
        coordinator_listed_ms=candidate.coordinator_listed_ms,
        confirmed_ms=now_ms,
        leader=reading.leader,
        leader_epoch=reading.leader_epoch,
        end_before=reading.end_before,
        end_after=reading.end_after,
        last_sequence=producer.last_sequence,
        coordinator_producer_id=description.producer_id if description is not None else None,
        coordinator_producer_epoch=description.producer_epoch if description is not None else None,
        coordinator_partitions=_sorted(description.partitions) if description is not None else (),
        coordinator_log=_log_place(view),
    )
