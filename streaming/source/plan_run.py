"""Runs the plan of one task: reads its ranges within the budgets, and returns their facts."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa

from txnwatch.state.model.facts import Fact, LastStable, LogRead, NoticeKind, PartitionNotice, Throttled
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC
from txnwatch.state.model.quantities import FIRST_OFFSET, DurationMs, Offset
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.fetch import read_ranges
from txnwatch.streaming.log.first_read_fold import FirstReadFold, HeldBytes
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch.streaming.log.range_read import RangeRead
from txnwatch.streaming.log.read_budget import NO_LIMIT, Budget
from txnwatch.streaming.log.read_rate import ReadRate
from txnwatch.streaming.log.transaction_fold import TransactionFold
from txnwatch.streaming.source.coordinator_clocks import clocks_of, elected_since
from txnwatch.streaming.source.fact_rows import FACTS, fact_rows
from txnwatch.streaming.source.hidden_participants import hidden_participants
from txnwatch.streaming.source.history_rows import HISTORY, episode_rows
from txnwatch.streaming.source.offsets import is_data
from txnwatch.streaming.source.options import SourceOptions
from txnwatch.streaming.source.packed_facts import packed_batch
from txnwatch.streaming.source.read_plan import Range, ReadPlan
from txnwatch.streaming.source.row_format import Row, RowFormat
from txnwatch.streaming.source.snapshot_schedule import take_census

ROWS_PER_ARROW_BATCH = 10_000
# About 40,000 records per second are decoded, in a first reading ten times as many. Nothing is proven before the first
# reading ends, so it may read more. What it leaves costs more: idle ids in it must be passed to open transactions.
LOG_BYTES, LOG_BYTES_AT_FIRST = 8 << 20, 1 << 30
_SLOW_LOG_READ_S = 5.0  # with a rate limit: a barrier without the end of the log is better than none


def run_plan(plan: ReadPlan, options: SourceOptions, cluster: Cluster, asking: Cluster) -> Iterator[pa.RecordBatch]:
    """Reads a plan's ranges and yields their facts.

    A census uses connections of its own, `asking`: on the others it would wait while a byte quota throttles
    them.
    """
    room = HeldBytes()
    reads = [range_read(found, options, room) for found in plan.ranges]
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
    facts = [*plan_facts(plan, reads), *_census_facts(plan, asking)]
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
    history = [read for read in reads if read.partition in firsts]
    max_bytes = NO_LIMIT if options.max_bytes_per_trigger is None else options.max_bytes_per_trigger // plan.tasks
    until_s = now_s + options.max_read_s if options.max_read_s is not None else math.inf
    log_until_s = now_s + _SLOW_LOG_READ_S if options.max_bytes_per_second is not None else math.inf
    return [
        Budget(data, max_bytes, until_s),
        Budget(log, LOG_BYTES, log_until_s),
        Budget(history, LOG_BYTES_AT_FIRST, log_until_s),
    ]


def range_read(found: Range, options: SourceOptions, room: HeldBytes) -> RangeRead:
    """The read of one range, with the fold that its partition needs."""

    def data_fold(start: Offset, end: Offset) -> PartitionFold:
        return PartitionFold(start, end, keep_episodes=options.episodes)

    def log_fold(start: Offset, end: Offset) -> TransactionFold:
        if found.is_history:
            return FirstReadFold(found.partition.partition, start, end, backlog_end=found.backlog_end, room=room)
        return TransactionFold(found.partition.partition, start, end, backlog_end=found.backlog_end)

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


def plan_facts(plan: ReadPlan, reads: list[RangeRead]) -> Iterator[Fact]:
    """The facts of a plan whose ranges have been read."""
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
            stable = read.last_stable_offset
            if stable is not None and stable < read.fold.position:
                yield LastStable(read.partition, read.topic_id, stable)
    if plan.end is None:
        return
    clocks, holes = clocks_of(plan.end, plan.previous_listed_ms, plan.followed, reads), _holes(reads)
    elected = elected_since(plan.end, reads)
    if not plan.brings_barrier:
        yield LogRead(holes, clocks, elected)
        return
    for partition, topic_id in plan.end.gone.items():
        yield PartitionNotice(
            NoticeKind.DELETED, partition, topic_id, FIRST_OFFSET, FIRST_OFFSET, "no longer in the cluster's metadata"
        )
    yield plan.end.barrier_fact(clocks, plan.risen, plan.unfinished, holes, elected)


def _holes(reads: Iterable[RangeRead]) -> dict[int, Offset]:
    """Where the last compaction hole ends, for each partition of `__transaction_state` with a hole in its range."""
    folds = [read.fold for read in reads if isinstance(read.fold, TransactionFold)]
    return {fold.log_partition: fold.last_hole_end for fold in folds if fold.last_hole_end > fold.start}


def _census_facts(plan: ReadPlan, cluster: Cluster) -> Iterator[Fact]:
    if plan.census is None:
        return
    yield from take_census(cluster, plan.census)


def _throttled(plan: ReadPlan, *clusters: Cluster) -> Iterator[Fact]:
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
