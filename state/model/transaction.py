"""The two views of a transaction, as immutable values.

`Span` is the partition's view: transactional data of one producer on one partition that no marker has closed.
`CoordinatorView` is the coordinator's: the latest record of `__transaction_state` that concerns a producer id.
`ProducerState` holds both for one producer id, and what has been said about it. Nothing here decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from txnwatch.state.model.ids import TopicPartition


class TransactionState(StrEnum):
    """Transaction states with Kafka's spelling (class `TransactionState`); 6 and 7 never reach the log."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @classmethod
    def from_id(cls, state_id: int) -> TransactionState:
        """The state with Kafka's numeric id.

        Raises:
            ValueError: no state has that id.
        """
        if not 0 <= state_id < len(_BY_ID):
            raise ValueError(f"no transaction state has the id {state_id}")
        return _BY_ID[state_id]

    @property
    def id(self) -> int:
        """Kafka's numeric id of the state."""
        return _BY_ID.index(self)

    @property
    def is_live(self) -> bool:
        """Ongoing or Prepare*: the coordinator still has markers to write for its participants."""
        return self in _LIVE

    @property
    def is_prepare(self) -> bool:
        """Prepare*: the outcome is decided, markers are outstanding."""
        return self in _PREPARE

    @property
    def outcome(self) -> str | None:
        """`commit` or `abort` where the state decides it, else None."""
        return _OUTCOME.get(self)


_BY_ID = tuple(TransactionState)
_LIVE = frozenset({TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
_PREPARE = _LIVE - {TransactionState.ONGOING}
_OUTCOME = {
    TransactionState.PREPARE_COMMIT: "commit",
    TransactionState.COMPLETE_COMMIT: "commit",
    TransactionState.PREPARE_ABORT: "abort",
    TransactionState.COMPLETE_ABORT: "abort",
}


@dataclass(frozen=True, slots=True)
class Marker:
    """A control record that ended a transaction on a partition."""

    offset: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    timestamp_ms: int

    @property
    def outcome(self) -> str:
        """`commit` or `abort`."""
        return "commit" if self.commit else "abort"


UNREAD = -1  # an epoch that nobody has read


@dataclass(frozen=True, slots=True)
class Said:
    """How often and until when something was said: candidates repeat with growing pauses until they end."""

    times: int
    next_ms: int


@dataclass(frozen=True, slots=True)
class Span:
    """Transactional data of one producer on one partition that no marker has closed.

    Attributes:
        topic_id: the topic's id in Kafka's notation; a re-created topic has another one.
        start_offset: first offset of the open data (an upper bound if the beginning was not read).
        start_epoch, epoch: producer epoch of the first and of the last batch; they differ where a later
            transaction of the same producer has joined open data (facts: an epoch bump closes nothing). The first
            is UNREAD where nobody has read that batch: a census does not tell it.
        last_offset, last_timestamp_ms: of the last batch read; the timestamp is the client's clock.
        first_seen_ms: our clock when the ends of the batch were listed that first showed the span; what a census shows
            may have begun up to that batch's reading later.
        eligible_from: first barrier that may count as a look at it. What the log shows in batch k counts at
            barrier k; what a census shows while batch k is read counts at k + 1, because T(k) is older.
        uncovered_at: barrier of the first look that found no live transaction holding it, else None.
        by_census: only what a census shows is known of the span: its partition is not scanned, or not so far yet.
        is_ahead: the latter; reading will come to where it begins.
        seen_at: batch of the last census that was all there is to read, and saw it.
        reseen_at: batch of the first such one that did after `uncovered_at`.
        absent_at: batch of the first census whose leader no longer had it open, else None.
        over_at: batch of the census from which it has surely ended.
        stray: it was proven that no transaction owned the data.
        absorbed: it was, and a later transaction of the producer covers it now, whose marker will close it.
        said: when it was said, if it was.
    """

    topic_id: str
    start_offset: int
    start_epoch: int
    epoch: int
    last_offset: int
    last_timestamp_ms: int
    first_seen_ms: int
    eligible_from: int
    uncovered_at: int | None = None
    by_census: bool = False
    is_ahead: bool = False
    seen_at: int = -1
    reseen_at: int | None = None
    absent_at: int | None = None
    over_at: int | None = None
    stray: bool = False
    absorbed: bool = False
    said: Said | None = None

    @property
    def oldest_epoch(self) -> int:
        """The lowest epoch that its data is known to have."""
        return self.start_epoch if self.start_epoch != UNREAD else self.epoch


class EpochUse(StrEnum):
    """Whether only the transaction in view can have written data of its epoch; lineage.py says how that is known."""

    UNJUDGED = ""  # no record before it in the range it was read in
    FIRST = "first"  # the first one since InitProducerId handed the epoch out
    RAISED = "raised"  # the end of the one before had raised the epoch
    SHARED = "shared"  # others may have had it, or that is not known


ITS_OWN = frozenset({EpochUse.FIRST, EpochUse.RAISED})
UNKNOWN_PAST = "unknown"


@dataclass(frozen=True, slots=True)
class CoordinatorView:
    """The latest coordinator record that concerns a producer id; times are the broker's clock.

    Attributes:
        participants: the partitions of the current transaction, or, once it is complete, the last set it held
            (the Complete* record itself has forgotten it).
        superseded_by: the producer id the transactional id has moved on to, or -1.
        reading: which reading of its log partition showed the record; a log that lost its tail is read anew, and
            then a record may be news though it stands below what was read before.
        data_epoch: the epoch the data of the transaction in view carries, -1 where its beginning was not read; past
            an InitProducerId, that of the last transaction.
        epoch_use: whether another transaction may have written data of that epoch.
        coordinator_epoch: the leader epoch the record was appended under; it rises with every failover.
        since_ms: our clock when the end was listed that first showed the transaction in this state.
        past_outcome: past an InitProducerId, how the last transaction ended, if only that one can have written data of
            `data_epoch`: commit, abort, or UNKNOWN_PAST where that is not so; "" while nobody has judged it.
        past_end_epoch: the producer epoch of that end, and so of its markers.
        may_have_gone_on: whether later records may have been there and are lost; only who reads the log once, and
            has not followed it, cannot tell.
    """

    transactional_id: str
    log_partition: int
    log_offset: int
    state: TransactionState
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    last_update_ms: int
    record_timestamp_ms: int
    participants: frozenset[TopicPartition] = frozenset()
    superseded_by: int = -1
    reading: int = 0
    data_epoch: int = -1
    epoch_use: EpochUse = EpochUse.UNJUDGED
    coordinator_epoch: int = -1
    since_ms: int = -1
    past_outcome: str = ""
    past_end_epoch: int = -1
    may_have_gone_on: bool = False

    @property
    def is_live(self) -> bool:
        """Whether the coordinator still owes this producer id markers."""
        return self.state.is_live and self.superseded_by < 0

    def holds(self, partition: TopicPartition) -> bool:
        """Whether a live transaction of the producer has the partition: then its marker will come."""
        return self.is_live and partition in self.participants


COVER = "cover"


@dataclass(frozen=True, slots=True)
class ProducerState:
    """All that is known about one producer id.

    `said` is keyed by time-based verdict, and by COVER for its hold on spans; spans carry their own.
    """

    producer_id: int
    spans: dict[TopicPartition, Span] = field(default_factory=dict)
    view: CoordinatorView | None = None
    said: dict[str, Said] = field(default_factory=dict)

    @property
    def is_awaited(self) -> bool:
        """Whether anything is open or live: only such producers are looked at when a barrier comes."""
        return bool(self.spans) or (self.view is not None and self.view.is_live)
