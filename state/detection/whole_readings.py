"""At which barrier a data partition was last read to its listed end: what is read after that began after that listing.

An outcome rests on this (state/evidence/outcome.py): a span that began after an end D, which was listed after the
coordinators' log already had its present leader, has no owner whose record an earlier election can have removed.

Nearly all partitions are read to their end in every batch, and then the last barrier is the one before. So the state
keeps the number only for a partition that is not.

Law: the number is never too high. It stays while the partition is not listed, not read to its end, or has a gap. After
a truncation or a loss, reading does not continue where it ended, so no barrier counts for that batch, nor for the next
ones until the partition is read whole. None counts for the batch in which reading begins, nor for a range that is read
again although the state has read it.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator

from txnwatch.state.detection.batch import Batch
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.model.facts import READ_LATER
from txnwatch.state.model.ids import NO_BARRIER, BarrierNumber, TopicPartition


class WholeBefore:
    """By partition, the last barrier before a batch at which the partition was read to its listed end."""

    def __init__(self, bucket: BucketState, batch: Batch) -> None:
        self._last_whole = bucket.last_whole
        self._previous = _previous(batch)
        self._without = _without_barrier(batch) | set(_read_twice(bucket, batch))

    def at(self, partition: TopicPartition) -> BarrierNumber:
        """The number of that barrier; NO_BARRIER if none counts."""
        return NO_BARRIER if partition in self._without else self._last_whole.get(partition, self._previous)


def note_whole(bucket: BucketState, batch: Batch) -> None:
    """Records the partitions that this batch did not read to the end that it has listed; gaps are recorded before."""
    barrier = batch.barrier
    unread = barrier.stale_data | barrier.limited_data | bucket.gaps.keys() | bucket.left.keys()
    previous = _previous(batch)
    known, without = bucket.last_whole, _without_barrier(batch)
    bucket.last_whole = {
        partition: NO_BARRIER if partition in without else known.get(partition, previous) for partition in unread
    }


def _without_barrier(batch: Batch) -> frozenset[TopicPartition]:
    """Partitions whose reading begins in this batch, or does not continue where it ended."""
    return batch.barrier.begun | {notice.partition for notice in batch.notices if notice.kind not in READ_LATER}


def _read_twice(bucket: BucketState, batch: Batch) -> Iterator[TopicPartition]:
    """Partitions with a range in this batch that begins below what is unread."""
    for partition, start in batch.barrier.reread.items():
        unread = [at for at in (bucket.gaps.get(partition), bucket.left.get(partition)) if isinstance(at, int)]
        if start < min(unread, default=start + 1):
            yield partition


def _previous(batch: Batch) -> BarrierNumber:
    return BarrierNumber(batch.barrier.number - 1)
