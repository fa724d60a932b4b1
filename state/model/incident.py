"""The events of an incident: their fields and values, the ids of incidents, and the next event of one.

Ids and sequences are deterministic: a replayed micro-batch creates the same events again, and a consumer that
deduplicates by `ce_id` sees each event once. The id of an incident about a span hashes cluster, topic id, partition,
producer id and the start offset that DescribeProducers confirmed. It leaves out the epoch, which may change inside one
span. The id of an incident about a transaction hashes cluster, transactional id, producer id, start time and family. An
id never changes after the incident is opened.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

from txnwatch.state.model.ownership import Advice, IdMaker, OwningTeam
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import (
    BarrierNumber,
    BrokerId,
    CoordinatorAccess,
    CoordinatorEpoch,
    DurationMs,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    SpanStart,
    TimestampMs,
    TopicPartition,
    elapsed,
)
from txnwatch.state.model.verdicts import RULE_OF, Reason, Severity, Verdict

# The parts of an incident event, and the closed sets of their values; the event follows below.
#
# The field names and the values are the public contract. `sinks/delivery/incident_event.avsc` documents every field.


class IncidentStatus(StrEnum):
    """What an event reports about its incident."""

    OPENED = "opened"
    UPDATED = "updated"
    RESOLVED = "resolved"


class SinceClock(StrEnum):
    """The clock of `open_since_ms`."""

    COORDINATOR = "coordinator"
    OBSERVED = "observed"


class ExpectedOutcome(StrEnum):
    """How a hanging transaction would have ended; NONE: no transaction ever owned the data."""

    COMMIT = "commit"
    ABORT = "abort"
    NONE = "none"
    UNKNOWN = "unknown"


class OutcomeDoubt(StrEnum):
    """Why an expected outcome is unknown; state/evidence/outcome.py has the texts."""

    NOT_FOUND_HERE = "not_found_here"
    NO_RECORD = "no_record"
    ID_EXPIRED = "id_expired"
    ONGOING_MOVED = "ongoing_moved"
    RECORDS_MOVED = "records_moved"
    PRODUCER_ID_SUPERSEDED = "producer_id_superseded"
    TRANSACTION_LIVE = "transaction_live"
    LOG_NOT_LISTED = "log_not_listed"
    LOG_ELECTION = "log_election"
    LEADER_NOT_WATCHED = "leader_not_watched"
    BEGAN_BEFORE_ELECTION = "began_before_election"
    EPOCH_SHARED = "epoch_shared"
    NOT_A_PARTICIPANT = "not_a_participant"
    DATA_MIXED = "data_mixed"
    MARKER_UNKNOWN = "marker_unknown"
    COORDINATOR_MOVED_ON = "coordinator_moved_on"
    NOT_READ = "not_read"
    WRITTEN_MEANWHILE = "written_meanwhile"
    LISTING_AWAITED = "listing_awaited"
    WRITTEN_SINCE = "written_since"
    BEGUN_SINCE = "begun_since"
    CONTRADICTION = "contradiction"


class GroupState(StrEnum):
    """How an open transaction affects a consumer group."""

    STOPPED = "stopped"
    AT_RISK = "at_risk"


class ConnectSetting(StrEnum):
    """The setting of Kafka Connect's workers that names one of their internal topics."""

    OFFSETS = "offset.storage.topic"
    CONFIGS = "config.storage.topic"
    STATUS = "status.storage.topic"


class Decision(StrEnum):
    """A decision about the marker of a hanging transaction; FENCE is the fence of its transactional id before it."""

    ABORT = "abort"
    COMMIT = "commit"
    DRY_RUN = "dry_run"
    REFUSED = "refused"
    FENCE = "fence"


class Refusal(StrEnum):
    """Why no marker is written."""

    NOT_PROVEN_HERE = "not_proven_here"
    OUTCOME_WAS_COMMIT = "outcome_was_commit"
    OUTCOME_UNKNOWN = "outcome_unknown"
    COMMIT_NOT_PROVEN = "commit_not_proven"
    TOPIC_DENIED = "topic_denied"
    TRANSACTIONAL_ID_DENIED = "transactional_id_denied"
    TOO_EARLY = "too_early"
    BREAKER_OPEN = "breaker_open"
    BUDGET_EXHAUSTED = "budget_exhausted"
    EVIDENCE_INCOMPLETE = "evidence_incomplete"
    STILL_OWNED = "still_owned"
    ALREADY_OVER = "already_over"
    CHANGED_SINCE_OPENED = "changed_since_opened"
    EPOCH_MAY_BE_REUSED = "epoch_may_be_reused"
    NOT_AUTHORIZED = "not_authorized"


class ActionResult(StrEnum):
    """The result of a marker, from a read after it."""

    VERIFIED = "verified"
    STILL_OPEN = "still_open"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Initiator(StrEnum):
    """What made a decision: a running watch, or an operator with `txnwatch abort`."""

    WATCH = "watch"
    OPERATOR = "operator"


class EndKind(StrEnum):
    """How an incident ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    ABSORBED = "absorbed"
    MOVED_ON = "moved_on"
    PARTITION_GONE = "partition_gone"
    TRUNCATED = "truncated"
    REFUTED = "refuted"
    NO_LONGER_OPEN = "no_longer_open"
    GIVEN_UP = "given_up"


class EndedBy(StrEnum):
    """Who ended a transaction; UNKNOWN if the evidence does not show it."""

    TXNWATCH = "txnwatch"
    CLIENT = "client"
    COORDINATOR = "coordinator"
    ADMINISTRATOR = "administrator"
    NEXT_TRANSACTION = "next_transaction"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedGroup:
    """A consumer group that is affected if it reads the blocked partition with read_committed.

    `committed_offset` is None for a group that is assigned the partition and has committed nothing of it.
    """

    group_id: str
    state: GroupState
    committed_offset: Offset | None = None
    hidden_lag: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingGroup:
    """A consumer group whose committed offsets of some partitions are pending in the open transaction."""

    group_id: str
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectUse:
    """An internal topic of Kafka Connect, known by its name; `group_id` is the group of its workers, if it is known."""

    topic: str
    setting: ConnectSetting
    group_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The readings of the partition and of the coordinator, with the place and time of each."""

    complete: bool
    first_barrier: BarrierNumber | None = None
    second_barrier: BarrierNumber | None = None
    first_data_listed_ms: TimestampMs | None = None
    first_coordinator_listed_ms: TimestampMs | None = None
    data_listed_ms: TimestampMs | None = None
    coordinator_listed_ms: TimestampMs | None = None
    confirmed_ms: TimestampMs | None = None
    leader: BrokerId | None = None
    leader_epoch: LeaderEpoch | None = None
    end_before: Offset | None = None
    end_after: Offset | None = None
    last_sequence: int | None = None
    coordinator_producer_id: ProducerId | None = None
    coordinator_producer_epoch: ProducerEpoch | None = None
    coordinator_partitions: tuple[str, ...] = ()
    joined_at_offset: Offset | None = None
    joined_by_epoch: ProducerEpoch | None = None
    coordinator_log: str | None = None
    coordinator_view: CoordinatorAccess = CoordinatorAccess.LOG


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """The decision of txnwatch about an incident, and its result; `result` is None until it is known.

    `principal` is the login of the requests as the client's own settings have it; no answer of Kafka confirms it.
    """

    decision: Decision
    refusal: Refusal | None = None
    result: ActionResult | None = None
    detail: str | None = None
    by: str
    principal: str | None = None
    marker_producer_epoch: ProducerEpoch | None = None
    marker_coordinator_epoch: CoordinatorEpoch | None = None
    last_stable_offset_before: Offset | None = None
    last_stable_offset_after: Offset | None = None
    at_ms: TimestampMs
    initiator: Initiator = Initiator.WATCH

    @property
    def is_marker(self) -> bool:
        """Whether it announces a marker, or reports the result of one."""
        return self.decision in _END_OF

    @property
    def expected_end(self) -> EndKind | None:
        """How its marker ends the transaction; None for a decision without a marker."""
        return _END_OF.get(self.decision)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """How an incident ended."""

    how: EndKind
    by: EndedBy
    marker_offset: Offset | None = None
    detail: str | None = None
    at_ms: TimestampMs


_END_OF = {Decision.ABORT: EndKind.ABORTED, Decision.COMMIT: EndKind.COMMITTED}


_ID = re.compile(r"[0-9a-f]{32}")
# An incident has few events. A record with this sequence leaves no room for another event, so it is not ours.
SPENT_SEQUENCE = 1_000_000
SpanKey = tuple[str, TopicPartition, ProducerId]  # the first is the topic id


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentEvent:
    """One event of the public contract; `sinks/delivery/incident_event.avsc` documents every field."""

    incident_id: str
    sequence: int
    status: IncidentStatus
    verdict: Verdict
    reason: Reason | None = None
    severity: Severity
    cluster_id: str
    cluster_name: str | None = None
    topic: str | None = None
    partition: int | None = None
    topic_id: str | None = None
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    transactional_id: str | None = None
    owner: OwningTeam | None = None
    application: IdMaker | None = None
    advice: Advice | None = None
    coordinator_id: BrokerId | None = None
    coordinator_epoch: CoordinatorEpoch | None = None
    transaction_state: TransactionState | None = None
    txn_start_offset: Offset | None = None
    open_since_ms: TimestampMs
    open_since_clock: SinceClock
    last_write_ms: TimestampMs | None = None
    transaction_timeout_ms: DurationMs | None = None
    age_ms: DurationMs
    overdue_ms: DurationMs | None = None
    last_stable_offset: Offset | None = None
    high_watermark: Offset | None = None
    hidden_records: int | None = None
    lso_standing_ms: DurationMs | None = None
    is_lso_blocker: bool | None = None
    cleanup_policy: str | None = None
    pending_partitions: tuple[str, ...] = ()
    consumer_groups: tuple[AffectedGroup, ...] = ()
    waiting_groups: tuple[WaitingGroup, ...] = ()
    connect: ConnectUse | None = None
    evidence: Evidence
    expected_outcome: ExpectedOutcome
    outcome_doubt: OutcomeDoubt | None = None
    outcome_detail: str | None = None
    outcome_by: str | None = None
    suggested_command: str | None = None
    detected_at_ms: TimestampMs
    detection_latency_ms: DurationMs
    time_ms: TimestampMs
    action: Action | None = None
    resolution: Resolution | None = None

    @property
    def event_id(self) -> str:
        """The CloudEvents id; the same for every delivery of the same event."""
        return f"{self.incident_id}-{self.sequence}"

    @property
    def cluster(self) -> str:
        """How the cluster is called: its name, or its id."""
        return self.cluster_name if self.cluster_name is not None else self.cluster_id

    @property
    def event_type(self) -> str:
        """The CloudEvents type."""
        return f"io.txnwatch.{self.verdict}.{self.status}.v1"

    @property
    def subject(self) -> str:
        """The CloudEvents subject: the span or the transaction of the incident."""
        if self.topic is not None:
            return f"{self.topic}/{self.partition}/{self.txn_start_offset}"
        return f"{self.transactional_id}/{self.producer_id}"

    @property
    def is_open(self) -> bool:
        """Whether the incident is still open after this event."""
        return self.status != IncidentStatus.RESOLVED

    @property
    def is_spent(self) -> bool:
        """Whether its sequence leaves no room for another event."""
        return self.sequence >= SPENT_SEQUENCE

    @property
    def span(self) -> SpanKey | None:
        """The span of the incident, None for an incident about a whole transaction."""
        if self.topic is None or self.partition is None or self.topic_id is None:
            return None
        return self.topic_id, TopicPartition(self.topic, self.partition), self.producer_id

    @property
    def is_by_hand(self) -> bool:
        """Whether this is the incident of an abort by hand, beside the incident of a watch about the same span.

        This requires the id of such an abort, so no event can turn the incident of a watch into one by hand.
        """
        if self.action is None or self.action.initiator is not Initiator.OPERATOR:
            return False
        first = self.first_id
        return first is not None and self.incident_id == repeat_incident_id(first, self.action.at_ms)

    @property
    def first_id(self) -> str | None:
        """The id of the first incident about this span; None for an incident about a whole transaction."""
        if self.span is None or self.txn_start_offset is None:
            return None
        topic_id, partition, producer_id = self.span
        return span_incident_id(self.cluster_id, topic_id, partition.partition, producer_id, self.txn_start_offset)


def partition_of(incident: IncidentEvent) -> TopicPartition:
    """The partition of an incident about a span."""
    assert incident.topic is not None
    assert incident.partition is not None
    return TopicPartition(incident.topic, incident.partition)


def start_of(incident: IncidentEvent) -> SpanStart:
    """What identifies the open data of an incident about a span."""
    assert incident.txn_start_offset is not None
    return SpanStart(partition_of(incident), incident.producer_id, incident.txn_start_offset)


class Overwritten(NamedTuple):
    """A record under an incident's key that is not an event; it replaces the event before it in the compacted topic.

    Without an id, each event is gone: the topic was deleted and created again.
    """

    incident_id: str | None


def span_incident_id(
    cluster_id: str, topic_id: str, partition: int, producer_id: ProducerId, start_offset: Offset
) -> str:
    """The id of an incident about a span."""
    return _hash("span", cluster_id, topic_id, partition, producer_id, start_offset)


def is_incident_id(text: str) -> bool:
    """Whether the text has the form of an incident id, as `_hash` returns it."""
    return _ID.fullmatch(text) is not None


def repeat_incident_id(incident_id: str, times: int) -> str:
    """The id of another incident about the same span.

    `times` is how often the incident was resolved before the span hung again; for an abort by hand it is the time of
    its announcement (`at_ms`).
    """
    return _hash("again", incident_id, times)


def transaction_incident_id(
    cluster_id: str, transactional_id: str, producer_id: ProducerId, start_ms: TimestampMs | None, verdict: Verdict
) -> str:
    """The id of an incident about a transaction; long_running and late are one family and share one incident."""
    return _hash(RULE_OF[verdict].family, cluster_id, transactional_id, producer_id, start_ms)


def _hash(*parts: object) -> str:
    return hashlib.sha256("\x1f".join(str(part) for part in parts).encode()).hexdigest()[:32]


class LatestEvents:
    """The latest event of each incident, by cluster and incident id.

    Events come in the order of the events topic. Of two events with the same sequence the first counts, because a
    consumer that deduplicates by `ce_id` drops the second. A spent event counts only as the end of a known incident: a
    watch may have had no lower sequence left for it. An event never affects an incident of another cluster.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], IncidentEvent] = {}

    def take(self, event: IncidentEvent) -> bool:
        """Takes the next event; returns whether it is now the latest one of its incident."""
        key = event.cluster_id, event.incident_id
        last = self.known.get(key)
        if event.is_spent and (event.is_open or last is None):
            return False
        if last is not None and last.sequence >= event.sequence:
            return False
        self.known.pop(key, None)
        self.known[key] = event
        return True


def latest(events: Iterable[IncidentEvent]) -> dict[tuple[str, str], IncidentEvent]:
    """The latest event of each incident, in the order of the events topic; see LatestEvents."""
    by_incident = LatestEvents()
    for event in events:
        by_incident.take(event)
    return by_incident.known


class PublishedEvents(NamedTuple):
    """The last event of each incident on the events topic, where anybody may have written it; and what was not read."""

    events: tuple[IncidentEvent, ...] = ()
    problem: str | None = None


def resolved(event: IncidentEvent, now_ms: TimestampMs, resolution: Resolution) -> IncidentEvent:
    """The event that ends an incident; it also sets the result of an announced marker that has no result yet.

    Only such a marker in the log makes the result `verified`: a transaction can end without one, because its topic is
    gone.
    """
    action = event.action
    if action is not None and action.result is None and action.is_marker:
        is_there = resolution.how is action.expected_end
        result = ActionResult.VERIFIED if is_there else ActionResult.UNKNOWN
        action = replace(action, result=result, detail="from the incident's end")
    ended = replace(event, resolution=resolution, suggested_command=None, action=action)
    return _next(ended, IncidentStatus.RESOLVED, now_ms)


def updated(changed: IncidentEvent, now_ms: TimestampMs) -> IncidentEvent:
    """The event that reports a change; `changed` is the last event with the new values."""
    return _next(changed, IncidentStatus.UPDATED, now_ms)


def _next(event: IncidentEvent, status: IncidentStatus, now_ms: TimestampMs) -> IncidentEvent:
    """The next event."""
    return replace(aged(event, now_ms), status=status, sequence=event.sequence + 1, time_ms=now_ms)


def aged(event: IncidentEvent, now_ms: TimestampMs) -> IncidentEvent:
    """The event with its age now. It grows by what has passed since: `open_since_ms` may be of another clock."""
    return replace(event, age_ms=event.age_ms + elapsed(event.time_ms, now_ms))


# How long the events topic keeps an incident that ended, and how a suggested command finds this topic.

# An incident that ended is compared with records for this time: longer than the hour of an abort's budget, and than any
# instance may be behind.
KEPT_MS: Final = DurationMs(24 * 3_600_000)
RETENTION_MS: Final = DurationMs(7 * 24 * 3_600_000)  # the default of the setting


@dataclass(frozen=True, slots=True)
class EventsFlags:
    """Where a run publishes its events, as flags; None omits the flag."""

    events_topic: str | None = None
    events_format: str | None = None
    schema_registry_url: str | None = None
    events_key_file: str | None = None
