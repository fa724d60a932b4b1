"""One task's share of a batch: the ranges that it reads, and the facts that it returns.

The first plan of a batch has `__transaction_state` and the barrier. Data ranges, and a first reading of
`__transaction_state`, are spread over more plans if they are large: each further Spark task costs about 18 ms.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from txnwatch.state.model.facts import Fact, LastStable, LogRead, NoticeKind, PartitionNotice, Throttled
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.fetch import read_ranges
from txnwatch.streaming.log.first_read_fold import FirstReadFold, HeldBytes
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch.streaming.log.range_read import RangeRead
from txnwatch.streaming.log.read_budget import NO_LIMIT, Budget
from txnwatch.streaming.log.read_rate import ReadRate
from txnwatch.streaming.log.transaction_fold import TransactionFold
from txnwatch.streaming.source.coordinator_clocks import clocks_of
from txnwatch.streaming.source.fact_rows import FACTS, fact_rows
from txnwatch.streaming.source.hidden_participants import hidden_participants
from txnwatch.streaming.source.history_rows import HISTORY, episode_rows
from txnwatch.streaming.source.offsets import SourceOffset, is_data
from txnwatch.streaming.source.options import SourceOptions
from txnwatch.streaming.source.packed_facts import packed_batch
from txnwatch.streaming.source.planner import is_begun
from txnwatch.streaming.source.row_format import Row, RowFormat
from txnwatch.streaming.source.snapshot_schedule import Census, take_census

OFFSETS_WORTH_A_TASK = 100_000
ASKED_WORTH_A_TASK = 200
ROWS_PER_ARROW_BATCH = 10_000
# About 40,000 records per second are decoded, in a first reading ten times as many. Nothing is proven before the first
# reading ends, so it may read more. What it leaves costs more: idle ids in it must be passed to open transactions.
LOG_BYTES, LOG_BYTES_AT_FIRST = 8 << 20, 1 << 30
_SLOW_LOG_READ_S = 5.0  # with a rate limit: a barrier without the end of the log is better than none


@dataclass(frozen=True, slots=True)
class Range:
    """A range [start, end) of one partition to read. An end below the start means that the log was truncated.

    `last_epoch` is the leader epoch of what was read before; -1 if unknown.

    For `__transaction_state`: records below `news_from` existed before reading began or restarted. `is_first` marks the
    beginning of a first reading, when nothing of the partition is known: of the existing records, only live
    transactions are passed on. `is_tail` marks a range of new records that continues at the last end: compaction does
    not reach them unless reading is late.
    """

    partition: TopicPartition
    topic_id: str
    start: int
    end: int
    last_epoch: int
    must_check: bool
    news_from: int = 0
    is_first: bool = False
    is_tail: bool = False

    @property
    def is_history(self) -> bool:
        """Whether it is the beginning of a first reading, and all its records existed before."""
        return self.is_first and not is_data(self.partition) and self.end <= self.news_from


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What one task reads.

    Attributes:
        end: the batch's whole offset; only in plans that read `__transaction_state`.
        previous_listed_ms: local clock when the data partitions were listed before.
        risen: data partitions that have had an election since the previous listing.
        unfinished: partitions of `__transaction_state` that compaction may change while this batch reads them.
        followed: partitions of `__transaction_state` whose records in this batch were written after
            `previous_listed_ms`.
        tasks: the number of tasks that share the bytes of a batch.
        throttled_ms: how long the planner was throttled; it cannot report this in another way.
        unlisted: partitions that are missing from a batch query.
        brings_barrier: whether this plan returns the barrier. Other plans that read `__transaction_state` return a
            LogRead for it.
    """

    ranges: tuple[Range, ...]
    listed_ms: int
    end: SourceOffset | None = None
    previous_listed_ms: int = 0
    risen: frozenset[TopicPartition] = frozenset()
    unfinished: frozenset[int] = frozenset()
    followed: frozenset[int] = frozenset()
    census: Census | None = None
    tasks: int = 1
    throttled_ms: Mapping[str, int] = field(default_factory=dict)
    unlisted: tuple[PartitionNotice, ...] = ()
    brings_barrier: bool = True


def plan_reads(
    start: SourceOffset, end: SourceOffset, options: SourceOptions, census: Census | None = None
) -> list[ReadPlan]:
    """The plans of one batch, one per task, with its producer snapshot if there is one."""
    ranges = [found for found in (_range(start, end, partition) for partition in end.positions) if found is not None]
    log = [found for found in ranges if not is_data(found.partition)]
    data = [found for found in ranges if is_data(found.partition)]
    past = [found for found in log if found.is_history]
    log_tasks = min(_worth(past, options), max(1, len(past)))
    tasks = max(_worth(data, options), log_tasks)
    shares = _spread(data, tasks)
    is_large = census is not None and len(census.asked) > ASKED_WORTH_A_TASK
    listed_ms, previous_listed_ms = end.data_listed_ms, start.data_listed_ms
    first_census = None if is_large else census
    whole = (previous_listed_ms, _risen(start, end), _unfinished(start, end), _followed(start, end))
    pasts = _dealt(past, log_tasks)
    tails = [found for found in log if not found.is_history]
    plans = [ReadPlan((*tails, *pasts[0], *shares[0]), listed_ms, end, *whole, first_census, tasks)]
    for number in range(1, tasks):
        of_log = pasts[number] if number < log_tasks else ()
        at = end if of_log else None
        plans.append(ReadPlan((*of_log, *shares[number]), listed_ms, at, tasks=tasks, brings_barrier=False))
    if is_large:
        plans.append(ReadPlan((), listed_ms, census=census))
    return plans


def _risen(start: SourceOffset, end: SourceOffset) -> frozenset[TopicPartition]:
    """Data partitions that have had an election between two listings."""
    return frozenset(
        partition
        for partition, at in end.positions.items()
        if partition in start.positions and at.epoch != start.positions[partition].epoch and is_data(partition)
    )


def _unfinished(start: SourceOffset, end: SourceOffset) -> frozenset[int]:
    """Partitions of `__transaction_state` that were not read to their end before: one more batch must follow.

    Their compaction gaps are no loss. While they are read, compaction can remove a record in favour of a later one
    beyond the listed end. The log cleaner does not pass the high watermark, so the next listing includes the later
    record.
    """
    return frozenset(
        partition.partition
        for partition in end.positions
        if not is_data(partition) and not _goes_on(start, end, partition)
    )


def _followed(start: SourceOffset, end: SourceOffset) -> frozenset[int]:
    """Partitions of `__transaction_state` that both listings have, and whose range continues at the previous end.

    Their new records did not exist when the previous T was requested, which was after the previous D was complete.
    """
    return frozenset(
        partition.partition
        for partition, at in end.positions.items()
        if not is_data(partition)
        and not at.is_stale
        and partition not in end.reread
        and _goes_on(start, end, partition)
        and not start.positions[partition].is_stale
    )


def _goes_on(start: SourceOffset, end: SourceOffset, partition: TopicPartition) -> bool:
    before = start.positions.get(partition)
    if before is None or partition in end.begun:
        return False
    back = end.reread.get(partition, before.offset)
    if partition in end.reread and (back <= 0 or back < end.news_from.get(partition, 0)):
        return False
    return before.topic_id == end.positions[partition].topic_id and before.offset >= before.listed


def _range(start: SourceOffset, end: SourceOffset, partition: TopicPartition) -> Range | None:
    at = end.positions[partition]
    if at.is_stale or not is_begun(at):
        return None
    before = start.positions.get(partition)
    if before is not None and before.topic_id != at.topic_id:
        before = None
    back = end.reread.get(partition)
    news_from = end.news_from.get(partition, 0)
    if partition in end.begun:
        first = end.begun[partition]
        found = Range(
            partition, at.topic_id, first, at.offset, -1, must_check=False, news_from=news_from, is_first=True
        )
    elif before is None:
        return None
    else:
        begin = before.offset if back is None else min(back, before.offset)
        found = Range(
            partition,
            at.topic_id,
            begin,
            at.offset,
            before.epoch if begin > 0 else -1,
            must_check=before.epoch != at.epoch,
            news_from=news_from,
            is_tail=0 < begin >= news_from and before.offset >= before.listed,
        )
    return found if found.start != found.end or found.must_check else None


def _worth(ranges: Iterable[Range], options: SourceOptions) -> int:
    """How many tasks to use for some ranges."""
    offsets = sum(max(0, found.end - found.start) for found in ranges)
    return max(1, min(options.input_partitions, -(-offsets // OFFSETS_WORTH_A_TASK)))


def _dealt(ranges: list[Range], tasks: int) -> list[list[Range]]:
    """Deals ranges to the tasks in turn, those with the most offsets first.

    Loads are not compared, because the number of records in a compacted range is unknown.
    """
    ranked = sorted(ranges, key=lambda found: found.start - found.end)
    return [ranked[number::tasks] for number in range(tasks)]


def _spread(ranges: list[Range], tasks: int) -> list[list[Range]]:
    """Assigns ranges to tasks, the largest first, each to the task with the smallest load."""
    shares: list[list[Range]] = [[] for _ in range(tasks)]
    loads = [0] * tasks
    for found in sorted(ranges, key=lambda found: found.start - found.end):
        lightest = loads.index(min(loads))
        shares[lightest].append(found)
        loads[lightest] += max(1, found.end - found.start)
    return shares


def run_plan(plan: ReadPlan, options: SourceOptions, cluster: Cluster, asking: Cluster) -> Iterator[pa.RecordBatch]:
    """Reads a plan's ranges and yields their facts.

    A producer snapshot uses connections of its own, `asking`: on the others it would wait while a byte quota throttles
    them.
    """
    room = HeldBytes()
    reads = [_read(found, options, room) for found in plan.ranges]
    read_ranges(
        cluster,
        reads,
        patience_s=options.read_patience_s,
        budgets=budgets(plan, reads, options, time.monotonic()),
        rate=ReadRate(options.max_bytes_per_second / plan.tasks) if options.max_bytes_per_second is not None else None,
    )
    if options.episodes:
        yield from _arrow(HISTORY, episode_rows(reads, plan.unlisted))
        return
    facts = [*_facts(plan, reads), *_census_facts(plan, asking)]
    if plan.end is not None:
        facts += hidden_participants(facts, plan.end.positions, options, asking)
    facts += _throttled(plan, cluster, asking)
    if options.packed:
        yield packed_batch(facts, options.buckets)
    else:
        yield from _arrow(FACTS, fact_rows(facts, options.buckets))


def budgets(plan: ReadPlan, reads: Iterable[RangeRead], options: SourceOptions, now_s: float) -> list[Budget]:
    """How much a task may read: of data by bytes and time, of `__transaction_state` by bytes.

    With a rate limit, `__transaction_state` has a time limit too. A first reading of it has its own, larger budget.

    The list is empty without a control file, because the job could then not request the rest.
    """
    if options.control_file is None:
        return []
    data = [read for read in reads if is_data(read.partition)]
    firsts = {found.partition for found in plan.ranges if found.is_history}
    log = [read for read in reads if not is_data(read.partition) and read.partition not in firsts]
    past = [read for read in reads if read.partition in firsts]
    max_bytes = NO_LIMIT if options.max_bytes_per_trigger is None else options.max_bytes_per_trigger // plan.tasks
    until_s = now_s + options.max_read_s if options.max_read_s is not None else math.inf
    log_until_s = now_s + _SLOW_LOG_READ_S if options.max_bytes_per_second is not None else math.inf
    return [
        Budget(data, max_bytes, until_s),
        Budget(log, LOG_BYTES, log_until_s),
        Budget(past, LOG_BYTES_AT_FIRST, log_until_s),
    ]


def _read(found: Range, options: SourceOptions, room: HeldBytes) -> RangeRead:
    def data_fold(start: int, end: int) -> PartitionFold:
        return PartitionFold(start, end, keep_episodes=options.episodes)

    def log_fold(start: int, end: int) -> TransactionFold:
        if found.is_history:
            return FirstReadFold(found.partition.partition, start, end, news_from=found.news_from, room=room)
        return TransactionFold(found.partition.partition, start, end, news_from=found.news_from)

    is_log = found.partition.topic == TRANSACTION_STATE_TOPIC
    return RangeRead(
        partition=found.partition,
        topic_id=found.topic_id,
        start=found.start,
        end=found.end,
        last_epoch=found.last_epoch,
        must_check=found.must_check,
        new_fold=log_fold if is_log else data_fold,
    )


def _facts(plan: ReadPlan, reads: list[RangeRead]) -> Iterator[Fact]:
    yield from plan.unlisted
    for read, found in zip(reads, plan.ranges, strict=True):
        yield from read.notices
        if isinstance(read.fold, TransactionFold):
            yield from read.fold.facts(is_first=found.is_first)
            if found.is_tail and read.fold.hole is not None:
                detail = "compaction removed unread records: the end of a transaction may be among them"
                yield PartitionNotice(NoticeKind.LOST, read.partition, read.topic_id, read.fold.hole, found.end, detail)
        else:
            for fold in (*read.earlier, read.fold):
                yield from fold.facts(read.partition, read.topic_id, plan.listed_ms)
            if 0 <= read.last_stable_offset < read.fold.position:
                yield LastStable(read.partition, read.topic_id, read.last_stable_offset)
    if plan.end is None:
        return
    clocks, holes = clocks_of(plan.end, plan.previous_listed_ms, plan.followed, reads), _holes(reads)
    if not plan.brings_barrier:
        yield LogRead(holes, clocks)
        return
    for partition, topic_id in plan.end.gone.items():
        yield PartitionNotice(NoticeKind.DELETED, partition, topic_id, 0, 0, "no longer in the cluster's metadata")
    yield plan.end.barrier_fact(clocks, plan.risen, plan.unfinished, holes)


def _holes(reads: Iterable[RangeRead]) -> dict[int, int]:
    """Where the last compaction gap ends, for each partition of `__transaction_state` with a gap in its range."""
    folds = [read.fold for read in reads if isinstance(read.fold, TransactionFold)]
    return {fold.log_partition: fold.last_hole_end for fold in folds if fold.last_hole_end > fold.start}


def _census_facts(plan: ReadPlan, cluster: Cluster) -> Iterator[Fact]:
    if plan.census is None:
        return
    yield from take_census(cluster, plan.census)


def _throttled(plan: ReadPlan, *clusters: Cluster) -> Iterator[Fact]:
    throttled_ms = Counter(plan.throttled_ms)
    for cluster in clusters:
        throttled_ms.update(cluster.take_throttled())
    if throttled_ms:
        yield Throttled(throttled_ms)


def _arrow(rows_of: RowFormat, rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    chunk: list[Row] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == ROWS_PER_ARROW_BATCH:
            yield rows_of.record_batch(chunk)
            chunk = []
    yield rows_of.record_batch(chunk)
