"""The two views of a transaction, the partition's and the coordinator's, as immutable values.

`Span` is the partition's view: transactional data of one producer on one partition that no marker has closed.
`CoordinatorView` is the coordinator's view: the latest record of `__transaction_state` about a producer id.
`ProducerState` holds both for one producer id, and which candidates were emitted about it. There are no decisions in
this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from msgspec import field

from txnwatch.state.model.values import (
    NO_BARRIER,
    BarrierNumber,
    BrokerId,
    CoordinatorEpoch,
    DurationMs,
    ModelValue,
    Offset,
    Problem,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
    log_numbered,
    plain_members,
)


class ProducerIdentity(NamedTuple):
    """A producer id and an epoch of it."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch

    def __str__(self) -> str:
        return f"producer id {self.producer_id}, epoch {self.producer_epoch}"


@plain_members
class TransactionState(StrEnum):
    """Transaction states in Kafka's spelling (class `TransactionState`); states 6 and 7 are never in the log.

    Attributes:
        outcome: `commit` or `abort` if the state decides it, else None.
        is_prepare: Prepare*: the outcome is decided, and markers are still missing.
        is_complete: Complete*: every marker is written.
        is_live: Ongoing or Prepare*: the coordinator still has to write markers to the participants.
    """

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    def __init__(self, name: str) -> None:
        decided = name.removeprefix("Prepare").removeprefix("Complete").lower()
        self.outcome: str | None = decided if decided in {"commit", "abort"} else None
        self.is_complete = name.startswith("Complete")
        self.is_prepare = self.outcome is not None and not self.is_complete
        self.is_live = self.is_prepare or name == "Ongoing"

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


_BY_ID = tuple(TransactionState)
COMPLETED_AS = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class Marker(ModelValue, frozen=True):
    """A control record that ended a transaction on a partition.

    Attributes:
        offset: offset of the marker.
        producer_epoch: the producer epoch in the marker.
        commit: true for COMMIT, false for ABORT.
        coordinator_epoch: the coordinator epoch in the marker.
        timestamp_ms: timestamp of the marker.
    """

    offset: Offset
    producer_epoch: ProducerEpoch
    commit: bool
    coordinator_epoch: CoordinatorEpoch
    timestamp_ms: TimestampMs

    @property
    def outcome(self) -> str:
        """`commit` or `abort`."""
        return "commit" if self.commit else "abort"


class ClosingMarker(NamedTuple):
    """The marker that closed open data, and the newest data that it closed, as the log of the partition shows them.

    Attributes:
        data_epoch: the highest producer epoch of the transactional data of this producer from the offset where the
            search began up to the marker. None if there is no data, or if an offset below it is missing: compaction
            may have removed a marker there.
    """

    marker: Marker
    data_epoch: ProducerEpoch | None


class Emission(ModelValue, frozen=True):
    """How often a candidate was emitted, and when it is due again; the pauses grow until it ends."""

    times: int
    next_ms: TimestampMs


class Span(ModelValue, frozen=True):
    """Transactional data of one producer on one partition that no marker has closed.

    Attributes:
        topic_id: the topic's id in Kafka's notation; a re-created topic has another one.
        start_offset: first offset of the open data (an upper bound if the beginning was not read).
        start_epoch, epoch: producer epoch of the first and of the last batch. They differ if a later transaction of the
            same producer has joined the open data (the leader closes nothing on an epoch bump). The first is None if
            its batch was not read: DescribeProducers does not return it.
        last_offset, last_timestamp_ms: of the last batch read; the timestamp is the client's clock, None if the batch
            has none.
        first_seen_ms: our clock when the ends of the batch that first showed the span were listed. A span found by a
            census may have begun later, while that batch was read.
        eligible_from: first barrier that may count as a look at the span. For data from the log in batch k this is
            barrier k. For a census taken while batch k is read it is k + 1, because T(k) is older.
        uncovered_at: barrier of the first look that found no live transaction holding the span, else None.
        by_census: the span is known only from a census: its partition is not scanned, or not read that far yet.
        is_ahead_of_scan: the second case of `by_census`; the scan will reach the start of the span.
        seen_at: batch of the last census that replaced the log and showed the span, None if there was none.
        reseen_at: batch of the first such census after `uncovered_at`.
        census_absent_at: batch of the first census in which the leader did not show the span as open, else None.
        ended_at: batch of the census from which on the span has certainly ended, else None.
        was_proven_unowned: it was proven that no transaction owned the data.
        absorbed: also, a later transaction of the producer now holds the span; its marker will close it.
        emission: set once a finding about the span was emitted; then its end is emitted too.
        began_after: the last barrier whose listed end of the partition is at or below the start, so the span began
            after that listing; NO_BARRIER if none is known.
    """

    topic_id: str
    start_offset: Offset
    start_epoch: ProducerEpoch | None
    epoch: ProducerEpoch
    last_offset: Offset
    last_timestamp_ms: TimestampMs | None
    first_seen_ms: TimestampMs
    eligible_from: BarrierNumber
    uncovered_at: BarrierNumber | None = None
    by_census: bool = False
    is_ahead_of_scan: bool = False
    seen_at: BarrierNumber | None = None
    reseen_at: BarrierNumber | None = None
    census_absent_at: BarrierNumber | None = None
    ended_at: BarrierNumber | None = None
    was_proven_unowned: bool = False
    absorbed: bool = False
    emission: Emission | None = None
    began_after: BarrierNumber = NO_BARRIER

    @property
    def oldest_epoch(self) -> ProducerEpoch:
        """The epoch of the first batch if it was read, else that of the last batch."""
        return self.start_epoch if self.start_epoch is not None else self.epoch


class SpanData(NamedTuple):
    """What identifies the data of an open span at its leader: if it is unchanged, nothing was appended.

    The last sequence alone is not enough: group coordinators write each batch of `__consumer_offsets` with the base
    sequence 0 (`AbstractRecordsBuilder`). There the timestamp changes, which is the clock of the broker.
    """

    start_offset: Offset
    producer_epoch: ProducerEpoch
    last_sequence: int | None
    last_timestamp_ms: TimestampMs | None


@plain_members
class EpochUse(StrEnum):
    """Whether only the transaction in view can have written data of its epoch; the rules are in detection/view.py."""

    UNJUDGED = ""  # its range has no earlier record of the id
    NEXT = "next"  # its range also has the end of the transaction before, but not the beginning of that one
    FIRST = "first"  # the first transaction since InitProducerId returned the epoch
    RAISED = "raised"  # the end of the transaction before raised the epoch
    SHARED = "shared"  # other transactions may have used it, or this is unknown


ITS_OWN = frozenset({EpochUse.FIRST, EpochUse.RAISED})
UNKNOWN_PREVIOUS = "unknown"


class CoordinatorView(ModelValue, frozen=True, tag="log"):
    """The latest coordinator record about a producer id; times are the broker's clock.

    Attributes:
        state: the transaction's state in Kafka's spelling, for example Ongoing.
        timeout_ms: the transaction's own timeout.
        start_ms: when the transaction began; None if none has begun since InitProducerId.
        last_update_ms: the field `lastUpdate` of the record.
        record_timestamp_ms: when the record was appended.
        participants: the partitions of the current transaction; once it is complete, its last set (the Complete* record
            does not contain it).
        superseded_by: the producer id that the transactional id uses now, None if it still uses this one.
        reading: number of the reading of its log partition that showed the record. A log that lost its tail is read
            again from its beginning; then a record can be new although its offset was passed before.
        data_epoch: the epoch of the data of the transaction in view, None if its beginning was not read; after an
            InitProducerId, that of the last transaction.
        epoch_use: first or raised if no other transaction can have written data of that epoch; shared if another may
            have; empty if this is not evaluated yet.
        coordinator_epoch: the leader epoch under which the record was appended; it rises with every failover. None
            if the view is not from the log.
        is_unseen: its log partition is read again, and the new reading has not shown the record yet.
        since_ms: our clock when the log end that first showed the transaction in this state was listed; None if no
            listing can have shown it yet.
        previous_outcome: after an InitProducerId, how the last transaction ended, if no other can have written data of
            `data_epoch`: commit, abort, or unknown if others can; None if not evaluated yet.
        previous_end_epoch: the producer epoch of that end, and so of its markers; None if it is not known.
        first_unused: after an InitProducerId, the lowest epoch such that no transaction has begun under it or under a
            later one; None if transactions may have used the epoch of the record.
        client_transaction_version: the version in the record: that of the client's request, or, if the coordinator has
            aborted by itself, that of the coordinator. From version 2 on, the end of a transaction raises the epoch.
        also_used_by: another transactional id with a record of the same producer id; None for none. A cluster that was
            restored from a backup may give out a producer id again.
        reign: the barrier since which the reign is known in which the record was appended; None if no reign is known,
            and where leader epochs show a restart (decision 0049).
    """

    transactional_id: str
    log_partition: int
    log_offset: Offset
    state: TransactionState
    producer_epoch: ProducerEpoch
    timeout_ms: DurationMs
    start_ms: TimestampMs | None
    last_update_ms: TimestampMs
    record_timestamp_ms: TimestampMs
    participants: frozenset[TopicPartition] = frozenset()
    superseded_by: ProducerId | None = None
    reading: int = 0
    data_epoch: ProducerEpoch | None = None
    epoch_use: EpochUse = EpochUse.UNJUDGED
    coordinator_epoch: CoordinatorEpoch | None = None
    is_unseen: bool = False
    since_ms: TimestampMs | None = None
    previous_outcome: str | None = None
    previous_end_epoch: ProducerEpoch | None = None
    first_unused: ProducerEpoch | None = None
    also_used_by: str | None = None
    client_transaction_version: int = 0
    reign: BarrierNumber | None = None

    @property
    def log(self) -> TopicPartition:
        """Its log partition; `log_partition` has the number alone, as events and the stored state have it."""
        return log_numbered(self.log_partition)

    @property
    def is_live(self) -> bool:
        """Whether the coordinator still has to write markers for this producer id."""
        return self.state.is_live and self.superseded_by is None

    def holds(self, partition: TopicPartition) -> bool:
        """Whether the partition is a participant of a live transaction of the producer; then its marker will come."""
        return self.is_live and partition in self.participants


class LossProof(StrEnum):
    """What shows that the leader of a log partition has lost no record of an owner (decision 0049)."""

    EPOCH = "epoch"  # a leader that has restarted has another leader epoch
    CONNECTION = "connection"  # from before the data to this barrier, the connection to the leader was not interrupted
    NOTHING = "nothing"  # it may have restarted, and have the same leader epoch


class Witness(ModelValue, frozen=True):
    """What the coordinators' log showed about the owner of a span at one barrier, and which losses this excludes.

    Attributes:
        view: the latest record of the producer id.
        log_epoch: the leader epoch under which the end of the view's log partition was listed; None if it is not known.
        is_begun_under_it: whether the watcher has seen that the span began after the log partition had this leader.
        proof: what shows that this leader has lost nothing.
    """

    view: CoordinatorView
    log_epoch: CoordinatorEpoch | None = None
    is_begun_under_it: bool = False
    proof: LossProof = LossProof.EPOCH


COVER = "cover"


class ProducerState(ModelValue, frozen=True):
    """All that is known about one producer id.

    `emissions` has one entry per emitted time-based verdict, and one under COVER for questions to the coordinator about
    its spans. Each span has its own `emission`.

    `begun` is the Ongoing record of a transaction with a verdict about Ongoing, while the log shows Prepare*. This is
    not final, so the verdict has not ended.

    `is_listable` is whether it had a right to a place in the open list when it was last evaluated.
    """

    producer_id: ProducerId
    spans: dict[TopicPartition, Span] = field(default_factory=dict)
    view: CoordinatorView | None = None
    emissions: dict[str, Emission] = field(default_factory=dict)
    begun: CoordinatorView | None = None
    is_listable: bool = False

    @property
    def is_awaited(self) -> bool:
        """Whether a span is open or a transaction is live; a barrier evaluates only such producers."""
        return bool(self.spans) or (self.view is not None and self.view.is_live)


# The answer to DescribeTransactions about one transactional id: three cases, each with the fields that it has.


class DescribedTransaction(ModelValue, frozen=True, tag="described"):
    """A transactional id as its coordinator describes it.

    Attributes:
        producer_epoch: None before the first InitProducerId of the id is complete; a live transaction has one.
        start_ms: when the transaction began, by the coordinator's clock; None if none has begun since InitProducerId.
        partitions: the participants; in Prepare*, those whose marker is still missing.
        coordinator: the broker that answered.
    """

    transactional_id: str
    coordinator: BrokerId
    state: TransactionState
    producer_id: ProducerId
    producer_epoch: ProducerEpoch | None
    timeout_ms: DurationMs
    start_ms: TimestampMs | None = None
    partitions: frozenset[TopicPartition] = frozenset()

    @property
    def is_live(self) -> bool:
        """Whether the coordinator still has to write markers; this is also true while it fences a transaction."""
        return self.state.is_live or self.state is TransactionState.PREPARE_EPOCH_FENCE

    @property
    def is_ending(self) -> bool:
        """Whether the end of its transaction is decided, and markers may still have to be written."""
        return self.is_live and self.state is not TransactionState.ONGOING


@dataclass(frozen=True, slots=True)
class UnknownTransactionalId:
    """A transactional id that its coordinator does not know: it never existed, or it expired."""

    transactional_id: str
    coordinator: BrokerId


@dataclass(frozen=True, slots=True)
class NotDescribed:
    """A transactional id that could not be described, and why."""

    transactional_id: str
    problem: Problem


TransactionDescription = DescribedTransaction | UnknownTransactionalId | NotDescribed
# What the rules about the age of a transaction take: a record of the log, or the answer of the coordinator.
TransactionView = CoordinatorView | DescribedTransaction


def epoch_text(epoch: ProducerEpoch | None) -> str:
    """The producer epoch of an id, for people."""
    return "no epoch yet" if epoch is None else f"epoch {epoch}"
