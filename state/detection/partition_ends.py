"""The offsets of partitions that only a census watches: which of them a bucket emits, and what its driver keeps.

A census lists the end of a partition and its last stable offset around the description. So these offsets cost no
request. Every bucket gets the census of all partitions, and knows its own open transactions. So it emits the offsets of
those partitions where a transaction of its open list has data, or one without an owner, which may soon be an incident.
For scanned partitions, the progress of the query has the ends.

Law: what is emitted follows only from the batch and the open transactions. So only a digest of what was emitted last is
stored. If that may not have arrived, the offsets are emitted at the next census. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from txnwatch.state.detection.batch import Batch, Brackets
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.model.findings import CensusOffsets, OpenTransaction, PartitionEnds
from txnwatch.state.model.serializer import encode
from txnwatch.state.model.values import TopicPartition

SHOWN_ENDS = 32  # per bucket


def ends_to_emit(bucket: BucketState, batch: Batch, transactions: Iterable[OpenTransaction]) -> PartitionEnds | None:
    """The offsets to emit at a batch's barrier, None if there are none; records that they are emitted.

    Assumes that `must_emit` has not recorded the barrier yet, and that the transactions are sorted, the oldest first.
    """
    if bucket.is_another_attempt(batch.barrier.number):
        bucket.ends_digest = None
    if not batch.censuses:
        return None
    brackets = batch.brackets()
    found = PartitionEnds(bucket.number, _listed(transactions, brackets), brackets.is_round)
    if not (found.offsets or found.is_round):
        return None
    digest = crc32(encode(found))
    if digest == bucket.ends_digest:
        return None
    bucket.ends_digest = digest
    return found


def _listed(transactions: Iterable[OpenTransaction], brackets: Brackets) -> tuple[CensusOffsets, ...]:
    """What the census has listed where the transactions have data."""
    found: dict[TopicPartition, CensusOffsets] = {}
    for transaction in transactions:
        for partition, _, _ in transaction.spans:
            bracket = brackets.of(partition)
            if bracket is None or bracket.is_scanned or bracket.is_behind or bracket.stable is None:
                continue
            found[partition] = CensusOffsets(partition, bracket.stable, max(bracket.below, bracket.stable))
            if len(found) == SHOWN_ENDS:
                return tuple(found.values())
    return tuple(found.values())


def after_census(known: PartitionEnds | None, found: PartitionEnds) -> PartitionEnds:
    """All offsets that are known of a bucket after the next ones."""
    if known is None or found.is_round:
        return found
    offsets = {one.partition: one for one in (*known.offsets, *found.offsets)}
    return PartitionEnds(found.bucket, tuple(offsets.values()), known.is_round)
