"""What is known about the reading of the logs: facts of a batch, gaps, unreadable ranges, offsets that do not move."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView
from typing import Any, get_args

from msgspec.structs import replace

from txnwatch.state.detection.bucket_state import BucketState, Failing, Standing
from txnwatch.state.model.clocks import both, was_listed
from txnwatch.state.model.facts import (
    KEEPS_WHAT_IS_KNOWN,
    READ_LATER,
    Barrier,
    CensusListing,
    CensusTaken,
    Fact,
    LastStable,
    LogRead,
    NoticeKind,
    OpenDescribed,
    PartitionNotice,
    ProducerSeen,
    Throttled,
    TransactionalIdGone,
    TransactionSeen,
)
from txnwatch.state.model.findings import BlockedOffset
from txnwatch.state.model.transaction import CoordinatorView
from txnwatch.state.model.values import (
    NO_BARRIER,
    TRANSACTION_STATE_TOPIC,
    BarrierNumber,
    Gap,
    Remedy,
    TimestampMs,
    TopicPartition,
    wider,
)
from txnwatch.state.model.verdicts import DetectionPolicy

# The facts of one batch, sorted: they are always applied in the same order, whatever order they arrive in.
#
# First come partition-wide facts, then the facts of each log by offset, then the tombstones of the coordinators' log,
# then the census, then the barrier. A tombstone is the last record of an id, so the records before it count first.


class Batch:
    """One batch, sorted.

    Raises:
        ValueError: it does not have exactly one barrier fact.
    """

    def __init__(self, facts: Iterable[Fact]) -> None:
        sorts: dict[type, list[Any]] = {kind: [] for kind in get_args(Fact)}
        for fact in facts:
            sorts[type(fact)].append(fact)
        if len(sorts[Barrier]) != 1:
            raise ValueError(f"expected one barrier fact in a batch, found {len(sorts[Barrier])}")
        self.barrier = _with_what_others_read(sorts[Barrier][0], sorts[LogRead])
        self.notices: list[PartitionNotice] = list(dict.fromkeys(sorts[PartitionNotice]))  # without duplicates
        self.censuses: list[CensusTaken] = sorts[CensusTaken]
        self.described: list[OpenDescribed] = sorts[OpenDescribed]
        self.last_stable: list[LastStable] = sorts[LastStable]
        self.throttled: list[Throttled] = sorts[Throttled]
        self.gone: list[TransactionalIdGone] = sorts[TransactionalIdGone]
        self.for_one: tuple[ProducerSeen | TransactionSeen, ...] = (
            *sorted(sorts[ProducerSeen], key=lambda fact: (fact.partition, fact.range_start)),
            *sorted(sorts[TransactionSeen], key=lambda fact: (fact.view.log_partition, fact.view.log_offset)),
        )

    @property
    def for_awaited(self) -> tuple[PartitionNotice, ...]:
        """Facts that concern every producer with something open; they are applied first."""
        return tuple(notice for notice in self.notices if notice.kind not in KEEPS_WHAT_IS_KNOWN)

    def brackets(self) -> Brackets:
        """The brackets of the batch's census, with the notices as they are now."""
        return Brackets(self.censuses, self.notices)


class Brackets:
    """The partitions for which the batch's census is valid, and those that a complete round did not find.

    Law: a round describes all partitions, and every bucket has it. So a bucket only looks up its own partitions.

    A census is not valid if the log has changed since the census was planned, or if the log should be read as far as
    the census reaches and was not. A census that does not depend on reading stays valid after a loss: a partition
    that is behind may lose a range in every batch, and the leader still knows what is open. If a range could not be
    read, the census replaces the log, whatever was planned; this can also happen in every batch. The deletion of a
    topic does not make the census of a new topic with the same name invalid.
    """

    def __init__(self, censuses: Iterable[CensusTaken], notices: Iterable[PartitionNotice]) -> None:
        self._censuses, noticed = tuple(censuses), tuple(notices)
        harmless = KEEPS_WHAT_IS_KNOWN | {NoticeKind.LOST, NoticeKind.DELETED}
        read = {NoticeKind.GAP, NoticeKind.DELETED}
        self._changed = {notice.partition for notice in noticed if notice.kind not in harmless}
        self._failed = {notice.partition for notice in noticed if notice.kind is NoticeKind.GAP}
        self._unread = {notice.partition for notice in noticed if notice.kind not in read}
        deleted = (notice for notice in noticed if notice.kind is NoticeKind.DELETED)
        self._gone = {(notice.partition, notice.topic_id) for notice in deleted}
        self._noticed = {notice.partition for notice in noticed}
        self._is_round = any(census.is_round for census in self._censuses)

    def of(self, partition: TopicPartition) -> CensusListing | None:
        """The bracket of a partition; None if the census is not valid for it, or has not described it."""
        for census in reversed(self._censuses):
            bracket = census.taken.get(partition)
            if bracket is None or partition in (self._unread if bracket.is_scanned else self._changed):
                continue
            if (partition, bracket.topic_id) not in self._gone:
                is_planned = bracket.is_scanned and partition in self._failed
                return bracket._replace(is_scanned=False, is_behind=True) if is_planned else bracket
        return None

    def described(self, partitions: KeysView[TopicPartition]) -> set[TopicPartition]:
        """Those of some partitions that the census has described; costs as much as the smaller of the two."""
        return set().union(*(partitions & census.taken.keys() for census in self._censuses))

    def missing(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those of some partitions that no longer exist, as a complete round of the census found."""
        return set(filter(self.is_missing, partitions)) if self._is_round else set()

    def is_missing(self, partition: TopicPartition) -> bool:
        """Whether a complete round of the census found that a partition no longer exists."""
        if not self._is_round or partition in self._noticed:
            return False
        is_known = any(partition in census.taken or partition in census.failed for census in self._censuses)
        return not is_known


def _with_what_others_read(barrier: Barrier, reads: Iterable[LogRead]) -> Barrier:
    """The barrier as if one task had read the whole log."""
    holes, clocks, elected = dict(barrier.holes), dict(barrier.clocks), barrier.elected
    for read in reads:
        holes.update(read.holes)
        elected |= read.elected
        for broker, clock in read.clocks.items():
            clocks[broker] = both(clocks.get(broker), clock)
    return replace(barrier, holes=holes, clocks=clocks, elected=elected)


# Ranges that were listed and not read: how they are recorded, how a re-read closes them, and what follows.
#
# There are two kinds: a gap could not be read; `left` is what a batch did not reach because of its read limit.
#
# Law: as long as one exists, the log proves nothing on its partition. If a data partition was truncated, or has lost a
# range, reading cannot make it complete; it waits for a census. A truncated partition of the coordinators' log is read
# again from its beginning, as another reading, and what that does not show is gone. The same applies if its topic was
# re-created. The new topic may have other partitions, so nothing counts as gone before all of them are read.

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


# At which barrier a data partition was last read to its listed end: what is read after that began after that listing.
#
# An outcome rests on this (state/evidence/outcome.py): a span that began after an end D, which was listed after the
# coordinators' log already had its present leader, has no owner whose record an earlier election can have removed.
#
# Nearly all partitions are read to their end in every batch, and then the last barrier is the one before. So the state
# keeps the number only for a partition that is not.
#
# Law: the number is never too high. It stays while the partition is not listed, not read to its end, or has a gap.
# After a truncation or a loss, reading does not continue where it ended, so no barrier counts for that batch, nor for
# the next ones until the partition is read whole. None counts for the batch in which reading begins, nor for a range
# that is read again although the state has read it.
#
# Pure: no I/O, no clock.


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


# Ranges that their leader lists and repeatedly cannot read: a bad disk, remote storage that does not answer.
#
# Law: a data range that failed several times over a while counts as lost. Then a census can make its partition
# complete. Without this rule, the partition would never be complete. If the log can be read again later, nothing is
# wrong: the census has shown what was open. No census can replace the coordinators' log: it is retried for ever with
# growing pauses, and what depends on it stays unproven.


def give_up(bucket: BucketState, batch: Batch, policy: DetectionPolicy) -> None:
    """Turns the notices of ranges that have failed for too long into notices of lost ranges."""
    failed = {notice.partition for notice in batch.notices if notice.kind is NoticeKind.GAP}
    over = {notice.partition for notice in batch.notices if notice.kind is NoticeKind.DELETED}
    for partition in (batch.barrier.reread.keys() - failed) | over:
        bucket.failing.pop(partition, None)
    batch.notices = [
        _looked_at(bucket, notice, batch.barrier.coordinator_listed_ms, policy) for notice in batch.notices
    ]


def _looked_at(
    bucket: BucketState, notice: PartitionNotice, now_ms: TimestampMs, policy: DetectionPolicy
) -> PartitionNotice:
    partition = notice.partition
    if notice.kind is not NoticeKind.GAP:
        return notice
    if partition.topic == TRANSACTION_STATE_TOPIC:
        return replace(
            notice, detail=f"{notice.detail}; a census cannot replace this log: verdicts that need it are unproven"
        )
    known = bucket.failing.get(partition, Failing(0, now_ms))
    times, for_ms = known.times + 1, now_ms - known.since_ms
    if times < policy.unreadable_tries or for_ms < policy.unreadable_ms:
        bucket.failing[partition] = Failing(times, known.since_ms)
        return notice
    bucket.failing.pop(partition, None)
    detail = f"given up after {times} tries in {for_ms // 1000} s; a census will show what is open: {notice.detail}"
    return replace(notice, kind=NoticeKind.LOST, detail=detail, is_decode_failure=False)


# Last stable offsets that do not move: since when, and which of them are blocked.
#
# A last stable offset below the end of its partition is reported in each batch that reads the partition. The bucket
# that reports on partitions keeps it until it is not reported for a while: it has reached the end, or nothing is
# written above it.
#
# Law: an offset that does not move and is reported in every batch changes nothing that is stored. So the time of the
# last report is not kept, only the time of the first barrier without one.


def note_last_stable(bucket: BucketState, batch: Batch, policy: DetectionPolicy) -> None:
    """Records what the batch reports about last stable offsets."""
    now_ms, reported = batch.barrier.coordinator_listed_ms, set()
    for stable in batch.last_stable:
        reported.add(stable.partition)
        known = bucket.standing.get(stable.partition)
        if known is None or known.offset != stable.offset:
            bucket.standing[stable.partition] = Standing(stable.offset, now_ms)
        elif not known.is_repeated or known.silent_ms is not None:
            bucket.standing[stable.partition] = known._replace(is_repeated=True, silent_ms=None)
    for partition, standing in list(bucket.standing.items()):
        if partition in reported:
            continue
        if standing.silent_ms is None:
            bucket.standing[partition] = standing._replace(silent_ms=now_ms)
        elif now_ms - standing.silent_ms >= policy.blocked_offset_ms:
            del bucket.standing[partition]


def blocked_offsets(bucket: BucketState, now_ms: TimestampMs, policy: DetectionPolicy) -> tuple[BlockedOffset, ...]:
    """Those that have not moved for a while; the transaction that holds one may be in any bucket.

    One report alone does not count: a transaction that ended before the next batch also leaves one.
    """
    return tuple(
        BlockedOffset(partition, standing.offset)
        for partition, standing in sorted(bucket.standing.items())
        if standing.is_repeated and now_ms - standing.since_ms >= policy.blocked_offset_ms
    )
