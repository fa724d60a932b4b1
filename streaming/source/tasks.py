"""Plans the batches of the source and the tasks of each, in the driver's process; runs the plans, in tasks.

Apart: this imports what plans and reads, and a process that only creates the source imports datasource.py alone
(decision 0032).

The first plan of a batch has the barrier. Data ranges and those of `__transaction_state` are spread over more plans if
they are large: each further Spark task costs about 18 ms. Tasks keep their connections in a module-level cache, because
a Python worker outlives its tasks.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from txnwatch.state.model.clocks import Clock, both
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.facts import Fact, LastBatch, LastStable, LogRead, NoticeKind, PartitionNotice, Throttled
from txnwatch.state.model.values import (
    FIRST_OFFSET,
    LONG_AGO,
    BrokerId,
    CoordinatorAccess,
    DurationMs,
    Offset,
    TimestampMs,
    TopicPartition,
    is_data,
    is_log,
)
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import OwnerNames, read_owner_names
from txnwatch.streaming.log.fetch import NO_LIMIT, Budget, read_ranges
from txnwatch.streaming.log.hidden_participants import hidden_participants
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch.streaming.log.range_reading import Fold, Range, RangeReading
from txnwatch.streaming.log.transaction_fold import FirstReadFold, HeldBytes, LastBatchFold, Stamps, TransactionFold
from txnwatch.streaming.source.census_schedule import Census, take_census
from txnwatch.streaming.source.lister import Lister, check_access
from txnwatch.streaming.source.offsets import NotBegun, Position, SourceOffset, is_begun
from txnwatch.streaming.source.options import SourceOptions
from txnwatch.streaming.source.rows import (
    FACTS,
    HISTORY,
    Row,
    RowFormat,
    episode_rows,
    episodes_of,
    fact_rows,
    packed_batch,
)
from txnwatch.streaming.source.scan_budget import data_read
from txnwatch.streaming.wire.record_batch import BatchHeader

OFFSETS_WORTH_A_TASK = 100_000
LOG_OFFSETS_WORTH_A_TASK = 20_000  # half a second of decoding
ASKED_WORTH_A_TASK = 200
_LEAST_MS, _MOST_MS = 1, 5_000  # a limit of bytes per second is not saved for longer


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """What one task reads.

    Attributes:
        end: the batch's whole offset; only in plans that read `__transaction_state`, as the next four.
        previous_listed_ms: local clock when the data partitions were listed before.
        risen: data partitions that have had an election since the previous listing.
        unfinished: partitions of `__transaction_state` that compaction may change while this batch reads them.
        followed: partitions of `__transaction_state` whose records in this batch were written after
            `previous_listed_ms`.
        max_bytes: how many bytes of data the task may read.
        throttled_ms: how long the planner was throttled; it cannot report this in another way.
        unlisted: partitions that are missing from a batch query.
        brings_barrier: whether this plan returns the barrier. Other plans that read `__transaction_state` return a
            LogRead for it.
    """

    ranges: tuple[Range, ...]
    listed_ms: TimestampMs
    end: SourceOffset | None = None
    previous_listed_ms: TimestampMs = LONG_AGO
    risen: frozenset[TopicPartition] = frozenset()
    unfinished: frozenset[TopicPartition] = frozenset()
    followed: frozenset[TopicPartition] = frozenset()
    census: Census | None = None
    max_bytes: int = NO_LIMIT
    throttled_ms: Mapping[str, DurationMs] = field(default_factory=dict)
    unlisted: tuple[PartitionNotice, ...] = ()
    brings_barrier: bool = True


def unlisted(end: SourceOffset) -> tuple[PartitionNotice, ...]:
    """Notices for partitions whose leader did not answer during planning. Nothing of them is read."""
    detail = "its leader did not answer: the partition is not read"
    return tuple(
        PartitionNotice(NoticeKind.GAP, partition, at.topic_id, FIRST_OFFSET, FIRST_OFFSET, detail)
        for partition, at in sorted(end.positions.items())
        if at.is_stale
    )


def plan_reads(
    start: SourceOffset, end: SourceOffset, options: SourceOptions, census: Census | None = None
) -> list[TaskPlan]:
    """The plans of one batch, one per task, with its census if there is one."""
    ranges = [offset_range for partition in end.positions for offset_range in _ranges(start, end, partition)]
    log = [offset_range for offset_range in ranges if not is_data(offset_range.partition)]
    data = [offset_range for offset_range in ranges if is_data(offset_range.partition)]
    history = [offset_range for offset_range in log if offset_range.is_history]
    tails = [offset_range for offset_range in log if not offset_range.is_history]
    history_tasks = min(_worth(history, options, OFFSETS_WORTH_A_TASK), max(1, len(history)))
    tail_tasks = min(_worth(tails, options, LOG_OFFSETS_WORTH_A_TASK), max(1, len(tails)))
    tasks = max(_worth(data, options, OFFSETS_WORTH_A_TASK), history_tasks, tail_tasks)
    shares = _spread(data, tasks)
    is_large = census is not None and len(census.asked) > ASKED_WORTH_A_TASK
    listed_ms, previous_listed_ms = end.data_listed_ms, start.data_listed_ms + end.clock_set_by_ms
    first_census = None if is_large else census
    whole = (previous_listed_ms, _risen(start, end), _unfinished(start, end), _followed(start, end))
    histories = _dealt(_largest_first(history), history_tasks, of=tasks)
    parts = _dealt(tails, tail_tasks, of=tasks)
    most = _most_bytes(start, end, options) // tasks
    plans = [TaskPlan((*parts[0], *histories[0], *shares[0]), listed_ms, end, *whole, first_census, most)]
    for number in range(1, tasks):
        ranges_of_task = (*parts[number], *histories[number], *shares[number])
        if parts[number]:
            plans.append(TaskPlan(ranges_of_task, listed_ms, end, *whole, max_bytes=most, brings_barrier=False))
        else:
            at = end if histories[number] else None
            plans.append(TaskPlan(ranges_of_task, listed_ms, at, max_bytes=most, brings_barrier=False))
    if is_large:
        plans.append(TaskPlan((), listed_ms, census=census))
    return plans


def _most_bytes(start: SourceOffset, end: SourceOffset, options: SourceOptions) -> int:
    """How many bytes of data the tasks of a batch may read: as many as the limit allows since the last listing."""
    if options.max_bytes_per_second is None:
        return NO_LIMIT
    passed_ms = end.data_listed_ms - start.data_listed_ms - end.clock_set_by_ms
    return options.max_bytes_per_second * max(_LEAST_MS, min(_MOST_MS, passed_ms)) // 1000


def _risen(start: SourceOffset, end: SourceOffset) -> frozenset[TopicPartition]:
    """Data partitions that have had an election between two listings."""
    return frozenset(
        partition
        for partition, at in end.read_positions.items()
        if is_data(partition) and _has_new_leader(start.positions.get(partition), at)
    )


def _has_new_leader(before: Position | NotBegun | None, at: Position) -> bool:
    if before is None:
        return False
    return isinstance(before, NotBegun) or before.epoch != at.epoch


def _unfinished(start: SourceOffset, end: SourceOffset) -> frozenset[TopicPartition]:
    """Partitions of `__transaction_state` that were not read to their end before: one more batch must follow.

    Their compaction holes are no loss. While they are read, compaction can remove a record in favour of a later one
    beyond the listed end. The log cleaner does not pass the high watermark, so the next listing includes the later
    record.
    """
    return frozenset(
        partition for partition in end.positions if is_log(partition) and not _goes_on(start, end, partition)
    )


def _followed(start: SourceOffset, end: SourceOffset) -> frozenset[TopicPartition]:
    """Partitions of `__transaction_state` that both listings have, and whose range continues at the previous end.

    Their new records did not exist when the previous T was requested, which was after the previous D was complete.
    """
    return frozenset(
        partition
        for partition, at in end.positions.items()
        if is_log(partition)
        and not at.is_stale
        and partition not in end.reread
        and _goes_on(start, end, partition)
        and not start.positions[partition].is_stale
    )


def _goes_on(start: SourceOffset, end: SourceOffset, partition: TopicPartition) -> bool:
    before = start.positions.get(partition)
    if not is_begun(before) or partition in end.begun:
        return False
    back = end.reread.get(partition, before.offset)
    if partition in end.reread and (back <= 0 or back < end.backlog_end.get(partition, 0)):
        return False
    return before.topic_id == end.positions[partition].topic_id and before.offset >= before.listed


def _ranges(start: SourceOffset, end: SourceOffset, partition: TopicPartition) -> Iterator[Range]:
    """The range of a partition, if there is one; of the coordinators' log, also the last offset before it."""
    offset_range = _range(start, end, partition)
    if offset_range is None:
        return
    yield offset_range
    if is_log(partition) and offset_range.must_check and offset_range.start > FIRST_OFFSET:
        last, begin = Offset(offset_range.start - 1), offset_range.start
        yield Range(partition, offset_range.topic_id, last, begin, is_recheck=True, end_epoch=offset_range.end_epoch)


def _range(start: SourceOffset, end: SourceOffset, partition: TopicPartition) -> Range | None:
    at = end.positions[partition]
    if not is_begun(at) or at.is_stale:
        return None
    position = start.positions.get(partition)
    before = position if is_begun(position) and position.topic_id == at.topic_id else None
    back = end.reread.get(partition)
    backlog_end = end.backlog_end.get(partition, FIRST_OFFSET)
    if partition in end.begun:
        first = end.begun[partition]
        offset_range = Range(
            partition, at.topic_id, first, at.offset, backlog_end=backlog_end, is_first=True, end_epoch=at.epoch
        )
    elif before is None:
        return None
    else:
        begin = before.offset if back is None else min(back, before.offset)
        offset_range = Range(
            partition,
            at.topic_id,
            begin,
            at.offset,
            before.epoch if begin > 0 else None,
            must_check=(before.epoch, before.connection) != (at.epoch, at.connection),
            backlog_end=backlog_end,
            is_tail=not is_data(partition) and begin >= backlog_end and _goes_on(start, end, partition),
            listed_epoch=before.read_under,
            end_epoch=at.epoch,
        )
    return offset_range if offset_range.start != offset_range.end or offset_range.must_check else None


def _worth(ranges: Iterable[Range], options: SourceOptions, worth_a_task: int) -> int:
    """How many tasks to use for some ranges."""
    offsets = sum(max(0, offset_range.end - offset_range.start) for offset_range in ranges)
    return max(1, min(options.input_partitions, -(-offsets // worth_a_task)))


def _largest_first(ranges: list[Range]) -> list[Range]:
    return sorted(ranges, key=lambda offset_range: offset_range.start - offset_range.end)


def _dealt(ranges: list[Range], tasks: int, *, of: int) -> list[list[Range]]:
    """Deals ranges in turn to the first tasks `of` all.

    Loads are not compared, because the number of records in a compacted range is unknown.
    """
    return [ranges[number::tasks] if number < tasks else [] for number in range(of)]


def _spread(ranges: list[Range], tasks: int) -> list[list[Range]]:
    """Assigns ranges to tasks, the largest first, each to the task with the smallest load."""
    shares: list[list[Range]] = [[] for _ in range(tasks)]
    loads = [0] * tasks
    for offset_range in sorted(ranges, key=lambda offset_range: offset_range.start - offset_range.end):
        lightest = loads.index(min(loads))
        shares[lightest].append(offset_range)
        loads[lightest] += max(1, offset_range.end - offset_range.start)
    return shares


# Bounds of the brokers' clocks, and elections since the listing, from the coordinator records of one batch.
#
# state/detection/broker_clocks.py has the rules of the clocks.


def clocks_of(
    end: SourceOffset,
    previous_listed_ms: TimestampMs,
    followed: Container[TopicPartition],
    reads: Iterable[RangeReading[Fold]],
) -> dict[BrokerId, Clock]:
    """The bounds of each leader's clock, from the partitions of `__transaction_state` that it leads.

    Only `followed` partitions give an upper bound: their new records did not exist at `previous_listed_ms`.
    """
    clocks: dict[BrokerId, Clock] = {}
    for log, stamps, at in _stamped(end, reads):
        if stamps.leader_epoch != at.epoch:
            continue
        highest_ms = stamps.lowest_ms - previous_listed_ms if log in followed else None
        clock = Clock(stamps.last_ms - end.coordinator_listed_ms, highest_ms, end.coordinator_listed_ms)
        clocks[at.leader] = both(clocks.get(at.leader), clock)
    return clocks


def _elected_since(end: SourceOffset, reads: Iterable[RangeReading[Fold]]) -> frozenset[TopicPartition]:
    """Partitions of `__transaction_state` with a record of a later leader epoch than that of their listed end.

    A log that an election has cut below its listed end can reach that end again only with such records.
    """
    return frozenset(log for log, stamps, at in _stamped(end, reads) if stamps.leader_epoch > at.epoch)


def _stamped(
    end: SourceOffset, reads: Iterable[RangeReading[Fold]]
) -> Iterator[tuple[TopicPartition, Stamps, Position]]:
    """The partitions of `__transaction_state` with records in this batch: their last stamps, and their listing."""
    for read in reads:
        fold, at = read.fold, end.positions[read.partition]
        if isinstance(fold, TransactionFold) and fold.stamps is not None and isinstance(at, Position):
            yield fold.log, fold.stamps, at


# The last batch that was read of each partition of `__transaction_state`, and that batch as another leader has it.


def last_batches_of(end: SourceOffset, reads: Iterable[RangeReading[Fold]]) -> dict[TopicPartition, LastBatch]:
    """The last batch of each partition of `__transaction_state` with batches in this micro-batch."""
    return {
        fold.log: _last_batch(end, fold.log, fold.last_header)
        for read in reads
        if isinstance(fold := read.fold, TransactionFold) and fold.last_header is not None
    }


def rechecked_of(end: SourceOffset, reads: Iterable[RangeReading[Fold]]) -> dict[TopicPartition, LastBatch | None]:
    """The batches that were read again; None if there is no batch that ends where reading goes on."""
    batches: dict[TopicPartition, LastBatch | None] = {}
    for read in reads:
        if isinstance(fold := read.fold, LastBatchFold):
            header = fold.last_header
            is_there = header is not None and header.last_offset + 1 == read.end and not read.notices
            batches[read.partition] = (
                _last_batch(end, read.partition, header) if header is not None and is_there else None
            )
    return batches


def _last_batch(end: SourceOffset, log: TopicPartition, header: BatchHeader) -> LastBatch:
    at = end.positions[log]
    return LastBatch(header.leader_epoch, header.crc if isinstance(at, Position) and at.connection else None)


# Runs the plan of one task: reads its ranges within the budgets, and returns their facts.

ROWS_PER_ARROW_BATCH = 10_000
# About 40,000 records per second are decoded, in a first reading ten times as many. Nothing is proven before the first
# reading ends, so it may read more. What it leaves costs more: idle ids in it must be passed to open transactions.
LOG_BYTES, LOG_BYTES_AT_FIRST = 8 << 20, 1 << 30


def _history(
    plan: TaskPlan, options: SourceOptions, cluster: Cluster, reads: Collection[RangeReading[Fold]]
) -> Iterator[Row]:
    """The finished transactions of a plan with their owners, and what could not be read."""
    producers = {episode.producer_id for _, episode in episodes_of(reads)}
    is_log_read = options.coordinator_access is CoordinatorAccess.LOG
    owners = read_owner_names(cluster, producers) if is_log_read else OwnerNames()
    unlisted = [notice for notice in plan.unlisted if is_data(notice.partition)]
    return episode_rows(reads, (*unlisted, *owners.missing), owners.names)


def run_plan(plan: TaskPlan, options: SourceOptions, cluster: Cluster, asking: Cluster) -> Iterator[pa.RecordBatch]:
    """Reads a plan's ranges and yields their facts.

    A census uses connections of its own, `asking`: on the others it would wait while a byte quota throttles
    them.
    """
    room = HeldBytes()
    wanted = [offset_range for offset_range in plan.ranges if is_data(offset_range.partition) or not options.episodes]
    reads = [reading_of_range(offset_range, options, room) for offset_range in wanted]
    read_ranges(
        cluster,
        reads,
        patience_s=options.read_patience_s,
        budgets=budgets(plan, reads, options, time.monotonic()),
    )
    if options.episodes:
        yield from _arrow(HISTORY, _history(plan, options, cluster, reads))
        return
    facts = [*plan_facts(plan, reads), *_census_facts(plan, asking)]
    if plan.end is not None:
        facts += hidden_participants(facts, plan.end.positions, options.wants, asking)
    facts += _throttled(plan, cluster, asking)
    if options.packed:
        yield packed_batch([*facts, *data_read(reads)], options.state_keys)
    else:
        yield from _arrow(FACTS, fact_rows(facts, options.buckets))


def budgets(plan: TaskPlan, reads: Iterable[RangeReading[Fold]], options: SourceOptions, now_s: float) -> list[Budget]:
    """How much a task may read: of data by bytes and time, of `__transaction_state` by bytes.

    A first reading of `__transaction_state` has its own, larger budget.

    The list is empty without a file of the driver, because the job could then not request the rest.
    """
    if options.driver_file is None:
        return []
    data = [read for read in reads if is_data(read.partition)]
    firsts = {offset_range.partition for offset_range in plan.ranges if offset_range.is_history}
    log = [read for read in reads if not is_data(read.partition) and read.partition not in firsts]
    history = [read for read in reads if read.partition in firsts]
    until_s = now_s + options.max_read_s if options.max_read_s is not None else math.inf
    return [
        Budget(data, plan.max_bytes, until_s),
        Budget(log, LOG_BYTES),
        Budget(history, LOG_BYTES_AT_FIRST),
    ]


def reading_of_range(offset_range: Range, options: SourceOptions, room: HeldBytes) -> RangeReading[Fold]:
    """The read of one range, with the fold that its partition needs."""

    def data_fold(start: Offset, end: Offset) -> PartitionFold:
        return PartitionFold(start, end, keep_episodes=options.episodes)

    def log_fold(start: Offset, end: Offset) -> TransactionFold | LastBatchFold:
        if offset_range.is_recheck:
            return LastBatchFold(start, end)
        if offset_range.is_history:
            return FirstReadFold(offset_range.partition, start, end, backlog_end=offset_range.backlog_end, room=room)
        return TransactionFold(offset_range.partition, start, end, backlog_end=offset_range.backlog_end)

    return RangeReading(offset_range, log_fold if is_log(offset_range.partition) else data_fold)


def plan_facts(plan: TaskPlan, reads: list[RangeReading[Fold]]) -> Iterator[Fact]:
    """The facts of a plan whose ranges have been read."""
    yield from plan.unlisted
    for read, offset_range in zip(reads, plan.ranges, strict=True):
        if not offset_range.is_recheck:
            yield from read.notices
            yield from _range_facts(read, offset_range, plan.listed_ms)
    if plan.end is None:
        return
    clocks, holes = clocks_of(plan.end, plan.previous_listed_ms, plan.followed, reads), _holes(reads)
    elected = _elected_since(plan.end, reads)
    last_batches, rechecked = last_batches_of(plan.end, reads), rechecked_of(plan.end, reads)
    if not plan.brings_barrier:
        yield LogRead(holes, clocks, elected, last_batches, rechecked)
        return
    for partition, topic_id in plan.end.gone.items():
        yield PartitionNotice(
            NoticeKind.DELETED, partition, topic_id, FIRST_OFFSET, FIRST_OFFSET, "no longer in the cluster's metadata"
        )
    yield plan.end.barrier_fact(clocks, plan.risen, plan.unfinished, holes, elected, last_batches, rechecked)


def _range_facts(read: RangeReading[Fold], offset_range: Range, listed_ms: TimestampMs) -> Iterator[Fact]:
    """What one range that has been read shows, besides its notices."""
    if isinstance(read.fold, TransactionFold):
        yield from read.fold.facts(is_first=offset_range.is_first)
        if offset_range.is_tail and read.fold.hole is not None:
            detail = "compaction removed unread records: the end of a transaction may be among them"
            yield PartitionNotice(
                NoticeKind.LOST, read.partition, read.topic_id, read.fold.hole, offset_range.end, detail
            )
        return
    for fold in (*read.earlier, read.fold):
        if isinstance(fold, PartitionFold):
            yield from fold.facts(read.partition, read.topic_id, listed_ms, read.youngest_epoch)
    stable = read.last_stable_offset
    if stable is not None and stable < read.fold.position:
        yield LastStable(read.partition, read.topic_id, stable)


def _holes(reads: Iterable[RangeReading[Fold]]) -> dict[TopicPartition, Offset]:
    """Where the last compaction hole ends, for each partition of `__transaction_state` with a hole in its range."""
    folds = [read.fold for read in reads if isinstance(read.fold, TransactionFold)]
    return {fold.log: fold.last_hole_end for fold in folds if fold.last_hole_end > fold.start}


def _census_facts(plan: TaskPlan, cluster: Cluster) -> Iterator[Fact]:
    if plan.census is None:
        return
    yield from take_census(cluster, plan.census)


def _throttled(plan: TaskPlan, *clusters: Cluster) -> Iterator[Fact]:
    total_ms: Counter[str] = Counter(plan.throttled_ms)
    for cluster in clusters:
        total_ms.update(cluster.take_throttled())
    if total_ms:
        yield Throttled({request: DurationMs(throttled_ms) for request, throttled_ms in total_ms.items()})


def _arrow(rows_of: RowFormat, rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    chunk: list[Row] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == ROWS_PER_ARROW_BATCH:
            yield rows_of.record_batch(chunk)
            chunk = []
    yield rows_of.record_batch(chunk)


# What the data source calls: it plans batches, and runs plans.


class StreamPlans:
    """Lists the ends for each batch of a streaming query, and plans the batch.

    Attributes:
        latest: the offset of the last listing; None before the first one.
    """

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.latest: dict[str, Any] | None = None
        self._lister: Lister | None = None
        self._decoded: deque[tuple[dict[str, Any], SourceOffset]] = deque(maxlen=2)  # a batch has a start and an end

    def beginning(self) -> dict[str, Any]:
        """The offset of a new query."""
        return SourceOffset.beginning().to_json()

    def after(self, start: Mapping[str, Any], *, limited: bool) -> dict[str, Any]:
        """The offset of a new listing; `start` unchanged if nothing is new."""
        lister = self._lister = self._lister or Lister(self.options, _new_cluster(self.options))
        following = lister.next_offset(self._offset(start), limited=limited)
        self.latest = dict(start)
        if following is not None:
            self.latest = following.to_json()
            self._decoded.append((self.latest, following))
        return self.latest

    def of_batch(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[TaskPlan]:
        """The plans of one batch, one per task."""
        if start == end:
            return []
        following = self._offset(end)
        census = self._lister.census_of(following.barrier) if self._lister is not None else None
        plans = plan_reads(self._offset(start), following, self.options, census)
        if self._lister is not None:
            plans[0] = replace(plans[0], throttled_ms=self._lister.take_throttled())
        return plans

    def _offset(self, raw: Mapping[str, Any]) -> SourceOffset:
        """The decoded offset. Spark returns each offset several times, and decoding costs time for each partition."""
        for encoded, offset in self._decoded:
            if encoded == raw:
                return offset
        offset = SourceOffset.from_json(raw)
        check_access(offset, self.options)  # also of a batch that was not committed: it is planned without a listing
        self._decoded.append((dict(raw), offset))
        return offset


def whole_range(options: SourceOptions) -> list[TaskPlan]:
    """The plans of a batch query, one per task.

    Raises:
        BrokerError: no broker, or no leader, answers.
    """
    cluster = _new_cluster(options)
    cluster.refresh()
    start = SourceOffset.beginning()
    end = Lister(options, cluster).next_offset(start, limited=False)
    cluster.close()
    if end is None:
        raise BrokerError("no leader returned the ends of its partitions: there is nothing to read")
    plans = plan_reads(start, end.bounded(options.ending_offsets), options)
    return [replace(plans[0], unlisted=unlisted(end)), *plans[1:]]


def _new_cluster(options: SourceOptions) -> Cluster:
    """A cluster client with its own connections."""
    return Cluster(options.bootstrap, options.security, timeout_s=options.list_timeout_s)


def run_here(plan: TaskPlan, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Runs a plan in this worker."""
    return run_plan(plan, options, _shared_cluster(options, "reading"), _shared_cluster(options, "asking"))


_SHARED: dict[tuple[object, ...], Cluster] = {}


def _shared_cluster(options: SourceOptions, purpose: str) -> Cluster:
    """This worker's connections for one purpose.

    Later tasks use them again, because a new connection costs several round trips.
    """
    key = (options.bootstrap, options.security, options.rack, purpose)
    if key not in _SHARED:
        _SHARED[key] = Cluster(options.bootstrap, options.security, rack=options.rack)
    _SHARED[key].renew_metadata()
    return _SHARED[key]
