"""Ranges that were listed and not read: noted, closed by a re-read that reaches them, and what follows from either.

Law: as long as a gap stands nothing is proven on its partition. A data partition whose log was cut or is lost in part
cannot be made whole by reading; it waits for a census. A partition of the coordinator's log that was cut is read again
from its beginning as another reading, and what that does not show is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from txnwatch.state.batch import Batch
from txnwatch.state.bucket_state import FROM_BEGINNING, NEEDS_CENSUS, BucketState
from txnwatch.state.facts import NoticeKind, PartitionNotice, ProducerSeen, TransactionSeen
from txnwatch.state.ids import TRANSACTION_STATE_TOPIC
from txnwatch.state.transaction import CoordinatorView


def begin_readings(bucket: BucketState, batch: Batch) -> None:
    """What a truncated partition of the log shows from now on is another reading of it, this batch's included.

    So is a re-read from the beginning: what was read in the batch that told of the loss may be from before it.
    """
    begun = [
        partition.partition
        for partition, start in batch.barrier.reread.items()
        if partition.topic == TRANSACTION_STATE_TOPIC
        and start <= 0
        and bucket.coordinator_gaps.get(partition.partition) == FROM_BEGINNING
    ]
    cut = [
        notice.partition.partition
        for notice in batch.notices
        if notice.partition.topic == TRANSACTION_STATE_TOPIC and notice.kind is not NoticeKind.GAP
    ]
    for log_partition in (*begun, *cut):
        bucket.readings[log_partition] = bucket.readings.get(log_partition, 0) + 1


def in_reading(seen: ProducerSeen | TransactionSeen, bucket: BucketState) -> ProducerSeen | TransactionSeen:
    """The fact, with the number of the reading its log partition is in."""
    if isinstance(seen, ProducerSeen):
        return seen
    reading = bucket.readings.get(seen.view.log_partition, 0)
    return replace(seen, view=replace(seen.view, reading=reading)) if reading else seen


def read_again(bucket: BucketState, batch: Batch) -> set[int]:
    """Partitions of the coordinator's log that are being read from their beginning once more."""
    begun = {
        partition.partition
        for partition, start in batch.barrier.reread.items()
        if partition.topic == TRANSACTION_STATE_TOPIC and start <= 0
    }
    return begun | {number for number, gap in bucket.rereading.items() if gap == FROM_BEGINNING}


def close_gaps(bucket: BucketState, batch: Batch) -> None:
    """Gaps that a re-read or a census of this batch reaches; if it failed again, `note_gaps` brings them back."""
    for partition, start in batch.barrier.reread.items():
        if partition.topic == TRANSACTION_STATE_TOPIC:
            gap = bucket.coordinator_gaps.get(partition.partition)
            if gap is not None and start <= max(gap, 0):  # a wish may be older than the gap: then it does not reach it
                del bucket.coordinator_gaps[partition.partition]
                bucket.rereading[partition.partition] = min(gap, bucket.rereading.get(partition.partition, gap))
        elif start <= bucket.gaps.get(partition, start) and bucket.gaps.get(partition) != NEEDS_CENSUS:
            bucket.gaps.pop(partition, None)
    for partition, bracket in batch.brackets():
        if bracket.is_scanned and bucket.gaps.get(partition) == NEEDS_CENSUS:
            del bucket.gaps[partition]


def note_gaps(bucket: BucketState, notices: Iterable[PartitionNotice]) -> None:
    """What could not be read in this batch."""
    told = list(notices)
    gone = {(notice.partition, notice.topic_id) for notice in told if notice.kind is NoticeKind.DELETED}
    for partition, _ in gone:
        bucket.gaps.pop(partition, None)
    for notice in told:
        partition = notice.partition
        is_unread = notice.kind is NoticeKind.GAP
        if (partition, notice.topic_id) in gone:
            continue  # a topic of the same name may have come since: its gaps are its own, whatever the order
        if partition.topic == TRANSACTION_STATE_TOPIC:
            wanted = notice.from_offset if is_unread else FROM_BEGINNING
            known = bucket.coordinator_gaps.get(partition.partition, wanted)
            bucket.coordinator_gaps[partition.partition] = min(wanted, known)
        else:
            wanted = notice.from_offset if is_unread else NEEDS_CENSUS
            bucket.gaps[partition] = min(wanted, bucket.gaps.get(partition, wanted))


def note_holes(bucket: BucketState, batch: Batch) -> None:
    """Where compaction has been in the coordinator's log, for batches to come: the folds of this one have seen it."""
    for log_partition, end in batch.barrier.holes.items():
        bucket.holes[log_partition] = max(end, bucket.holes.get(log_partition, end))


def is_before_hole(bucket: BucketState, view: CoordinatorView | None) -> bool:
    """Whether records are missing between a view and what is read from now on."""
    return view is not None and view.log_offset < bucket.holes.get(view.log_partition, 0)


def finished_readings(bucket: BucketState, batch: Batch) -> Iterator[int]:
    """Coordinator partitions whose re-read has reached its end; those that were read as a whole."""
    for log_partition, gap in list(bucket.rereading.items()):
        if log_partition in batch.barrier.stale_coordinator or log_partition in bucket.coordinator_gaps:
            continue
        del bucket.rereading[log_partition]
        if gap == FROM_BEGINNING:
            yield log_partition
