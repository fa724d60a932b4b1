"""Facts: the observations that state/detection takes as input. A fact is plain data about one range of one log.

A fact contains no conclusion. One fact about a whole range gives the same result as one fact for each of its batches (a
property test of `streaming/log/partition_fold.py` checks this). The facts of one micro-batch may arrive in any order;
they are sorted before they are applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from msgspec import field

from txnwatch.state.model.clocks import Clock, Leader
from txnwatch.state.model.completion_latency import Completion, Latencies
from txnwatch.state.model.incident import EndedBy
from txnwatch.state.model.transaction import CoordinatorView, Marker, TransactionState
from txnwatch.state.model.values import (
    NO_TIME,
    BarrierNumber,
    BrokerId,
    DurationMs,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
    Variant,
)

# How a transaction ended: what a range of the coordinators' log shows, and what follows from it.


class FirstDecision(NamedTuple):
    """What a range decides about one transaction of an id: the first one that has a Prepare* or Complete* record in it.

    A coordinator whose append of Prepare* has failed goes back to Ongoing, and the record stays in the log. So a later
    Prepare* of the same transaction replaces the one before, and an Ongoing record of it takes the decision back.

    Attributes:
        state: the state in the last Prepare* record of the transaction, or in Complete* if the range has only that.
        start_ms: when that transaction began. Each transaction of an id has another start, also one that is aborted
            while it is empty.
        producer_epoch: the producer epoch of the record; None if the record gives the id another producer id.
        log_offset: offset of the record.
        record_timestamp_ms: when the record was appended.
        is_first: whether the record is the first one of the id in the range, and nothing in the range is missing before
            it.
        is_final: whether nothing can take the decision back: the range has Complete*, or a record of what followed the
            transaction, and nothing is missing before that record.
    """

    state: TransactionState
    start_ms: TimestampMs | None
    producer_epoch: ProducerEpoch | None
    log_offset: Offset
    record_timestamp_ms: TimestampMs
    is_first: bool
    is_final: bool


class TransactionEnd(NamedTuple):
    """How one transaction ended, as the coordinators' log proves it.

    Attributes:
        state: the state of the record that shows it: Prepare* or Complete*.
        by: who ended it.
        log_offset: offset of the record in the id's partition of the log.
        open_for_ms: from the start of the transaction to the record, by the timestamps of the coordinators; None if
            nothing had begun since InitProducerId.
    """

    state: TransactionState
    by: EndedBy
    log_offset: int
    open_for_ms: DurationMs | None


class Joined(NamedTuple):
    """Data that joined an open transaction of an older epoch, which had ended without its marker on this partition.

    A producer gets a newer epoch only after every marker of the older one was written (since KIP-890: a new transaction
    begins only then). So the older data belongs to no live transaction. The leader closes nothing on an epoch bump; the
    next marker closes both.

    Attributes:
        start_offset: first offset of the older data.
        start_epoch: the producer epoch of the older data.
        offset: first offset of the data that joined; None if only a census shows that it did.
        epoch: the producer epoch of the data that joined.
        marker: the marker that closed both; None if it is not in the same range.
    """

    start_offset: Offset
    start_epoch: ProducerEpoch
    offset: Offset | None
    epoch: ProducerEpoch
    marker: Marker | None = None


class ProducerSeen(Variant, frozen=True):
    """What one producer wrote in transactions on one partition in one read range [range_start, range_end).

    Attributes:
        range_start, range_end: the first offset of the range, and the offset after it.
        first_offset: offset of the first transactional data before any marker of the range, or None.
        first_epoch: the producer epoch of that data, or None.
        first_marker, last_marker: the first and the last marker in the range, or None.
        open_offset: offset of the first transactional data after the last marker; None if nothing is open at the end.
            Equals `first_offset` if the range has no marker.
        open_epoch: the producer epoch of that data; None if nothing is open at the end.
        epoch: the producer epoch at the end of the range.
        last_offset: offset of the last record batch with data in the range; None if the range has only markers.
        last_timestamp_ms: timestamp of that record batch; None if it has none, or if the range has only markers.
        listed_ms: our clock when the end of the range had been listed.
        joined: the first data in the range that joined open data of an older epoch; both are in the range.
        closed_offset: offset of the first data that `last_marker` closed; None if it closed none that is in the range.
        may_be_older: the first batch of the data at `open_offset` may be older than the last listing of the partition,
            although it is above the listed end: its leader epoch is an earlier one (decision 0049).
    """

    partition: TopicPartition
    topic_id: str
    producer_id: ProducerId
    range_start: Offset
    range_end: Offset
    first_offset: Offset | None
    first_epoch: ProducerEpoch | None
    first_marker: Marker | None
    last_marker: Marker | None
    open_offset: Offset | None
    open_epoch: ProducerEpoch | None
    epoch: ProducerEpoch
    last_offset: Offset | None
    last_timestamp_ms: TimestampMs | None
    listed_ms: TimestampMs
    joined: Joined | None = None
    closed_offset: Offset | None = None
    may_be_older: bool = False


class TransactionSeen(Variant, frozen=True):
    """The state of one producer id's transaction at the end of one read range of the coordinators' log.

    `view` is the state after the range. Its `superseded_by` is set if the record of the transactional id now names
    another producer id; for the old producer id that record is the completion. A tombstone names no producer id: see
    `TransactionalIdGone`.

    Attributes:
        view: the state after the range.
        held: partitions that were participants of a live transaction somewhere in the range.
        first_end: the Complete* record that ends a transaction prepared before the range, or None.
        is_past: the transaction was idle before reading of its log began (or began again); it matters only if the
            producer id is awaited.
        decided: the first record in the range that decides a transaction; the view may be of a later one.
    """

    producer_id: ProducerId
    view: CoordinatorView
    held: frozenset[TopicPartition] = frozenset()
    first_end: Completion | None = None
    is_past: bool = False
    decided: FirstDecision | None = None


class CompletionTimes(Variant, frozen=True):
    """How long the transactions took to end that a range has both prepared and completed. Sent to one bucket.

    Attributes:
        log: the partition of the coordinators' log.
        latencies: the sums of their durations.
    """

    log: TopicPartition
    latencies: tuple[Latencies, ...]


class TransactionalIdGone(Variant, frozen=True):
    """A tombstone in the coordinators' log; it names no producer id, so every bucket gets a copy."""

    transactional_id: str
    log_partition: int
    log_offset: Offset


class NoticeKind(StrEnum):
    """What can happen to a whole partition."""

    GAP = "gap"
    LOST = "lost"
    TRUNCATED = "truncated"
    DELETED = "deleted"
    HIDDEN = "hidden"
    LEFT = "left"


READ_LATER = frozenset({NoticeKind.GAP, NoticeKind.LEFT})
KEEPS_WHAT_IS_KNOWN = READ_LATER | {NoticeKind.HIDDEN}  # the data read before stays valid


class PartitionNotice(Variant, frozen=True):
    """An event that concerns every producer of a partition; every bucket gets a copy.

    Attributes:
        kind: gap: the range was listed and could not be read yet. lost: it can never be read, because retention or
            DeleteRecords removed it first, or reading failed too often. truncated: data that was read from
            `from_offset` on is no longer in the log. deleted: the topic with this id is gone. left: the range was
            listed and waits for the next micro-batch, because this one reached its read limit; this is not a failure.
            hidden: the partition is a participant of a transaction, and this user may not describe its topic.
        from_offset: first offset of the range that the notice is about.
        to_offset: the offset after that range.
        detail: the reason, as text for people.
        is_decode_failure: bytes were read that cannot be decoded.
    """

    kind: NoticeKind
    partition: TopicPartition
    topic_id: str
    from_offset: Offset
    to_offset: Offset
    detail: str
    is_decode_failure: bool = False


class StandsAt(NamedTuple):
    """A last stable offset below the end of its partition that has not moved since a look before.

    Attributes:
        epoch: the leader epoch of all these looks.
        since: the barrier of the first of them.
    """

    offset: Offset
    epoch: LeaderEpoch | None
    since: BarrierNumber


class CensusListing(NamedTuple):
    """One partition in a census: its leader described its producers between two listings under one leader epoch.

    Attributes:
        below: end offset listed before the description; the census covers transactions that begin below it.
        stable: the leader's last stable offset, listed after the description; None if the leader did not return it. A
            marker above the high watermark ends its transaction in the leader's memory and can still be lost. This
            cannot happen to a transaction that begins below `stable`.
        is_scanned: the log of the partition is also read, and was read to `below` when the census was taken.
        is_first: reading of the partition began in the same batch, so the open transactions are older than the watch.
        is_behind: the log is also read, but was not read to `below` yet; until then the census replaces the log.
        stands_at: `stable`, if it was there under the same leader already before T of the batch was listed: what begins
            there was open then.
    """

    topic_id: str
    below: Offset
    stable: Offset | None
    is_scanned: bool
    is_first: bool = False
    is_behind: bool = False
    stands_at: Offset | None = None


class CensusTaken(Variant, frozen=True):
    """The partitions that leaders described while a batch was read (a census); every bucket gets a copy.

    The open transactions are separate `OpenDescribed` facts, each only in the bucket of its producer id. A census is an
    observation and not part of the log: a replay of the batch may lack it, or observe a later moment. It is later than
    everything the batch has listed and read, so it counts only at later barriers.

    Attributes:
        taken: the partitions that were described.
        failed: partitions whose leader did not answer, or not under one leader epoch.
        failed_scanned: those of `failed` whose log is also read: no round of the census asks for them again.
        is_round: all partitions watched by census alone were asked; a partition in neither `taken` nor `failed` is
            gone.
    """

    taken: Mapping[TopicPartition, CensusListing]
    failed: frozenset[TopicPartition] = frozenset()
    is_round: bool = False
    failed_scanned: frozenset[TopicPartition] = frozenset()


class OpenDescribed(Variant, frozen=True):
    """A transaction that DescribeProducers returns as open on a partition of the batch's census.

    Attributes:
        start_offset: first offset of the transaction.
        last_timestamp_ms: timestamp of the producer's last record batch; None if the batch has none.
        listed_ms: our clock when the ends for this micro-batch were listed. The host that describes has its own clock.
    """

    partition: TopicPartition
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    start_offset: Offset
    last_timestamp_ms: TimestampMs | None
    listed_ms: TimestampMs


class LastStable(Variant, frozen=True):
    """A leader's last stable offset below the end that was read, so something is open there. Sent to one bucket."""

    partition: TopicPartition
    topic_id: str
    offset: Offset


class Throttled(Variant, frozen=True):
    """How long brokers have throttled a reader, by request type; for metrics only, no verdict uses it."""

    throttled_ms: Mapping[str, DurationMs]


class TopicVolume(NamedTuple):
    """What one task has read of a topic.

    Attributes:
        offsets: how many offsets were walked.
        bytes: of records, as the leaders have sent them.
        has_transactions: whether there was transactional data or a marker in it.
    """

    offsets: int
    bytes: int
    has_transactions: bool

    def plus(self, other: TopicVolume) -> TopicVolume:
        """Both together."""
        has_transactions = self.has_transactions or other.has_transactions
        return TopicVolume(self.offsets + other.offsets, self.bytes + other.bytes, has_transactions)


class DataRead(Variant, frozen=True):
    """How much was read of the topics; for the budget of the scan only, no verdict uses it. It is a finding, too.

    Attributes:
        topics: what was read of each topic.
    """

    topics: Mapping[str, TopicVolume]


class LastBatch(NamedTuple):
    """The batch with which what was read of a log ends; it shows whether another leader has the same log.

    Two leaders that have a batch of one leader epoch at one offset have the same log below it.

    Attributes:
        epoch: the leader epoch of the batch.
        crc: the batch's CRC. None where each restart of a leader raises its epoch; elsewhere a leader that has lost its
            tail can append another batch under the same epoch.
    """

    epoch: LeaderEpoch
    crc: int | None


class LogRead(Variant, frozen=True):
    """What one of several tasks found in the coordinators' log. Add it to the barrier row, which another task emits.

    Attributes:
        holes, clocks, elected, last_batches, rechecked: as in the row `barrier`, for the partitions that the task has
            read.
    """

    holes: Mapping[TopicPartition, Offset]
    clocks: Mapping[BrokerId, Clock]
    elected: frozenset[TopicPartition] = frozenset()
    last_batches: Mapping[TopicPartition, LastBatch] = field(default_factory=dict)
    rechecked: Mapping[TopicPartition, LastBatch | None] = field(default_factory=dict)


class Barrier(Variant, frozen=True):
    """One pair of listings (D, T): the ends of all data partitions, then the ends of the coordinators' log.

    D is complete before the first end of T is requested. The exceptions below name the partitions for which the pair
    proves nothing.

    Attributes:
        number: the number of the pair.
        data_listed_ms: our clock when D was listed.
        coordinator_listed_ms: our clock when T was listed.
        stale_data: data partitions whose end was not listed this time, so the old value is kept.
        stale_coordinator: the same for the coordinators' log; also partitions that are not read to their listed end.
        limited_data: partitions whose end was listed, but a limit stopped the reading before it.
        reread: ranges that were read again, by start offset; this closes an earlier gap there unless the same batch
            reports a new one.
        risen: data partitions whose leader epoch has risen since the last pair. The election may have truncated the log
            where it was not read yet, and then a span that a census did not show may be open again.
        leaders: the leaders of the listed partitions of the coordinators' log.
        clocks: bounds on the brokers' clocks from the records of this batch.
        scan_interval_ms: how often coordinators look for expired transactions; None if no broker has returned it.
        holes: partitions of the coordinators' log with offsets missing in the ranges of this batch because of
            compaction, with the end of the last hole.
        has_coordinator_log: whether a broker has shown the coordinators' log at all. Without it there is no T: a new
            cluster has no such log yet, but a hidden or deleted log looks the same.
        elected: partitions of the coordinators' log with a record of a later leader epoch than that of their listed
            end: between the listing and the reading, an election can have removed listed records.
        last_batches: the last batch of each partition of the coordinators' log with batches in the ranges of this
            micro-batch.
        rechecked: partitions of the coordinators' log that may have another leader than before, with the batch before
            the range of this micro-batch, as the present leader has it; None if it has no batch that ends there.
        clock_set_by_ms: by how much our own clock was set since the last pair: forward, or back if it is negative.
        begun: data partitions whose scan begins with this batch, by its first offset: at the log start, or where the
            last stable offset was, so that nothing below it is open.
        looked_at: data partitions that are no longer scanned from this batch on: a census replaces their logs.
        first_readings: partitions of the coordinators' log that this batch reads for the first time, or whose leader
            has not answered yet.
        standing: partitions that are not read to their ends, and whose last stable offset stands; listed before T.
    """

    number: BarrierNumber
    data_listed_ms: TimestampMs
    coordinator_listed_ms: TimestampMs
    stale_data: frozenset[TopicPartition] = frozenset()
    limited_data: frozenset[TopicPartition] = frozenset()
    stale_coordinator: frozenset[TopicPartition] = frozenset()
    reread: dict[TopicPartition, Offset] = field(default_factory=dict)
    risen: frozenset[TopicPartition] = frozenset()
    leaders: Mapping[TopicPartition, Leader] = field(default_factory=dict)
    clocks: Mapping[BrokerId, Clock] = field(default_factory=dict)
    scan_interval_ms: DurationMs | None = None
    holes: dict[TopicPartition, Offset] = field(default_factory=dict)
    has_coordinator_log: bool = True
    elected: frozenset[TopicPartition] = frozenset()
    last_batches: dict[TopicPartition, LastBatch] = field(default_factory=dict)
    rechecked: dict[TopicPartition, LastBatch | None] = field(default_factory=dict)
    clock_set_by_ms: DurationMs = NO_TIME
    begun: dict[TopicPartition, Offset] = field(default_factory=dict)
    looked_at: frozenset[TopicPartition] = frozenset()
    first_readings: frozenset[TopicPartition] = frozenset()
    standing: Mapping[TopicPartition, StandsAt] = field(default_factory=dict)


Fact = (
    ProducerSeen
    | TransactionSeen
    | CompletionTimes
    | TransactionalIdGone
    | PartitionNotice
    | CensusTaken
    | OpenDescribed
    | LastStable
    | Throttled
    | DataRead
    | LogRead
    | Barrier
)
