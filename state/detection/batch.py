"""One batch in a bucket: its facts, sorted, and what they show about the readings of the bucket's partitions.

The facts are always applied in the same order, whatever order they arrive in. First come partition-wide facts, then the
facts of each log by offset, then the tombstones of the coordinators' log, then the census, then the barrier. A
tombstone is the last record of an id, so the records before it count first.

`reading.py` has the value for one partition and its table. This file finds the events of a batch, in the order in which
they count, and answers what the phases of bucket.py ask about the readings. No I/O, no clock; it changes the
readings of the bucket, the notices of the batch, and who has led a partition of the log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, KeysView
from operator import attrgetter
from typing import Any, get_args

from msgspec.structs import replace

from txnwatch.state.detection.broker_clocks import first_listed_ms
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.detection.reading import (
    OF_DATA,
    OF_LOG,
    UNREAD,
    Lack,
    LackSince,
    ReadEvent,
    ReadingEffect,
    Standing,
    after,
)
from txnwatch.state.model.clocks import both
from txnwatch.state.model.facts import (
    KEEPS_WHAT_IS_KNOWN,
    READ_LATER,
    Barrier,
    CensusListing,
    CensusTaken,
    CompletionTimes,
    DataRead,
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
from txnwatch.state.model.transaction import CoordinatorView
from txnwatch.state.model.values import (
    FIRST_OFFSET,
    NO_BARRIER,
    BarrierNumber,
    Offset,
    PartitionOffset,
    ProducerId,
    TimestampMs,
    TopicPartition,
    is_log,
)
from txnwatch.state.model.verdicts import DetectionPolicy


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
        self.data_read: list[DataRead] = sorts[DataRead]
        self.completion_times: list[CompletionTimes] = sorts[CompletionTimes]
        self.gone: list[TransactionalIdGone] = sorts[TransactionalIdGone]
        self.ranges: dict[ProducerId, list[ProducerSeen]] = defaultdict(list)
        for seen in sorted(sorts[ProducerSeen], key=_place_of_range):
            self.ranges[seen.producer_id].append(seen)
        self.records: list[TransactionSeen] = sorted(sorts[TransactionSeen], key=_place_of_record)

    @property
    def for_awaited(self) -> tuple[PartitionNotice, ...]:
        """Facts that concern every producer with something open; they are applied first."""
        return tuple(notice for notice in self.notices if notice.kind not in KEEPS_WHAT_IS_KNOWN)

    def valid_listings(self, unread: Iterable[TopicPartition] = ()) -> ValidListings:
        """The valid listings of the batch's census, with the notices as they are now; see there for `unread`."""
        return ValidListings(self.censuses, self.notices, unread)


_place_of_range = attrgetter("partition", "range_start")
_place_of_record = attrgetter("view.log_partition", "view.log_offset")


class ValidListings:
    """The partitions for which the batch's census is valid, and those that a complete round did not find.

    Law: a round describes all partitions, and every bucket has it. So a bucket only looks up its own partitions.

    A census is not valid if the log has changed since the census was planned, or if the log should be read as far as
    the census reaches and was not. A census that does not depend on reading stays valid after a loss: a partition
    that is behind may lose a range in every batch, and the leader still knows what is open. If a range could not be
    read, the census replaces the log, whatever was planned; this can also happen in every batch. The deletion of a
    topic does not make the census of a new topic with the same name invalid.

    `unread` are the partitions with a range or a rest that the state knows to be unread; the planner of the census may
    not know it.
    """

    def __init__(
        self,
        censuses: Iterable[CensusTaken],
        notices: Iterable[PartitionNotice],
        unread: Iterable[TopicPartition] = (),
    ) -> None:
        self._censuses, noticed = tuple(censuses), tuple(notices)
        harmless = KEEPS_WHAT_IS_KNOWN | {NoticeKind.LOST, NoticeKind.DELETED}
        read = {NoticeKind.GAP, NoticeKind.DELETED}
        self._changed = {notice.partition for notice in noticed if notice.kind not in harmless}
        self._failed = {notice.partition for notice in noticed if notice.kind is NoticeKind.GAP}.union(unread)
        self._unread = {notice.partition for notice in noticed if notice.kind not in read}
        deleted = (notice for notice in noticed if notice.kind is NoticeKind.DELETED)
        self._gone = {(notice.partition, notice.topic_id) for notice in deleted}
        self._noticed = {notice.partition for notice in noticed}
        self._found: dict[TopicPartition, CensusListing | None] = {}
        self.is_round = any(census.is_round for census in self._censuses)

    def of(self, partition: TopicPartition) -> CensusListing | None:
        """The listing of a partition; None if the census is not valid for it, or has not described it."""
        if partition not in self._found:
            self._found[partition] = self._find(partition)
        return self._found[partition]

    def _find(self, partition: TopicPartition) -> CensusListing | None:
        for census in reversed(self._censuses):
            listing = census.taken.get(partition)
            if listing is None or partition in (self._unread if listing.is_scanned else self._changed):
                continue
            if (partition, listing.topic_id) not in self._gone:
                is_planned = listing.is_scanned and partition in self._failed
                return listing._replace(is_scanned=False, is_behind=True) if is_planned else listing
        return None

    def described(self, partitions: KeysView[TopicPartition]) -> set[TopicPartition]:
        """Those of some partitions that the census has described; costs as much as the smaller of the two."""
        return set().union(*(partitions & census.taken.keys() for census in self._censuses))

    def missing(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those of some partitions that a complete round of the census does not have."""
        return set(filter(self.is_missing, partitions)) if self.is_round else set()

    def is_missing(self, partition: TopicPartition) -> bool:
        """Whether a complete round of the census does not have a partition: it is deleted, or hidden."""
        if not self.is_round or partition in self._noticed:
            return False
        is_known = any(partition in census.taken or partition in census.failed for census in self._censuses)
        return not is_known


def _with_what_others_read(barrier: Barrier, reads: Iterable[LogRead]) -> Barrier:
    """The barrier as if one task had read the whole log."""
    holes, clocks, elected = dict(barrier.holes), dict(barrier.clocks), barrier.elected
    last_batches, rechecked = dict(barrier.last_batches), dict(barrier.rechecked)
    for read in reads:
        holes.update(read.holes)
        elected |= read.elected
        last_batches.update(read.last_batches)
        rechecked.update(read.rechecked)
        for broker, clock in read.clocks.items():
            clocks[broker] = both(clocks.get(broker), clock)
    return replace(barrier, holes=holes, clocks=clocks, elected=elected, last_batches=last_batches, rechecked=rechecked)


# Ranges that their leader lists and repeatedly cannot read: a bad disk, remote storage that does not answer.
#
# Law: a data range that failed several times over a while counts as lost. Then a census can make its partition
# complete. Without this rule, the partition would never be complete. If the log can be read again later, nothing is
# wrong: the census has shown what was open. No census can replace the coordinators' log: it is retried for ever with
# growing pauses, and what depends on it stays unproven.


def give_up(bucket: BucketState, batch: Batch, policy: DetectionPolicy) -> None:
    """Turns the notices of ranges that have failed for too long into notices of lost ranges."""
    tries: dict[TopicPartition, int] = {}
    for number, notice in enumerate(batch.notices):
        if notice.kind is NoticeKind.GAP:
            tries[notice.partition] = tries.get(notice.partition, 0) + 1
            batch.notices[number] = _looked_at(bucket, notice, tries[notice.partition], batch.barrier, policy)


def _looked_at(
    bucket: BucketState, notice: PartitionNotice, tries: int, barrier: Barrier, policy: DetectionPolicy
) -> PartitionNotice:
    """The notice of a gap, after so many tries in this batch."""
    if is_log(notice.partition):
        return replace(
            notice, detail=f"{notice.detail}; a census cannot replace this log: verdicts that need it are unproven"
        )
    now_ms, lack_since = barrier.coordinator_listed_ms, bucket.reading(notice.partition).lacks.get(Lack.RANGE)
    times = tries if lack_since is None else lack_since.times + tries
    for_ms = now_ms - (now_ms if lack_since is None else lack_since.since_ms)
    if times < policy.unreadable_tries or for_ms < policy.unreadable_ms:
        return notice
    detail = f"given up after {times} tries in {for_ms // 1000} s; a census will show what is open: {notice.detail}"
    return replace(notice, kind=NoticeKind.LOST, detail=detail, is_decode_failure=False)


# A leader that has another log than the one that was read.
#
# Another leader may have lost what was read and have other records at the same offsets: a replica that was away leads,
# by an unclean election, with a log of its own; or, before Kafka 4.0, the same leader has lost its power, its tail and
# its memory. If the tail has grown again, neither the end of the log nor the epochs of the answers show it. So after
# each change of a leader, the batch that was read last is read again and compared.


def notice_other_logs(bucket: BucketState, batch: Batch) -> None:
    """Adds a notice for each partition of the coordinators' log of which the last batch is not the one that was read.

    A batch that cannot be read again may be gone by compaction; it proves nothing, so the log counts as another one.
    """
    for log, rechecked in batch.barrier.rechecked.items():
        last_read = bucket.reading(log).last_batch
        if last_read is not None and last_read != rechecked:
            detail = "the leader has changed, and the batch that was read last is another one there, or is gone"
            batch.notices.append(PartitionNotice(NoticeKind.TRUNCATED, log, "", FIRST_OFFSET, FIRST_OFFSET, detail))


def note_last_batches(bucket: BucketState, barrier: Barrier) -> None:
    """Records the last batch that was read of each partition of the coordinators' log."""
    for log, last in barrier.last_batches.items():
        reading = bucket.reading(log)
        if reading.last_batch != last:
            bucket.keep_reading(log, replace(reading, last_batch=last))


# The events of a batch, in the order in which they count.
#
# First what the batch has read again, and what a census describes; then what could not be read. So a range that has
# failed again is lacking again.


def follow(bucket: BucketState, batch: Batch, *, reports_partitions: bool) -> set[TopicPartition]:
    """Changes the readings by what a batch shows; returns the logs of which a new reading is complete.

    Only the bucket that reports on partitions requests censuses of those that are hidden or were not described.
    """
    barrier, finished = batch.barrier, set[TopicPartition]()
    for partition, event, at in _events(bucket, batch, reports_partitions=reports_partitions):
        shown = LackSince(at, barrier.number, 1, barrier.coordinator_listed_ms)
        reading, effects = after(bucket.reading(partition), event, shown)
        bucket.keep_reading(partition, reading)
        if event is ReadEvent.REPLACED:
            bucket.clocks.reigns.pop(partition, None)  # the epochs of a new log start again
        if ReadingEffect.FORGET in effects:
            finished.add(partition)
    return finished


_Event = tuple[TopicPartition, ReadEvent, Offset]


def _events(bucket: BucketState, batch: Batch, *, reports_partitions: bool) -> Iterator[_Event]:
    """The events of a batch; each one counts before the next one is found."""
    for partition, start in batch.barrier.reread.items():
        yield partition, ReadEvent.READ_AGAIN, start
    valid_listings = batch.valid_listings()
    for partition in bucket.lacking(Lack.CENSUS):
        listing = valid_listings.of(partition)
        if listing is not None and listing.is_scanned:
            yield partition, ReadEvent.DESCRIBED_AS_READ, FIRST_OFFSET
    for partition in sorted(batch.barrier.looked_at):
        yield partition, ReadEvent.LET_GO, FIRST_OFFSET
    yield from _noticed(batch, reports_partitions=reports_partitions)
    for partition in sorted(batch.barrier.first_readings):
        yield partition, ReadEvent.BEGINS, FIRST_OFFSET
    if reports_partitions:
        for partition in sorted({partition for census in batch.censuses for partition in census.failed_scanned}):
            yield partition, ReadEvent.UNDESCRIBED, FIRST_OFFSET
        for partition in bucket.lacking(Lack.DESCRIPTION):
            if valid_listings.of(partition) is not None:
                yield partition, ReadEvent.DESCRIBED, FIRST_OFFSET
        yield from _named(bucket, batch.barrier)
    yield from _reached(bucket, batch.barrier)


def _noticed(batch: Batch, *, reports_partitions: bool) -> Iterator[_Event]:
    gone = {(notice.partition, notice.topic_id): None for notice in batch.notices if notice.kind is NoticeKind.DELETED}
    for partition, _ in gone:
        yield partition, (OF_LOG if is_log(partition) else OF_DATA)[NoticeKind.DELETED], FIRST_OFFSET
    for notice in batch.notices:
        if (notice.partition, notice.topic_id) in gone:
            continue  # a new topic of the same name has its own gaps, whatever the order
        event = (OF_LOG if is_log(notice.partition) else OF_DATA).get(notice.kind)
        if event is not None and (reports_partitions or event is not ReadEvent.HIDDEN):
            yield notice.partition, event, notice.from_offset if notice.kind in READ_LATER else FIRST_OFFSET


_ASKED_AGAIN = 10  # barriers: a request can be lost, so it is repeated; it ends, because the partition may be gone


def _named(bucket: BucketState, barrier: Barrier) -> Iterator[_Event]:
    for partition in bucket.lacking(Lack.NAME):
        if partition in barrier.stale_data:
            yield partition, ReadEvent.LISTED, FIRST_OFFSET
        elif barrier.number - bucket.reading(partition).lacks[Lack.NAME].barrier > _ASKED_AGAIN:
            yield partition, ReadEvent.UNANSWERED, FIRST_OFFSET


def _reached(bucket: BucketState, barrier: Barrier) -> Iterator[_Event]:
    """What is read to its listed end. Of data, the barrier itself names what is not."""
    unread = barrier.stale_coordinator.union(filter(is_log, bucket.lacking(*UNREAD)))
    for partition in bucket.lacking(Lack.RANGE_BEGUN, Lack.NEW_READING_BEGUN, Lack.RECREATED, Lack.FIRST_READING):
        if partition not in unread:
            yield partition, ReadEvent.REACHED, FIRST_OFFSET
        if is_log(partition) and not unread:
            yield partition, ReadEvent.ALL_REACHED, FIRST_OFFSET


# What the facts of a batch follow: what was known about the readings before it.
#
# For data, that includes at which barrier its partition was last read to its listed end: what is read after that began
# after that listing. An outcome rests on this (state/evidence/outcome.py): a span that began after an end D, which was
# listed after the coordinators' log already had its present leader, has no owner whose record an earlier election can
# have removed.
#
# Nearly all partitions are read to their end in every batch, and then the last barrier is the one before. So the state
# keeps the number only for a partition that is not.
#
# Law: the number is never too high. It stays while the partition is not listed, not read to its end, or has a gap.
# After a truncation or a loss, reading does not continue where it ended, so no barrier counts for that batch, nor for
# the next ones until the partition is read whole. None counts for the batch in which reading begins, nor for a range
# that is read again although the state has read it.


class ReadBefore:
    """What was known about the readings before a batch; made before the batch changes them.

    Attributes:
        again: partitions of the coordinators' log with a range in this batch of which a part may have been read before.
        unread: partitions with data missing between what is known and what the batch has read.
    """

    def __init__(self, bucket: BucketState, batch: Batch) -> None:
        back = batch.barrier.reread
        begun = bucket.lacking(Lack.NEW_READING_BEGUN, Lack.RECREATED)
        parts = (log for log, start in back.items() if is_log(log) and not _continues(bucket, batch, log, start))
        self.again = {*parts, *begun}
        rests = {partition: bucket.reading(partition).lacks[Lack.REST] for partition in bucket.lacking(Lack.REST)}
        self.unread = {
            *(partition for partition, reading in bucket.readings.items() if reading.is_unproven),
            *(at for at, rest in rests.items() if at not in back or back[at] > rest.from_offset),
            *(notice.partition for notice in batch.notices if notice.kind is not NoticeKind.LEFT),
            *batch.barrier.begun,
        }
        self._whole_at = {
            partition: reading.whole_at
            for partition, reading in bucket.readings.items()
            if reading.whole_at is not None
        }
        self._previous = _previous(batch)
        self._without = _without_barrier(batch) | set(_read_twice(bucket, batch))

    def whole_at(self, partition: TopicPartition) -> BarrierNumber:
        """The last barrier before the batch at which a data partition was read whole; NO_BARRIER if none counts."""
        return NO_BARRIER if partition in self._without else self._whole_at.get(partition, self._previous)


def note_whole(bucket: BucketState, batch: Batch) -> None:
    """Records the data partitions that this batch did not read to their listed ends; gaps are recorded before."""
    barrier = batch.barrier
    lacking = bucket.lacking(Lack.REST, *UNREAD)
    unread = {
        *barrier.stale_data,
        *barrier.limited_data,
        *(partition for partition in lacking if not is_log(partition)),
    }
    previous, without = _previous(batch), _without_barrier(batch)
    read = [at for at, reading in bucket.readings.items() if reading.whole_at is not None and at not in unread]
    for partition in (*read, *unread):
        reading = bucket.reading(partition)
        last_whole = previous if reading.whole_at is None else reading.whole_at
        whole_at = None if partition not in unread else NO_BARRIER if partition in without else last_whole
        if whole_at != reading.whole_at:
            bucket.keep_reading(partition, replace(reading, whole_at=whole_at))


def _without_barrier(batch: Batch) -> set[TopicPartition]:
    """Partitions whose reading begins in this batch, or does not continue where it ended."""
    lost = {notice.partition for notice in batch.notices if notice.kind not in READ_LATER}
    return lost.union(batch.barrier.begun)


def _continues(bucket: BucketState, batch: Batch, log: TopicPartition, start: Offset) -> bool:
    """Whether a range begins where the batch before has stopped: nothing above was read since."""
    unread = bucket.reading(log).lacks.get(Lack.RANGE)
    return unread is not None and (unread.from_offset, unread.barrier) == (start, _previous(batch))


def _read_twice(bucket: BucketState, batch: Batch) -> Iterator[TopicPartition]:
    """Partitions with a range in this batch that begins below what is unread."""
    for partition, start in batch.barrier.reread.items():
        unread = bucket.reading(partition).unread_from(Lack.REST, Lack.RANGE)
        if unread is None or start < unread:
            yield partition


def _previous(batch: Batch) -> BarrierNumber:
    return BarrierNumber(batch.barrier.number - 1)


class LogReadings:
    """The readings of the coordinators' log while the facts of a batch are applied."""

    def __init__(self, bucket: BucketState, barrier: Barrier) -> None:
        """Takes what was known before the batch of a barrier."""
        logs = {partition: reading for partition, reading in bucket.readings.items() if is_log(partition)}
        self._numbers = {log: reading.number for log, reading in logs.items()}
        self._hole_ends = {log: reading.hole_end for log, reading in logs.items()}
        # A record that is new in this batch was appended after the last listing, and listed by this one. If both are of
        # one reign, so is the record.
        self._reigns = {
            log: reign.since
            for log, reign in bucket.clocks.reigns.items()
            if reign.leader.connection and barrier.leaders.get(log) == reign.leader and log not in barrier.reread
        }

    def number(self, log: TopicPartition) -> int:
        """The number of the reading."""
        return self._numbers.get(log, 0)

    def in_reading(self, view: CoordinatorView, log: TopicPartition, barrier: Barrier) -> CoordinatorView:
        """What a record shows, with the number of its log partition's reading and the time at which it was seen."""
        reading, reign = self._numbers.get(log, 0), self._reigns.get(log)
        return replace(view, reading=reading, since_ms=first_listed_ms(view, barrier), reign=reign)

    def pass_over(self, view: CoordinatorView) -> None:
        """Records a hole for a record that is skipped: never carry the known state of its id across it."""
        self._note_hole(view.log, view.log_offset + 1)

    def is_before_hole(self, view: CoordinatorView | None) -> bool:
        """Whether records are missing between a view and what is read from now on, or it is of an earlier reading."""
        if view is None:
            return False
        log = view.log
        is_earlier = view.reading < self.number(log)
        return is_earlier or view.is_unseen or view.log_offset < self._hole_ends.get(log, 0)

    def keep(self, bucket: BucketState, barrier: Barrier) -> None:
        """Keeps the holes for later batches, with those that the folds of this batch know already."""
        for log, end in barrier.holes.items():
            self._note_hole(log, end)
        for log, end in self._hole_ends.items():
            reading = bucket.reading(log)
            if reading.hole_end != end:
                bucket.keep_reading(log, replace(reading, hole_end=end))

    def _note_hole(self, log: TopicPartition, end: Offset) -> None:
        self._hole_ends[log] = max(end, self._hole_ends.get(log, end))


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
        former = bucket.reading(stable.partition).standing
        if former is None or former.offset != stable.offset:
            _stand(bucket, stable.partition, Standing(stable.offset, now_ms))
        elif not former.is_repeated or former.silent_ms is not None:
            _stand(bucket, stable.partition, former._replace(is_repeated=True, silent_ms=None))
    for partition, standing in list(bucket.standing()):
        if partition in reported:
            continue
        if standing.silent_ms is None:
            _stand(bucket, partition, standing._replace(silent_ms=now_ms))
        elif now_ms - standing.silent_ms >= policy.blocked_offset_ms:
            _stand(bucket, partition, None)


def _stand(bucket: BucketState, partition: TopicPartition, standing: Standing | None) -> None:
    bucket.keep_reading(partition, replace(bucket.reading(partition), standing=standing))


def blocked_offsets(bucket: BucketState, now_ms: TimestampMs, policy: DetectionPolicy) -> tuple[PartitionOffset, ...]:
    """Those that have not moved for a while; the transaction that holds one may be in any bucket.

    One report alone does not count: a transaction that ended before the next batch also leaves one.
    """
    return tuple(
        PartitionOffset(partition, standing.offset)
        for partition, standing in sorted(bucket.standing())
        if standing.is_repeated and now_ms - standing.since_ms >= policy.blocked_offset_ms
    )
