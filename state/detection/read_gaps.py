"""Ranges that were listed and not read: how they are recorded, how a re-read closes them, and what follows.

There are two kinds: a gap could not be read; `left` is what a batch did not reach because of its read limit.

Law: as long as one exists, the log proves nothing on its partition. If a data partition was truncated, or has lost a
range, reading cannot make it complete; it waits for a census. A truncated partition of the coordinators' log is read
again from its beginning, as another reading, and what that does not show is gone. The same applies if its topic was
re-created. The new topic may have other partitions, so nothing counts as gone before all of them are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from txnwatch.state.detection.batch import Batch
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.model.broker_clocks import was_listed
from txnwatch.state.model.facts import (
    READ_LATER,
    Barrier,
    CensusListing,
    NoticeKind,
    PartitionNotice,
    ProducerSeen,
    TransactionSeen,
)
from txnwatch.state.model.gap import Gap, Remedy, wider
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.model.transaction import CoordinatorView

_ASKED_AGAIN = 10  # barriers: a request can be lost, so it is repeated; it ends, because the partition may be gone


def begin_readings(bucket: BucketState, batch: Batch) -> None:
    """Starts another reading of truncated partitions of the coordinators' log; this batch is already part of it.

    A re-read from the beginning is another reading, too: the batch that reported the loss may have read data from
    before it.
    """
    begun = [
        partition.partition
        for partition, start in batch.barrier.reread.items()
        if partition.topic == TRANSACTION_STATE_TOPIC
        and start <= 0
        and bucket.coordinator_gaps.get(partition.partition) is Remedy.NEW_READING
    ]
    cut = [
        notice.partition.partition
        for notice in batch.notices
        if notice.partition.topic == TRANSACTION_STATE_TOPIC and notice.kind not in READ_LATER
    ]
    for log_partition in (*begun, *cut):
        bucket.readings[log_partition] = bucket.readings.get(log_partition, 0) + 1
        bucket.holes.pop(log_partition, None)  # never carry state into a new reading; its offsets may start again


def in_reading(
    seen: ProducerSeen | TransactionSeen, bucket: BucketState, barrier: Barrier
) -> ProducerSeen | TransactionSeen:
    """The fact, with the number of its log partition's reading and the time at which it was seen."""
    if isinstance(seen, ProducerSeen):
        return seen
    reading = bucket.readings.get(seen.view.log_partition, 0)
    since_ms = barrier.coordinator_listed_ms if was_listed(seen.view, barrier) else None
    view = replace(seen.view, reading=reading, since_ms=since_ms)
    return TransactionSeen(seen.producer_id, view, seen.held, seen.ended, seen.first_end, seen.is_past, seen.decided)


def read_again(bucket: BucketState, batch: Batch) -> set[int]:
    """Partitions of the coordinators' log that are being read from their beginning once more."""
    begun = {
        partition.partition
        for partition, start in batch.barrier.reread.items()
        if partition.topic == TRANSACTION_STATE_TOPIC and start <= 0
    }
    return begun | {number for number, gap in bucket.rereading.items() if isinstance(gap, Remedy)}


def unread_before(bucket: BucketState, batch: Batch) -> set[TopicPartition]:
    """Partitions with data missing between the known state and what this batch has read."""
    logs = bucket.coordinator_gaps.keys() | bucket.rereading.keys()
    back = batch.barrier.reread
    return {
        *bucket.gaps,
        *(partition for partition, start in bucket.left.items() if partition not in back or back[partition] > start),
        *(notice.partition for notice in batch.notices if notice.kind is not NoticeKind.LEFT),
        *(TopicPartition(TRANSACTION_STATE_TOPIC, log_partition) for log_partition in logs),
    }


def close_gaps(bucket: BucketState, batch: Batch) -> None:
    """Closes gaps that a re-read or a census of this batch reaches; `note_gaps` restores them if it failed again."""
    for partition, start in batch.barrier.reread.items():
        if partition.topic == TRANSACTION_STATE_TOPIC:
            gap = bucket.coordinator_gaps.get(partition.partition)
            if gap is not None and start <= _read_from(gap):  # an older request may start above the gap
                del bucket.coordinator_gaps[partition.partition]
                bucket.rereading[partition.partition] = wider(gap, bucket.rereading.get(partition.partition, gap))
            continue
        gap = bucket.gaps.get(partition)
        if isinstance(gap, int) and start <= gap:
            del bucket.gaps[partition]
        if start <= bucket.left.get(partition, start):
            bucket.left.pop(partition, None)
    brackets = batch.brackets()
    for partition in [partition for partition, gap in bucket.gaps.items() if gap is Remedy.CENSUS]:
        bracket = brackets.of(partition)
        if bracket is not None and bracket.is_scanned:
            del bucket.gaps[partition]


def _read_from(gap: Gap) -> int:
    """Where a read must begin that closes a gap of the coordinators' log."""
    return gap if isinstance(gap, int) else 0


def as_read(bucket: BucketState, partition: TopicPartition, bracket: CensusListing | None) -> CensusListing | None:
    """The bracket, corrected by what the state knows to be unread; the planner of the census may not know it."""
    if bracket is None or not bracket.is_scanned:
        return bracket
    is_unread = partition in bucket.left or isinstance(bucket.gaps.get(partition), int)
    return bracket._replace(is_scanned=False, is_behind=True) if is_unread else bracket


def note_gaps(bucket: BucketState, notices: Iterable[PartitionNotice]) -> None:
    """Records what could not be read in this batch."""
    visible = [notice for notice in notices if notice.kind is not NoticeKind.HIDDEN]
    gone = {(notice.partition, notice.topic_id) for notice in visible if notice.kind is NoticeKind.DELETED}
    for partition, _ in gone:
        bucket.gaps.pop(partition, None)
        bucket.left.pop(partition, None)
        if partition.topic == TRANSACTION_STATE_TOPIC:
            bucket.coordinator_gaps.pop(partition.partition, None)
            bucket.rereading[partition.partition] = Remedy.RECREATED
            bucket.clocks.reigns.pop(partition.partition, None)  # the epochs of a new log start again
    for notice in visible:
        partition = notice.partition
        is_unread = notice.kind in READ_LATER
        if (partition, notice.topic_id) in gone:
            continue  # a new topic of the same name has its own gaps, whatever the order
        if partition.topic == TRANSACTION_STATE_TOPIC:
            wanted: Gap = notice.from_offset if is_unread else Remedy.NEW_READING
            known = bucket.coordinator_gaps.get(partition.partition, wanted)
            bucket.coordinator_gaps[partition.partition] = wider(wanted, known)
        elif notice.kind is NoticeKind.LEFT:
            bucket.left[partition] = min(notice.from_offset, bucket.left.get(partition, notice.from_offset))
        else:
            wanted = notice.from_offset if is_unread else Remedy.CENSUS
            bucket.gaps[partition] = wider(wanted, bucket.gaps.get(partition, wanted))


def note_hidden(bucket: BucketState, batch: Batch) -> Iterator[TopicPartition]:
    """Hidden partitions that the planner does not know yet; those it knows are in `stale_data`."""
    number = batch.barrier.number
    for notice in batch.notices:
        if notice.kind is NoticeKind.HIDDEN:
            bucket.hidden[notice.partition] = number
    for partition, since in list(bucket.hidden.items()):
        if partition in batch.barrier.stale_data or number - since > _ASKED_AGAIN:
            del bucket.hidden[partition]
        else:
            yield partition


def note_undescribed(bucket: BucketState, batch: Batch) -> list[TopicPartition]:
    """Scanned partitions to be described again, because their last census failed.

    If retention has removed the beginning of a transaction, only that census shows it. A leader that is briefly not
    available must not hide it until the next regular census.
    """
    for notice in batch.notices:
        if notice.kind is NoticeKind.DELETED:
            bucket.undescribed.discard(notice.partition)
    for census in batch.censuses:
        bucket.undescribed |= census.failed_scanned
    brackets = batch.brackets()
    bucket.undescribed = {partition for partition in bucket.undescribed if brackets.of(partition) is None}
    return sorted(bucket.undescribed)


def note_holes(bucket: BucketState, batch: Batch) -> None:
    """Records compaction holes of the coordinators' log for later batches; this batch's folds know them already."""
    for log_partition, end in batch.barrier.holes.items():
        bucket.holes[log_partition] = max(end, bucket.holes.get(log_partition, end))


def pass_over(bucket: BucketState, view: CoordinatorView) -> None:
    """Records a hole for a record that is skipped: never carry the known state of its id across it."""
    end = view.log_offset + 1
    bucket.holes[view.log_partition] = max(end, bucket.holes.get(view.log_partition, end))


def is_before_hole(bucket: BucketState, view: CoordinatorView | None) -> bool:
    """Whether records are missing between a view and what is read from now on, or it is of an earlier reading."""
    if view is None:
        return False
    is_earlier = view.reading < bucket.readings.get(view.log_partition, 0)
    return is_earlier or view.is_unseen or view.log_offset < bucket.holes.get(view.log_partition, 0)


def recreated_logs(bucket: BucketState) -> dict[int, int]:
    """Partitions of a re-created log that is not completely read yet, with the number of the new reading."""
    return {
        number: bucket.readings.get(number, 0) for number, gap in bucket.rereading.items() if gap is Remedy.RECREATED
    }


def finished_readings(bucket: BucketState, batch: Batch) -> Iterator[int]:
    """Ends re-reads of coordinator partitions that are finished; yields those that were read as a whole."""
    for log_partition, gap in list(bucket.rereading.items()):
        unread = batch.barrier.stale_coordinator | bucket.coordinator_gaps.keys()
        if unread if gap is Remedy.RECREATED else log_partition in unread:
            continue
        del bucket.rereading[log_partition]
        if isinstance(gap, Remedy):
            yield log_partition
