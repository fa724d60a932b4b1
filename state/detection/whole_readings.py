"""At which barrier a data partition was last read to its listed end: what is read after that began after that listing.

An outcome rests on this (state/evidence/outcome.py): a span that began after an end D, which was listed after the
coordinators' log already had its present leader, has no owner whose record an earlier election can have removed.

Nearly all partitions are read to their end in every batch, and then the last barrier is the one before. So the state
keeps the number only for a partition that is not.

Law: the number is never too high. It stays while the partition is not listed, not read to its end, or has a gap. After
a truncation or a loss, reading does not continue where it ended, so no barrier counts for that batch. None counts for
the batch in which reading begins.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from txnwatch.state.detection.batch import Batch
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.model.facts import READ_LATER
from txnwatch.state.model.ids import NO_BARRIER, BarrierNumber, TopicPartition


class WholeBefore:
    """By partition, the last barrier before a batch at which the partition was read to its listed end."""

    def __init__(self, bucket: BucketState, batch: Batch) -> None:
        self._last_whole = bucket.last_whole
        self._previous = _previous(batch)
        moved = {notice.partition for notice in batch.notices if notice.kind not in READ_LATER}
        self._without = batch.barrier.begun | moved

    def at(self, partition: TopicPartition) -> BarrierNumber:
        """The number of that barrier; NO_BARRIER if none counts."""
        return NO_BARRIER if partition in self._without else self._last_whole.get(partition, self._previous)


def note_whole(bucket: BucketState, batch: Batch) -> None:
    """Records the partitions that this batch did not read to the end that it has listed; gaps are recorded before."""
    barrier = batch.barrier
    unread = barrier.stale_data | barrier.limited_data | bucket.gaps.keys() | bucket.left.keys()
    previous = _previous(batch)
    known = bucket.last_whole
    bucket.last_whole = {
        partition: NO_BARRIER if partition in barrier.begun else known.get(partition, previous) for partition in unread
    }


def _previous(batch: Batch) -> BarrierNumber:
    return BarrierNumber(batch.barrier.number - 1)
