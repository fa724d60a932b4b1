"""Findings: what state/detection emits at a barrier. The ledger decides which of them become events."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from txnwatch.state.model.clocks import Clock
from txnwatch.state.model.completion_latency import Latencies
from txnwatch.state.model.facts import DataRead, Joined, PartitionNotice, TransactionEnd
from txnwatch.state.model.transaction import CoordinatorView, LossProof, Marker, Span, TransactionView, Witness
from txnwatch.state.model.values import (
    BarrierNumber,
    BrokerId,
    CoordinatorEpoch,
    DurationMs,
    Gap,
    Offset,
    PartitionOffset,
    ProducerId,
    SpanStart,
    TimestampMs,
    TopicPartition,
    Variant,
)
from txnwatch.state.model.verdicts import Verdict


class SpanEnd(StrEnum):
    """How a span with an emitted finding ended."""

    MARKER = "marker"
    ABSORBED = "absorbed"  # by the marker of a later transaction of the same producer
    TRUNCATED = "truncated"
    CENSUS = "census"  # the leader has nothing open there any more; the marker was not read
    PARTITION_GONE = "partition_gone"
    NOT_LISTED = "not_listed"  # a round of the census does not have its partition: it is deleted, or hidden


class SpanCandidate(Variant, frozen=True):
    """A span that two barriers prove to be hanging; a fresh read confirms it before an event is sent.

    Inside CoverInDoubt and OwnerInDoubt, and with the verdict `late`, the barriers prove nothing about an owner.

    `first_barrier` found it uncovered, `second_barrier` found it still open and uncovered. `log_epoch`,
    `is_begun_under_it` and `proof` are as in Witness, at `second_barrier`. `is_log_read`: every partition of the
    coordinators' log was read to a listed end once, so a producer id that the log names has no other owner.
    """

    verdict: Verdict
    producer_id: ProducerId
    partition: TopicPartition
    span: Span
    view: CoordinatorView | None
    first_barrier: BarrierNumber
    second_barrier: BarrierNumber
    data_listed_ms: TimestampMs
    coordinator_listed_ms: TimestampMs
    log_epoch: CoordinatorEpoch | None = None
    is_begun_under_it: bool = False
    is_log_read: bool = False
    proof: LossProof = LossProof.EPOCH

    @property
    def start(self) -> SpanStart:
        """What identifies the span."""
        return SpanStart(self.partition, self.producer_id, self.span.start_offset)

    @property
    def witness(self) -> Witness | None:
        """What the log showed about the owner; None if it named none."""
        if self.view is None:
            return None
        return Witness(self.view, self.log_epoch, self.is_begun_under_it, self.proof)


class CoverInDoubt(Variant, frozen=True):
    """A span held by a transaction that is too old: if its coordinator does not confirm this, two looks must."""

    candidate: SpanCandidate


class OwnerInDoubt(Variant, frozen=True):
    """Open data whose owner only an unread part of the log may name: the coordinators are asked, in two looks."""

    candidate: SpanCandidate


class TransactionCandidate(Variant, frozen=True):
    """A live transaction that violates a time-based rule.

    `age_ms` is the minimum time in its state (broker_clocks.py); `overdue_ms` is the part of it above the threshold.
    """

    verdict: Verdict
    producer_id: ProducerId
    view: TransactionView
    overdue_ms: DurationMs
    barrier: BarrierNumber
    coordinator_listed_ms: TimestampMs
    age_ms: DurationMs


class SpanEnded(Variant, frozen=True):
    """The end of a span about which a finding was emitted; `marker` is None if it is not known which one ended it."""

    producer_id: ProducerId
    partition: TopicPartition
    span: Span
    how: SpanEnd
    marker: Marker | None


class TransactionMoved(Variant, frozen=True):
    """A transaction has left the state in which a candidate was emitted; `view` may be of a later one.

    `end` is how the transaction itself ended; None if the log that was read does not show it.
    """

    producer_id: ProducerId
    verdict: Verdict
    candidate_view: CoordinatorView
    view: CoordinatorView
    end: TransactionEnd | None = None


class PartitionAlarm(Variant, frozen=True):
    """A notice about a partition, emitted once and not once per bucket."""

    notice: PartitionNotice


class OutstandingGap(Variant, frozen=True):
    """A range that is still unread; repeated at every barrier until it is closed."""

    partition: TopicPartition
    gap: Gap


class ReadLimitReached(Variant, frozen=True):
    """Where reading of a partition stopped at the read limit of a batch; repeated until reading continues."""

    partition: TopicPartition
    from_offset: Offset


class CensusReason(StrEnum):
    """Why the producers of a partition should be described."""

    PROOF = "a proof needs a second reading"
    GAP = "what could not be read"
    FAILED = "the last census failed"
    HIDDEN = "a transaction names it, and it is not shown"
    STANDING = "its last stable offset does not move"
    DOUBT = "its leader contradicts what was read"


class CensusRequest(Variant, frozen=True):
    """A partition whose producers should be described soon."""

    partition: TopicPartition
    why: CensusReason = CensusReason.PROOF


class CensusResult(Variant, frozen=True):
    """What a census of partitions that are not read to their ends has described, or one that has failed.

    Attributes:
        failed: the partitions whose leaders did not describe them; also scanned ones.
        described: those that were described; of scanned ones, only those that are behind.
        is_round: the census has asked for all partitions that only a census watches.
    """

    failed: tuple[TopicPartition, ...] = ()
    described: tuple[TopicPartition, ...] = ()
    is_round: bool = True


class Unproven(Variant, frozen=True):
    """Partitions for which this barrier proves nothing: their leader returned no end, or they are not read to it."""

    partitions: tuple[TopicPartition, ...]


class RequestsThrottled(Variant, frozen=True):
    """How long brokers have throttled our reads since the last report, by request type."""

    throttled_ms: tuple[tuple[str, DurationMs], ...]


class Mismatch(StrEnum):
    """How a census contradicts the state derived from the log."""

    OPEN = "open"  # open at its leader, not open in our state
    CLOSED = "closed"  # open in our state, closed at its leader


class ViewHealed(Variant, frozen=True):
    """A wrong view of a scanned partition was corrected; counted and reported, because it must not happen."""

    partition: TopicPartition
    producer_id: ProducerId
    start_offset: Offset
    mismatch: Mismatch


class StrayWrite(Variant, frozen=True):
    """Data that no transaction owned and that a later transaction of its producer has absorbed.

    `joined` has the offsets, and the marker that decided the data if it is in the log already.

    Attributes:
        looks: the numbers of the two barriers that proved it; None if two epochs in one span proved it.
    """

    producer_id: ProducerId
    partition: TopicPartition
    topic_id: str
    joined: Joined
    view: CoordinatorView | None
    last_timestamp_ms: TimestampMs | None
    first_seen_ms: TimestampMs
    looks: tuple[BarrierNumber, BarrierNumber] | None = None


class BucketCount(Variant, frozen=True):
    """Counts of one bucket at a barrier.

    Attributes:
        awaited: number of producer ids with an open span or a live transaction; `states` counts them by state.
        waiting: number of looks that proved nothing, by reason.
        behind: data partitions of the whole cluster that were listed and, because of a limit, not read to their ends; a
            census shows what is open there.
        clocks: bounds on the brokers' clocks.
        data_listed_ms: our clock when D was listed; T was listed `log_after_ms` later (a row has 64 bytes).
        oldest_open_ms, oldest_prepared_ms: since when, by our clock; None if nothing is open.
        due_ms: when, by our clock, the bucket must run again if no fact arrives before; 0 is at once.
    """

    barrier: BarrierNumber
    awaited: int
    waiting: tuple[tuple[str, int], ...]
    clocks: tuple[tuple[BrokerId, Clock], ...]
    data_listed_ms: TimestampMs
    behind: int
    states: tuple[tuple[str, int], ...]
    oldest_open_ms: TimestampMs | None
    oldest_prepared_ms: TimestampMs | None
    due_ms: TimestampMs
    log_after_ms: DurationMs


class OpenSpan(NamedTuple):
    """Open data on one partition."""

    partition: TopicPartition
    start_offset: Offset
    first_seen_ms: TimestampMs

    @property
    def place(self) -> PartitionOffset:
        """Where the data begins."""
        return PartitionOffset(self.partition, self.start_offset)


class OpenTransaction(NamedTuple):
    """One producer id with an open span or a live transaction; times are our clock.

    Attributes:
        transactional_id: None until the coordinators' log has named it.
        state: the state of the transaction, or `unowned` if no live transaction owns the open data.
        since_ms: when it began, as far as known.
        prepared_ms: when its outcome was decided, None if it is not decided.
        timeout_ms: the timeout of the live transaction, after which its coordinator aborts it; None without one.
    """

    producer_id: ProducerId
    transactional_id: str | None
    state: str
    since_ms: TimestampMs
    prepared_ms: TimestampMs | None
    spans: tuple[OpenSpan, ...]
    timeout_ms: DurationMs | None = None


class OpenTransactions(Variant, frozen=True):
    """The complete list of the oldest open transactions of one bucket; emitted when it has changed.

    It is also emitted every 20 barriers (10 s at the default trigger), at another barrier for each bucket, because the
    driver may lose it; and by a process that does not know the last emitted list, so at the first barrier after a
    start. If it is not emitted, the last list of the bucket is still valid: `LastOpenLists` in open_transactions.py
    combines the lists of all buckets.

    Attributes:
        blocked: the last stable offsets that have not moved for a while, although data is written above them: all of
            the cluster, in the list of the bucket that reports on partitions.
    """

    bucket: int
    transactions: tuple[OpenTransaction, ...]
    blocked: tuple[PartitionOffset, ...] = ()


class CensusOffsets(NamedTuple):
    """What a census has listed of a partition that is not scanned.

    Attributes:
        end: not below `last_stable`, although it was listed before.
    """

    partition: TopicPartition
    last_stable: Offset
    end: Offset


class ListedOffsets(Variant, frozen=True):
    """The offsets of partitions that only a census watches, where a bucket knows open data.

    They are those of the transactions that the open list reports, and of open data without an owner.

    It is emitted at a barrier with a census, if it differs from the last one, or if the driver may not have that one.
    If it is not emitted, the last one is still valid: `LastOpenLists` in open_transactions.py combines them.

    Attributes:
        offsets: at most 32, so 512 of all buckets; those with the oldest transactions.
        is_round: the census has asked for all partitions that only a census watches. So nothing is known of a partition
            that is not here. Without a round, the former offsets of other partitions are still valid.
    """

    bucket: int
    offsets: tuple[CensusOffsets, ...]
    is_round: bool


class TransactionsEnded(Variant, frozen=True):
    """Completion times of the transactions that ended in the coordinators' log, summed."""

    latencies: tuple[Latencies, ...]


Finding = (
    SpanCandidate
    | StrayWrite
    | CoverInDoubt
    | OwnerInDoubt
    | TransactionCandidate
    | SpanEnded
    | TransactionMoved
    | PartitionAlarm
    | OutstandingGap
    | ReadLimitReached
    | CensusRequest
    | CensusResult
    | Unproven
    | RequestsThrottled
    | DataRead
    | ViewHealed
    | BucketCount
    | OpenTransactions
    | ListedOffsets
    | TransactionsEnded
)
