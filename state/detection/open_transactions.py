"""The open list of a bucket: its oldest open transactions, and those with the lowest open data of a partition.

The oldest show what may hang. But with many older transactions elsewhere, the one that holds the last stable offset of
a partition is not among them. So there is a second kind of place: for each partition, the transaction with the lowest
open start in this bucket. If there are too many partitions, the oldest of these transactions have the places.

Law: the list costs nothing for a transaction that is over within moments, as healthy ones are. An open producer is
*listable*, which means that it has a right to a place, from `listed_after_ms` on. It is evaluated once more then. In
Prepare*, and without an owner, it is listable at once, because this either ends soon or is a problem. Only what is
listable is in the indexes of the places (bucket_indexes.py).

A producer is added or removed when it is evaluated. Each bucket keeps the oldest. When a place gets free, the oldest
listable producer without a place gets it in the same batch: it is read, but not evaluated. So a list that is not full
has everything that is listable. The places of the second kind are given anew in each batch that has touched a producer.
The number of transactions in each state is counted exactly, apart from the list. Times are our clock.

The offsets of the partitions that only a census watches come with the list: the end and the last stable offset, which a
census lists around the description, so they cost no request. Every bucket gets the census of all partitions, and knows
its own open transactions. So it emits the offsets of those partitions where a transaction of its open list has data, or
one without an owner, which may soon be an incident. For scanned partitions, the progress of the query has the ends.
What is emitted follows only from the batch and the open transactions, so only a digest of what was emitted last is
stored. If that may not have arrived, it is emitted again.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Mapping
from zlib import crc32

from txnwatch.state.detection.batch import Batch, ValidListings
from txnwatch.state.detection.bucket_indexes import Age, HolderIndex
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.detection.proof import BarrierContext
from txnwatch.state.model.findings import (
    CensusOffsets,
    Finding,
    ListedOffsets,
    OpenSpan,
    OpenTransaction,
    OpenTransactions,
)
from txnwatch.state.model.serializer import encode
from txnwatch.state.model.transaction import ProducerState, TransactionState
from txnwatch.state.model.values import (
    AT_ONCE,
    BarrierNumber,
    CoordinatorAccess,
    ProducerId,
    TimestampMs,
    TopicPartition,
)

FOLLOWED = 128  # per bucket
HOLDING = 128  # per bucket, beside them
EMIT_EVERY = 20  # barriers; emitted also if unchanged
UNOWNED = "unowned"
OWNER_UNKNOWN = "owner_unknown"
_AFTER_A_WHILE = frozenset({str(TransactionState.ONGOING), OWNER_UNKNOWN})  # the other states have a right at once


def state_of(producer: ProducerState, access: CoordinatorAccess = CoordinatorAccess.LOG) -> str | None:
    """The state under which a producer id is counted; None if it is idle.

    It is that of its live transaction. Open data without one is UNOWNED; without the coordinators' log, the owner of
    all open data is unknown.
    """
    if producer.view is not None and producer.view.is_live:
        return str(producer.view.state)
    if not producer.spans:
        return None
    return UNOWNED if access is CoordinatorAccess.LOG else OWNER_UNKNOWN


def youngest_followed(followed: Mapping[ProducerId, OpenTransaction]) -> Age | None:
    """The age of the youngest transaction in a full open list; None if the list has free places."""
    return Age(*max(map(_by_age, followed.values()))) if len(followed) >= FOLLOWED else None


def free_places(followed: Mapping[ProducerId, OpenTransaction]) -> int:
    """How many more transactions the open list takes."""
    return FOLLOWED - len(followed)


def listable_at(state: str, age: Age, context: BarrierContext) -> TimestampMs:
    """From when on an open producer has a right to a place; the barrier of the context or earlier if it has it."""
    return age.since_ms + context.policy.listed_after_ms if state in _AFTER_A_WHILE else AT_ONCE


def follow(
    followed: dict[ProducerId, OpenTransaction], producer: ProducerState, age: Age, context: BarrierContext
) -> None:
    """Adds the producer to the open list, or updates it there."""
    state = state_of(producer, context.policy.coordinator_access)
    assert state is not None
    followed[producer.producer_id] = _open(producer, state, age.since_ms, _prepared_ms(producer, context))


def keep_oldest(followed: dict[ProducerId, OpenTransaction]) -> None:
    """Removes the youngest transactions above the limit."""
    if len(followed) > FOLLOWED:
        oldest = heapq.nsmallest(FOLLOWED, followed.values(), key=_by_age)
        followed.clear()
        followed.update((transaction.producer_id, transaction) for transaction in oldest)


def holders(
    index: HolderIndex, followed: Mapping[ProducerId, OpenTransaction], context: BarrierContext
) -> set[ProducerId]:
    """The producers that get the places for the lowest open data of a partition: none that has a place already."""
    return {age.producer_id for age in index.oldest(HOLDING, context, without=followed)}


def reportable(
    followed: Mapping[ProducerId, OpenTransaction], context: BarrierContext, *, at_once: Container[str] = ()
) -> Iterator[OpenTransaction]:
    """Those that have been open for a while, are prepared, or are in a state of `at_once`; oldest first."""
    latest_ms = context.now_ms - context.policy.listed_after_ms
    for transaction in sorted(followed.values(), key=_by_age):
        is_old = transaction.since_ms <= latest_ms
        if is_old or transaction.prepared_ms is not None or transaction.state in at_once:
            yield transaction


def must_emit(bucket: BucketState, open_list: OpenTransactions, barrier_number: BarrierNumber) -> bool:
    """Whether the open list must be emitted at this barrier; records that it is.

    It must if it has changed, if it is the bucket's turn, or if it may not have arrived: the output of an earlier
    attempt at the same barrier may be lost. The digest of the emitted list is part of the state, because another worker
    may run the next batch.
    """
    digest = (
        bucket.open_list_digest
        if bucket.open_list_digest is not None and open_list == bucket.shown
        else crc32(encode(open_list))
    )
    is_turn = (barrier_number + bucket.number) % EMIT_EVERY == 0
    has_arrived = digest == bucket.open_list_digest and not bucket.is_another_attempt(barrier_number)
    bucket.open_list_digest, bucket.shown, bucket.barrier = digest, open_list, barrier_number
    return is_turn or not has_arrived


class LastOpenLists:
    """The last open list of each bucket and its partition ends, for users that need the whole at every barrier."""

    def __init__(self) -> None:
        self._by_bucket: dict[int, OpenTransactions] = {}
        self._ends: dict[int, ListedOffsets] = {}

    def whole(self, emitted: Iterable[Finding]) -> list[Finding]:
        """The findings of one batch, with the last open lists and partition ends of all buckets."""
        others: list[Finding] = []
        for finding in emitted:
            if isinstance(finding, OpenTransactions):
                self._by_bucket[finding.bucket] = finding
            elif isinstance(finding, ListedOffsets):
                self._ends[finding.bucket] = _after_census(self._ends.get(finding.bucket), finding)
            else:
                others.append(finding)
        lists = [self._by_bucket[bucket] for bucket in sorted(self._by_bucket)]
        return [*others, *lists, *(self._ends[bucket] for bucket in sorted(self._ends))]


def _by_age(transaction: OpenTransaction) -> tuple[TimestampMs, ProducerId]:
    return transaction.since_ms, transaction.producer_id


def _prepared_ms(producer: ProducerState, context: BarrierContext) -> TimestampMs | None:
    """Since when the transaction is prepared, None if it is not."""
    view = producer.view
    if view is None or not view.is_live or not view.state.is_prepare:
        return None
    return view.record_timestamp_ms - context.ahead_ms(view)


def _open(
    producer: ProducerState, state: str, begun_ms: TimestampMs, prepared_ms: TimestampMs | None
) -> OpenTransaction:
    spans = tuple(
        OpenSpan(partition, span.start_offset, span.first_seen_ms) for partition, span in sorted(producer.spans.items())
    )
    view = producer.view
    name = view.transactional_id if view is not None else None
    timeout_ms = view.timeout_ms if view is not None and view.is_live else None
    return OpenTransaction(producer.producer_id, name, state, begun_ms, prepared_ms, spans, timeout_ms)


def oldest(transactions: Iterable[OpenTransaction]) -> tuple[TimestampMs | None, TimestampMs | None]:
    """The start of the oldest, and the time since when the longest prepared one is prepared; None for none."""
    listed = list(transactions)
    prepared = [transaction.prepared_ms for transaction in listed if transaction.prepared_ms is not None]
    return min((transaction.since_ms for transaction in listed), default=None), min(prepared, default=None)


# The offsets of the partitions that only a census watches.

SHOWN_ENDS = 32  # per bucket


def ends_to_emit(bucket: BucketState, batch: Batch, transactions: Iterable[OpenTransaction]) -> ListedOffsets | None:
    """The offsets to emit at a batch's barrier, None if there are none; records that they are emitted.

    Assumes that `must_emit` has not recorded the barrier yet, and that the transactions are sorted, the oldest first.
    """
    if bucket.is_another_attempt(batch.barrier.number):
        bucket.ends_digest = None
    if not batch.censuses:
        return None
    valid_listings = batch.valid_listings()
    listed = ListedOffsets(bucket.number, _listed(transactions, valid_listings), valid_listings.is_round)
    if not (listed.offsets or listed.is_round):
        return None
    digest = crc32(encode(listed))
    if digest == bucket.ends_digest:
        return None
    bucket.ends_digest = digest
    return listed


def _listed(transactions: Iterable[OpenTransaction], valid_listings: ValidListings) -> tuple[CensusOffsets, ...]:
    """What the census has listed where the transactions have data."""
    by_partition: dict[TopicPartition, CensusOffsets] = {}
    for transaction in transactions:
        for partition, _, _ in transaction.spans:
            listing = valid_listings.of(partition)
            if listing is None or listing.is_scanned or listing.is_behind or listing.stable is None:
                continue
            by_partition[partition] = CensusOffsets(partition, listing.stable, max(listing.below, listing.stable))
            if len(by_partition) == SHOWN_ENDS:
                return tuple(by_partition.values())
    return tuple(by_partition.values())


def _after_census(before: ListedOffsets | None, listed: ListedOffsets) -> ListedOffsets:
    """All offsets that are known of a bucket after the next ones."""
    if before is None or listed.is_round:
        return listed
    offsets = {entry.partition: entry for entry in (*before.offsets, *listed.offsets)}
    return ListedOffsets(listed.bucket, tuple(offsets.values()), before.is_round)
