"""The parts of an incident event, and the closed sets of their values; the event is in incident.py.

The field names and the values are the public contract. `sinks/delivery/incident_event.avsc` documents every field.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.state.model.ids import BarrierNumber, BrokerId, CoordinatorEpoch, LeaderEpoch, ProducerEpoch, ProducerId
from txnwatch.state.model.quantities import Offset, TimestampMs


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
    """Why an expected outcome is unknown; state/evidence/outcome_doubts.py has the texts."""

    NOT_FOUND_HERE = "not_found_here"
    NO_RECORD = "no_record"
    ID_EXPIRED = "id_expired"
    PRODUCER_ID_SUPERSEDED = "producer_id_superseded"
    TRANSACTION_LIVE = "transaction_live"
    LOG_NOT_LISTED = "log_not_listed"
    LOG_ELECTION = "log_election"
    BEGAN_BEFORE_ELECTION = "began_before_election"
    EPOCH_SHARED = "epoch_shared"
    NOT_A_PARTICIPANT = "not_a_participant"
    DATA_MIXED = "data_mixed"
    MARKER_UNKNOWN = "marker_unknown"
    COORDINATOR_MOVED_ON = "coordinator_moved_on"
    NOT_READ = "not_read"
    WRITTEN_MEANWHILE = "written_meanwhile"
    WRITTEN_SINCE = "written_since"
    BEGUN_SINCE = "begun_since"
    CONTRADICTION = "contradiction"


class GroupState(StrEnum):
    """How an open transaction affects a consumer group."""

    STOPPED = "stopped"
    AT_RISK = "at_risk"


class Decision(StrEnum):
    """A decision about the marker of a hanging transaction."""

    ABORT = "abort"
    COMMIT = "commit"
    DRY_RUN = "dry_run"
    REFUSED = "refused"


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
    """A consumer group that is affected if it reads the blocked partition with read_committed."""

    group_id: str
    state: GroupState
    committed_offset: Offset
    hidden_lag: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The readings of the partition and of the coordinator, with the place and time of each."""

    complete: bool
    first_barrier: BarrierNumber | None = None
    second_barrier: BarrierNumber | None = None
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
    """The decision of txnwatch about an incident, and its result; `result` is None until it is known."""

    decision: Decision
    refusal: Refusal | None = None
    result: ActionResult | None = None
    detail: str | None = None
    by: str
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
