"""What an event says: its values, from what confirmed candidates prove, and the next command for an operator.

All fields come from evidence. No I/O, no clock; no decision about an incident.

Law: no decision reads what `named` adds. An owner is found by the table of this process: of an event of another writer,
the owner in it is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from typing import Final, NamedTuple

import msgspec

from txnwatch.state.abort.fencing import ProducerIdentity, may_begin_again
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
    start_of,
    transaction_incident_id,
)
from txnwatch.state.model.ownership import FLINK, NO_OWNERS, Advice, IdMaker, OwnerLookup, Subject
from txnwatch.state.model.ports import ActiveProducer, PartitionReading
from txnwatch.state.model.transaction import CoordinatorView, DescribedTransaction, TransactionState, TransactionView
from txnwatch.state.model.values import (
    NO_BARRIER,
    NO_TIME,
    BarrierNumber,
    CoordinatorAccess,
    Offset,
    PartitionOffset,
    TimestampMs,
    TopicPartition,
    elapsed,
    is_topic_name,
)
from txnwatch.state.model.verdicts import RULE_OF, Family, Verdict
from txnwatch.state.text import shell_line

# What an event needs besides evidence: what all events of one run share, and the times of a barrier.


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
    the table of owners; `instance` is the name of the watch, None for a command.
    """

    cluster_id: str
    bootstrap_servers: str
    command_config: str | None = None
    events: EventsFlags = field(default_factory=EventsFlags)
    coordinator_view: CoordinatorAccess = CoordinatorAccess.LOG
    owners: OwnerLookup = NO_OWNERS
    instance: str | None = None


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
    data = HangingData(PartitionOffset(candidate.partition, producer.start_offset), written_by, outcome)
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


# The next command, with the connection settings of the run that suggests it.

_OUTCOMES = frozenset({ExpectedOutcome.ABORT, ExpectedOutcome.COMMIT, ExpectedOutcome.NONE})


def explain_partition(origin: Origin, partition: TopicPartition) -> str:
    """The command that explains what holds the partition."""
    return _command(origin, "explain", topic=partition.topic, partition=str(partition.partition))


def describe_producers(origin: Origin, partition: TopicPartition) -> str:
    """The command that lists the producers of the partition, with what each has open."""
    return _command(origin, "describe-producers", topic=partition.topic, partition=str(partition.partition))


def explain_id(origin: Origin, transactional_id: str) -> str:
    """The command that explains what the transactional id is doing."""
    return _command(origin, "explain", transactional_id=transactional_id)


def read_events(origin: Origin, incident_id: str) -> str:
    """The command that reads the events of an incident from the events topic."""
    events = {name: value for name, value in _flags_of_events(origin).items() if name != "events_format"}
    return _command(origin, "events", incident=incident_id, **events)


def rehearse_abort(origin: Origin, place: PartitionOffset) -> str:
    """The command that shows what an abort would do, without the abort."""
    return f"{_abort(origin, place)} --dry-run"


class HangingData(NamedTuple):
    """A transaction that hangs: where it begins, who wrote it, and how it would have ended."""

    place: PartitionOffset
    written_by: ProducerIdentity
    expected_outcome: str


def data_of(incident: IncidentEvent) -> HangingData:
    """The data of an incident about a hanging transaction."""
    written_by = ProducerIdentity(incident.producer_id, incident.producer_epoch)
    return HangingData(start_of(incident).place, written_by, incident.expected_outcome)


def end_hanging(origin: Origin, data: HangingData, owner: DescribedTransaction | None) -> str:
    """The command that writes the missing marker; if its kind is unknown, the command that explains the partition.

    `owner` is the id that has the producer id. An abort is refused while it may begin a transaction under the epoch of
    the data, so the fence comes first.
    """
    if data.expected_outcome == ExpectedOutcome.UNKNOWN:
        return explain_partition(origin, data.place.partition)
    result = {"result": ExpectedOutcome.COMMIT} if data.expected_outcome == ExpectedOutcome.COMMIT else {}
    abort = _abort(origin, data.place, **result)
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
    return end_hanging(origin, HangingData(PartitionOffset(partition, start), written_by, event.expected_outcome), None)


def fence(origin: Origin, transactional_id: str, identity: ProducerIdentity) -> str:
    """The command that fences the client of a transactional id, if it still has this producer id and epoch."""
    return _change(origin, "fence", {"transactional_id": transactional_id, **_flags_of(identity)})


def fence_owner(origin: Origin, transactional_id: str, data: HangingData) -> str:
    """The same, and only while its data hangs: a marker that came late has made the fence unnecessary."""
    owner = {"transactional_id": transactional_id, **_flags_of(data.written_by)}
    return _change(origin, "fence", owner | _flags_at(data.place))


def _abort(origin: Origin, place: PartitionOffset, **flags: str) -> str:
    return _change(origin, "abort", _flags_at(place) | flags)


def _change(origin: Origin, verb: str, flags: Mapping[str, str]) -> str:
    """With the flags for the run's events, so that the change is published there."""
    return _command(origin, verb, **flags, **_flags_of_events(origin))


def _flags_of_events(origin: Origin) -> dict[str, str]:
    return {name: value for name, value in asdict(origin.events).items() if value is not None}


def _flags_at(place: PartitionOffset) -> dict[str, str]:
    (topic, partition), start_offset = place
    return {"topic": topic, "partition": str(partition), "start_offset": str(start_offset)}


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


# The owner of a transaction, what has made its transactional id, and what to know before it is ended.


def named(event: IncidentEvent, owners: OwnerLookup) -> IncidentEvent:
    """The event with the owner of its transaction."""
    owner, application = owners.of(subject_of(event))
    return replace(event, owner=owner, application=application, advice=_advice(event, application))


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
    return (TopicPartition.parse(one).topic for one in partitions)


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
    pending, groups, waiting, participants = fits = tuple(_first(one) for one in lists)
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
