"""Ranges that were listed and not read: noted, closed by a re-read that reaches them, and what follows from either.

Two kinds: a gap is what could not be read; left is what a batch did not come to, because it had read as much as it
may.

Law: as long as one stands the log proves nothing on its partition. A data partition whose log was cut or is lost in
part cannot be made whole by reading; it waits for a census. A partition of the coordinator's log that was cut is read
again from its beginning as another reading, and what that does not show is gone. So is one whose topic was re-created;
that may have other partitions, so nothing is known to be gone before all of them are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from txnwatch.state.detection.batch import Batch
from txnwatch.state.detection.bucket_state import FROM_BEGINNING, MADE_ANEW, NEEDS_CENSUS, BucketState
from txnwatch.state.model.broker_clocks import NOT_LISTED_MS, was_listed
from txnwatch.state.model.facts import (
    READ_LATER,
    Barrier,
    Bracket,
    NoticeKind,
    PartitionNotice,
    ProducerSeen,
    TransactionSeen,
)
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.model.transaction import CoordinatorView

_ASKED_AGAIN = 10  # barriers: a wish is lost now and then, and what is gone need not be asked for for ever


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
        if notice.partition.topic == TRANSACTION_STATE_TOPIC and notice.kind not in READ_LATER
    ]
    for log_partition in (*begun, *cut):
        bucket.readings[log_partition] = bucket.readings.get(log_partition, 0) + 1
        bucket.holes.pop(log_partition, None)  # nothing of an earlier reading leads on, and offsets may begin anew


def in_reading(
    seen: ProducerSeen | TransactionSeen, bucket: BucketState, barrier: Barrier
) -> ProducerSeen | TransactionSeen:
    """The fact, with the number of the reading its log partition is in and with when it was seen."""
    if isinstance(seen, ProducerSeen):
        return seen
    reading = bucket.readings.get(seen.view.log_partition, 0)
    since_ms = barrier.coordinator_listed_ms if was_listed(seen.view, barrier) else NOT_LISTED_MS
    view = replace(seen.view, reading=reading, since_ms=since_ms)
    return TransactionSeen(seen.producer_id, view, seen.held, seen.ended, seen.first_end, seen.is_past)


def read_again(bucket: BucketState, batch: Batch) -> set[int]:
    """Partitions of the coordinator's log that are being read from their beginning once more."""
    begun = {
        partition.partition
        for partition, start in batch.barrier.reread.items()
        if partition.topic == TRANSACTION_STATE_TOPIC and start <= 0
    }
    return begun | {number for number, gap in bucket.rereading.items() if gap in {FROM_BEGINNING, MADE_ANEW}}


def unread_before(bucket: BucketState, batch: Batch) -> set[TopicPartition]:
    """Partitions of which something is missing between what is known and what this batch has read."""
    logs = bucket.coordinator_gaps.keys() | bucket.rereading.keys()
    back = batch.barrier.reread
    return {
        *bucket.gaps,
        *(partition for partition, start in bucket.left.items() if partition not in back or back[partition] > start),
        *(notice.partition for notice in batch.notices if notice.kind is not NoticeKind.LEFT),
        *(TopicPartition(TRANSACTION_STATE_TOPIC, log_partition) for log_partition in logs),
    }


def close_gaps(bucket: BucketState, batch: Batch) -> None:
    """Gaps that a re-read or a census of this batch reaches; if it failed again, `note_gaps` brings them back."""
    for partition, start in batch.barrier.reread.items():
        if partition.topic == TRANSACTION_STATE_TOPIC:
            gap = bucket.coordinator_gaps.get(partition.partition)
            if gap is not None and start <= max(gap, 0):  # a wish may be older than the gap: then it does not reach it
                del bucket.coordinator_gaps[partition.partition]
                bucket.rereading[partition.partition] = min(gap, bucket.rereading.get(partition.partition, gap))
            continue
        if start <= bucket.gaps.get(partition, start) and bucket.gaps.get(partition) != NEEDS_CENSUS:
            bucket.gaps.pop(partition, None)
        if start <= bucket.left.get(partition, start):
            bucket.left.pop(partition, None)
    for partition, bracket in batch.brackets():
        if bracket.is_scanned and bucket.gaps.get(partition) == NEEDS_CENSUS:
            del bucket.gaps[partition]


def as_read(bucket: BucketState, partition: TopicPartition, bracket: Bracket) -> Bracket:
    """The bracket as far as reading has really come: who planned the census may not have known of what is unread."""
    is_unread = partition in bucket.left or bucket.gaps.get(partition, NEEDS_CENSUS) != NEEDS_CENSUS
    return bracket._replace(is_scanned=False, is_behind=True) if bracket.is_scanned and is_unread else bracket


def note_gaps(bucket: BucketState, notices: Iterable[PartitionNotice]) -> None:
    """What could not be read in this batch."""
    told = [notice for notice in notices if notice.kind is not NoticeKind.HIDDEN]
    gone = {(notice.partition, notice.topic_id) for notice in told if notice.kind is NoticeKind.DELETED}
    for partition, _ in gone:
        bucket.gaps.pop(partition, None)
        bucket.left.pop(partition, None)
        if partition.topic == TRANSACTION_STATE_TOPIC:
            bucket.coordinator_gaps.pop(partition.partition, None)
            bucket.rereading[partition.partition] = MADE_ANEW
    for notice in told:
        partition = notice.partition
        is_unread = notice.kind in READ_LATER
        if (partition, notice.topic_id) in gone:
            continue  # a topic of the same name may have come since: its gaps are its own, whatever the order
        if partition.topic == TRANSACTION_STATE_TOPIC:
            wanted = notice.from_offset if is_unread else FROM_BEGINNING
            known = bucket.coordinator_gaps.get(partition.partition, wanted)
            bucket.coordinator_gaps[partition.partition] = min(wanted, known)
        elif notice.kind is NoticeKind.LEFT:
            bucket.left[partition] = min(notice.from_offset, bucket.left.get(partition, notice.from_offset))
        else:
            wanted = notice.from_offset if is_unread else NEEDS_CENSUS
            bucket.gaps[partition] = min(wanted, bucket.gaps.get(partition, wanted))


def note_hidden(bucket: BucketState, batch: Batch) -> Iterator[TopicPartition]:
    """Partitions that are hidden and that the planner does not know of yet; it carries those it knows as not told."""
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

    What retention has taken the beginning of is known by that census alone, and a leader that is away for a moment
    must not hide it until the next healing one.
    """
    for notice in batch.notices:
        if notice.kind is NoticeKind.DELETED:
            bucket.undescribed.discard(notice.partition)
    for census in batch.censuses:
        bucket.undescribed |= census.failed_scanned
    bucket.undescribed -= {partition for partition, _ in batch.brackets()}
    return sorted(bucket.undescribed)


def note_holes(bucket: BucketState, batch: Batch) -> None:
    """Where compaction has been in the coordinator's log, for batches to come: the folds of this one have seen it."""
    for log_partition, end in batch.barrier.holes.items():
        bucket.holes[log_partition] = max(end, bucket.holes.get(log_partition, end))


def pass_over(bucket: BucketState, view: CoordinatorView) -> None:
    """A record that is not taken in leaves a hole: what is known of its id, if anything, does not lead past it."""
    bucket.holes[view.log_partition] = max(view.log_offset + 1, bucket.holes.get(view.log_partition, 0))


def is_before_hole(bucket: BucketState, view: CoordinatorView | None) -> bool:
    """Whether records are missing between a view and what is read from now on, or it is of an earlier reading."""
    if view is None:
        return False
    is_earlier = view.reading < bucket.readings.get(view.log_partition, 0)
    return is_earlier or view.log_offset < bucket.holes.get(view.log_partition, 0)


def made_anew(bucket: BucketState) -> dict[int, int]:
    """Partitions of a log that was re-created and is not read as a whole yet, with the number of the new reading."""
    return {number: bucket.readings.get(number, 0) for number, gap in bucket.rereading.items() if gap == MADE_ANEW}


def finished_readings(bucket: BucketState, batch: Batch) -> Iterator[int]:
    """Coordinator partitions whose re-read has reached its end; those that were read as a whole."""
    for log_partition, gap in list(bucket.rereading.items()):
        unread = batch.barrier.stale_coordinator | bucket.coordinator_gaps.keys()
        if unread if gap == MADE_ANEW else log_partition in unread:
            continue
        del bucket.rereading[log_partition]
        if gap in {FROM_BEGINNING, MADE_ANEW}:
            yield log_partition
