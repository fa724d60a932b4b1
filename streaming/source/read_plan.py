"""One task's share of a batch: which ranges it reads, and the facts it makes of them.

The first plan of a batch carries the coordinator's log and the barrier; data ranges, and a first reading of the
coordinator's log, are spread over as many plans as the batch is worth, because every further Spark task costs some
18 ms.
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
from txnwatch.streaming.log.first_read_fold import PastFold, Room
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch.streaming.log.range_read import RangeRead
from txnwatch.streaming.log.read_budget import NO_LIMIT, Budget
from txnwatch.streaming.log.read_rate import ReadRate
from txnwatch.streaming.log.transaction_fold import TransactionFold
from txnwatch.streaming.source.coordinator_clocks import clocks_of
from txnwatch.streaming.source.fact_rows import Row, fact_rows, record_batch
from txnwatch.streaming.source.hidden_participants import hidden_participants
from txnwatch.streaming.source.history_rows import episode_rows
from txnwatch.streaming.source.offsets import SourceOffset, is_data
from txnwatch.streaming.source.options import SourceOptions
from txnwatch.streaming.source.packed_facts import packed_batch
from txnwatch.streaming.source.planner import is_begun
from txnwatch.streaming.source.snapshot_schedule import Census, take_census

OFFSETS_WORTH_A_TASK = 100_000
ASKED_WORTH_A_TASK = 200
ROWS_PER_ARROW_BATCH = 10_000
# Some 40,000 records a second are decoded, of a first reading ten times as many. Before that is over nothing is proven,
# so it may take longer; what it leaves costs more, because of that idle ids have to be told to whom has something open.
LOG_BYTES, LOG_BYTES_AT_FIRST = 8 << 20, 1 << 30
_SLOW_LOG_READ_S = 5.0  # where a rate is set: a barrier without the end of the log is better than none


@dataclass(frozen=True, slots=True)
class Range:
    """A range of one partition to be read, [start, end); an end below the start means the log was truncated.

    `last_epoch` is the leader epoch of what was read before, -1 if unknown.

    Of the coordinators' log: what lies below `news_from` was there before reading began, or began anew. `is_first`
    marks the beginning of a first reading, when nothing of the partition is known: of what was there only live
    transactions are passed on. `is_tail` marks a range that goes on where everything had been read, in a part that is
    news: compaction does not reach there unless we are late.
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
    def is_first_of_past(self) -> bool:
        """Whether it is the beginning of a first reading, and all of it was there before."""
        return self.is_first and not is_data(self.partition) and self.end <= self.news_from

    @property
    def is_old(self) -> bool:
        """Whether it has records that were there before: they tell neither how late it is nor how long things take."""
        return self.start < self.news_from


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What one task reads; `end` is the batch's whole offset, in the plans that read the coordinators' log.

    One of them `brings_barrier`, and what the others have found of the log is for its barrier.
    `risen` are data partitions that have had an election since the listing before; `unfinished` partitions of the
    coordinator's log of which this batch's reading may have been overtaken by compaction. What is read of those that
    are `followed` was written after `previous_listed_ms`. `tasks` share the bytes that a batch may read. `throttled_ms`
    is what the planner was throttled for; it has no other way to tell. `unlisted` are partitions that a look at history
    lacks.
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
    """The tasks of one batch, with its census if there is one."""
    ranges = [found for found in (_range(start, end, partition) for partition in end.positions) if found is not None]
    log = [found for found in ranges if not is_data(found.partition)]
    data = [found for found in ranges if is_data(found.partition)]
    past = [found for found in log if found.is_first_of_past]
    log_tasks = min(_worth(past, options), max(1, len(past)))
    tasks = max(_worth(data, options), log_tasks)
    shares = _spread(data, tasks)
    is_large = census is not None and len(census.asked) > ASKED_WORTH_A_TASK
    listed_ms, previous_listed_ms = end.data_listed_ms, start.data_listed_ms
    first_census = None if is_large else census
    whole = (previous_listed_ms, _risen(start, end), _unfinished(start, end), _followed(start, end))
    pasts = _dealt(past, log_tasks)
    tails = [found for found in log if not found.is_first_of_past]
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
    """Partitions of the coordinator's log that were not read to their end before: one more batch must follow.

    Their holes are no loss. While they are read, compaction can take a record away in favour of a later one, beyond
    the end that was listed; the cleaner does not pass the high watermark, so the next listing has that one.
    """
    return frozenset(
        partition.partition
        for partition in end.positions
        if not is_data(partition) and not _goes_on(start, end, partition)
    )


def _followed(start: SourceOffset, end: SourceOffset) -> frozenset[int]:
    """Partitions of the coordinators' log that were listed both times, and go on where they ended the first time.

    Their new records were not there yet when T was asked for then, which was after D was in hand.
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
    """How many tasks ranges are worth."""
    offsets = sum(max(0, found.end - found.start) for found in ranges)
    return max(1, min(options.input_partitions, -(-offsets // OFFSETS_WORTH_A_TASK)))


def _dealt(ranges: list[Range], tasks: int) -> list[list[Range]]:
    """One after the other, those with the most offsets first: how many records a compacted range has nobody knows."""
    ranked = sorted(ranges, key=lambda found: found.start - found.end)
    return [ranked[number::tasks] for number in range(tasks)]


def _spread(ranges: list[Range], tasks: int) -> list[list[Range]]:
    """Largest first, each to the task that has least."""
    shares: list[list[Range]] = [[] for _ in range(tasks)]
    loads = [0] * tasks
    for found in sorted(ranges, key=lambda found: found.start - found.end):
        lightest = loads.index(min(loads))
        shares[lightest].append(found)
        loads[lightest] += max(1, found.end - found.start)
    return shares


def run_plan(plan: ReadPlan, options: SourceOptions, cluster: Cluster, asking: Cluster) -> Iterator[pa.RecordBatch]:
    """Reads a plan's ranges and yields their facts, the barrier last.

    A census goes over connections of its own, `asking`: on those that a quota of bytes throttles it would have to wait.
    """
    room = Room()
    reads = [_read(found, options, room) for found in plan.ranges]
    read_ranges(
        cluster,
        reads,
        patience_s=options.read_patience_s,
        budgets=budgets(plan, reads, options, time.monotonic()),
        rate=ReadRate(options.max_bytes_per_second / plan.tasks) if options.max_bytes_per_second is not None else None,
    )
    if options.episodes:
        yield from _arrow(episode_rows(reads, plan.unlisted))
        return
    facts = [*_facts(plan, reads), *_census_facts(plan, asking)]
    if plan.end is not None:
        facts += hidden_participants(facts, plan.end.positions, options, asking)
    facts += _throttled(plan, cluster, asking)
    if options.packed:
        yield packed_batch(facts, options.buckets)
    else:
        yield from _arrow(fact_rows(facts, options.buckets))


def budgets(plan: ReadPlan, reads: Iterable[RangeRead], options: SourceOptions, now_s: float) -> list[Budget]:
    """How much a task may read: its part of the data by bytes and time, of the coordinators' log by bytes.

    Of that log a first reading has a budget of its own: nothing else that is read of it may be so large.

    None without a way for the job to say that something is left.
    """
    if options.control_file is None:
        return []
    data = [read for read in reads if is_data(read.partition)]
    firsts = {found.partition for found in plan.ranges if found.is_first_of_past}
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


def _read(found: Range, options: SourceOptions, room: Room) -> RangeRead:
    def data_fold(start: int, end: int) -> PartitionFold:
        return PartitionFold(start, end, keep_episodes=options.episodes)

    def log_fold(start: int, end: int) -> TransactionFold:
        if found.is_first_of_past:
            return PastFold(found.partition.partition, start, end, news_from=found.news_from, room=room)
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
                detail = "compaction has passed where reading stopped: what ended a transaction may be gone"
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
    """Where the last hole ended in each partition of the coordinator's log that has one in its range."""
    folds = [read.fold for read in reads if isinstance(read.fold, TransactionFold)]
    return {fold.log_partition: fold.whole_from for fold in folds if fold.whole_from > fold.start}


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


def _arrow(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    chunk: list[Row] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == ROWS_PER_ARROW_BATCH:
            yield record_batch(chunk)
            chunk = []
    yield record_batch(chunk)
