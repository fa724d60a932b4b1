"""Builds events from confirmed candidates. All fields come from evidence. Pure: no I/O, no clock, no decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple

from txnwatch.state.abort.fencing import ProducerIdentity, may_begin_again
from txnwatch.state.evidence.confirmation import SpanConfirmation, TransactionConfirmation
from txnwatch.state.evidence.ending import blocked_reads, decided_outcome
from txnwatch.state.evidence.outcome import Outcome, known_outcome, with_outcome
from txnwatch.state.incidents.listing_times import NOT_LISTED, ListedAt, LookTimes
from txnwatch.state.model.findings import (
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
from txnwatch.state.model.ownership import NO_OWNERS, OwnerLookup
from txnwatch.state.model.ports import ActiveProducer, PartitionReading
from txnwatch.state.model.transaction import CoordinatorView, DescribedTransaction, TransactionView
from txnwatch.state.model.values import (
    NO_TIME,
    CoordinatorAccess,
    Offset,
    TimestampMs,
    TopicPartition,
    elapsed,
    is_topic_name,
)
from txnwatch.state.model.verdicts import RULE_OF, Family, Verdict
from txnwatch.state.text import shell_line

# The next command for an operator, ready to paste: with the connection settings of the run that suggests it.

_OUTCOMES = frozenset({ExpectedOutcome.ABORT, ExpectedOutcome.COMMIT, ExpectedOutcome.NONE})


@dataclass(frozen=True, slots=True)
class EventsFlags:
    """Where a run publishes its events, as flags; None omits the flag."""

    events_topic: str | None = None
    events_format: str | None = None
    schema_registry_url: str | None = None
    events_key_file: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """What all events of one run share.

    `command_config` is the run's client properties file; `coordinator_view` is how its evidence was found; `owners` is
    the table of owners.
    """

    cluster_id: str
    bootstrap_servers: str
    command_config: str | None = None
    events: EventsFlags = field(default_factory=EventsFlags)
    coordinator_view: CoordinatorAccess = CoordinatorAccess.LOG
    owners: OwnerLookup = NO_OWNERS


def explain_partition(origin: Origin, partition: TopicPartition) -> str:
    """The command that explains what holds the partition."""
    return _command(origin, "explain", topic=partition.topic, partition=str(partition.partition))


def explain_id(origin: Origin, transactional_id: str) -> str:
    """The command that explains what the transactional id is doing."""
    return _command(origin, "explain", transactional_id=transactional_id)


def read_events(origin: Origin, incident_id: str) -> str:
    """The command that reads the events of an incident from the events topic."""
    events = {name: value for name, value in _flags_of_events(origin).items() if name != "events_format"}
    return _command(origin, "events", incident=incident_id, **events)


def rehearse_abort(origin: Origin, partition: TopicPartition, start_offset: Offset) -> str:
    """The command that shows what an abort would do, without the abort."""
    return f"{_abort(origin, partition, start_offset)} --dry-run"


class HangingData(NamedTuple):
    """A transaction that hangs: where it begins, who wrote it, and how it would have ended."""

    partition: TopicPartition
    start_offset: Offset
    written_by: ProducerIdentity
    expected_outcome: str


def data_of(incident: IncidentEvent) -> HangingData:
    """The data of an incident about a hanging transaction."""
    assert incident.topic is not None
    assert incident.partition is not None
    assert incident.txn_start_offset is not None
    written_by = ProducerIdentity(incident.producer_id, incident.producer_epoch)
    partition = TopicPartition(incident.topic, incident.partition)
    return HangingData(partition, incident.txn_start_offset, written_by, incident.expected_outcome)


def end_hanging(origin: Origin, data: HangingData, owner: DescribedTransaction | None) -> str:
    """The command that writes the missing marker; if its kind is unknown, the command that explains the partition.

    `owner` is the id that has the producer id. An abort is refused while it may begin a transaction under the epoch of
    the data, so the fence comes first.
    """
    if data.expected_outcome == ExpectedOutcome.UNKNOWN:
        return explain_partition(origin, data.partition)
    result = {"result": ExpectedOutcome.COMMIT} if data.expected_outcome == ExpectedOutcome.COMMIT else {}
    abort = _abort(origin, data.partition, data.start_offset, **result)
    if owner is None or not may_begin_again(owner, data.written_by):
        return abort
    return f"{fence_owner(origin, owner.transactional_id, data)} && {abort}"


def suggested(origin: Origin, event: IncidentEvent) -> str | None:
    """The command for an event that was read from the topic, built anew; the text of the command in it is not used.

    The command only saves typing: `abort` and `explain` read everything themselves. It is never `fence`: whoever may
    write the topic could name the id of a healthy application. An abort that is refused names the id to fence.
    """
    if not event.is_open or event.suggested_command is None:
        return None
    if event.topic is None:
        return explain_id(origin, event.transactional_id) if event.transactional_id is not None else None
    if event.partition is None or event.partition < 0 or not is_topic_name(event.topic):
        return None
    partition, start = TopicPartition(event.topic, event.partition), event.txn_start_offset
    if event.verdict != Verdict.HANGING or start is None or start < 0 or event.expected_outcome not in _OUTCOMES:
        return explain_partition(origin, partition)
    written_by = ProducerIdentity(event.producer_id, event.producer_epoch)
    return end_hanging(origin, HangingData(partition, start, written_by, event.expected_outcome), None)


def fence(origin: Origin, transactional_id: str, identity: ProducerIdentity) -> str:
    """The command that fences the client of a transactional id, if it still has this producer id and epoch."""
    return _change(origin, "fence", {"transactional_id": transactional_id, **_flags_of(identity)})


def fence_owner(origin: Origin, transactional_id: str, data: HangingData) -> str:
    """The same, and only while its data hangs: a marker that came late has made the fence unnecessary."""
    owner = {"transactional_id": transactional_id, **_flags_of(data.written_by)}
    return _change(origin, "fence", owner | _flags_at(data.partition, data.start_offset))


def _abort(origin: Origin, partition: TopicPartition, start_offset: Offset, **flags: str) -> str:
    return _change(origin, "abort", _flags_at(partition, start_offset) | flags)


def _change(origin: Origin, verb: str, flags: Mapping[str, str]) -> str:
    """With the flags for the run's events, so that the change is published there."""
    return _command(origin, verb, **flags, **_flags_of_events(origin))


def _flags_of_events(origin: Origin) -> dict[str, str]:
    return {name: value for name, value in asdict(origin.events).items() if value is not None}


def _flags_at(partition: TopicPartition, start_offset: Offset) -> dict[str, str]:
    return {"topic": partition.topic, "partition": str(partition.partition), "start_offset": str(start_offset)}


def _flags_of(identity: ProducerIdentity) -> dict[str, str]:
    return {"producer_id": str(identity.producer_id), "producer_epoch": str(identity.producer_epoch)}


def _command(origin: Origin, verb: str, **flags: str) -> str:
    connection = {"bootstrap_server": origin.bootstrap_servers}
    if origin.command_config is not None:
        connection["command_config"] = origin.command_config
    arguments = ["txnwatch", verb]
    for name, value in {**flags, **connection}.items():
        arguments += _flag(name.replace("_", "-"), value)
    return shell_line(arguments)


def _flag(name: str, value: str) -> list[str]:
    return [f"--{name}={value}"] if value.startswith("-") else [f"--{name}", value]


def span_event(
    origin: Origin,
    candidate: SpanCandidate,
    found: SpanConfirmation,
    cleanup_policy: str | None,
    now_ms: TimestampMs,
    outcome: Outcome | None = None,
    first_look: ListedAt = NOT_LISTED,
) -> IncidentEvent:
    """The event that opens an incident about a confirmed span; `outcome` is what is known of it, by all reads."""
    reading, producer = _read(found)
    view, description, span = candidate.view, found.description, candidate.span
    outcome = outcome or known_outcome(candidate, found)
    event = IncidentEvent(
        incident_id=_span_id(origin, reading.topic_id, candidate, producer.start_offset),
        sequence=1,
        status=IncidentStatus.OPENED,
        verdict=candidate.verdict,
        reason=found.reason,
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
        evidence=_span_evidence(origin, candidate, found, now_ms, first_look),
        expected_outcome=outcome.outcome,
        suggested_command=_command_about(origin, candidate, producer, description, outcome.outcome),
        detected_at_ms=now_ms,
        detection_latency_ms=elapsed(_unowned_since_ms(candidate), now_ms),
        time_ms=now_ms,
    )
    return blocked_reads(reading, producer.start_offset).added_to(with_outcome(event, outcome))


def _unowned_since_ms(candidate: SpanCandidate) -> TimestampMs:
    """Since when the log shows that no live transaction owns the span."""
    view, seen_ms = candidate.view, candidate.span.first_seen_ms
    return seen_ms if view is None or view.is_live else max(seen_ms, view.record_timestamp_ms)


def _command_about(
    origin: Origin,
    candidate: SpanCandidate,
    producer: ActiveProducer,
    description: DescribedTransaction | None,
    outcome: ExpectedOutcome,
) -> str:
    if not RULE_OF[candidate.verdict].needs_marker:
        return explain_partition(origin, candidate.partition)
    written_by = ProducerIdentity(candidate.producer_id, producer.producer_epoch)
    data = HangingData(candidate.partition, producer.start_offset, written_by, outcome)
    return end_hanging(origin, data, description)


def transaction_event(
    origin: Origin, candidate: TransactionCandidate, found: TransactionConfirmation, now_ms: TimestampMs
) -> IncidentEvent:
    """The event that opens an incident about a transaction the coordinator still has."""
    view, description = candidate.view, found.description
    assert description is not None
    assert description.producer_epoch is not None  # the transaction is live
    stuck = RULE_OF[candidate.verdict].family is Family.PREPARE
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
        suggested_command=explain_id(origin, view.transactional_id),
        detected_at_ms=now_ms,
        detection_latency_ms=max(NO_TIME, candidate.overdue_ms + (now_ms - candidate.coordinator_listed_ms)),
        time_ms=now_ms,
    )


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
    return IncidentEvent(
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
        suggested_command=explain_partition(origin, stray.partition),
        detected_at_ms=now_ms,
        detection_latency_ms=elapsed(stray.first_seen_ms, now_ms),
        time_ms=now_ms,
    )


def _read(found: SpanConfirmation) -> tuple[PartitionReading, ActiveProducer]:
    """What the fresh read of a confirmed span has read."""
    assert found.reading is not None
    assert found.producer is not None
    return found.reading, found.producer


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
    origin: Origin, candidate: SpanCandidate, found: SpanConfirmation, now_ms: TimestampMs, first_look: ListedAt
) -> Evidence:
    reading, producer = _read(found)
    return replace(
        _coordinators(origin, candidate.view, found.description),
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
