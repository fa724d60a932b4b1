"""One task's share of a batch: which ranges it reads, and the facts it makes of them.

The first plan of a batch carries the coordinator's log and the barrier; data ranges are spread over as many plans
as the batch is worth, because every further Spark task costs some 18 ms.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from txnwatch.state.facts import Fact, LastStable, NoticeKind, PartitionNotice
from txnwatch.state.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.census import Census, take_census
from txnwatch.streaming.cluster import Cluster
from txnwatch.streaming.fetch import read_ranges
from txnwatch.streaming.fold import PartitionFold
from txnwatch.streaming.offsets import SourceOffset, is_data
from txnwatch.streaming.options import SourceOptions
from txnwatch.streaming.planner import is_begun
from txnwatch.streaming.range_read import RangeRead
from txnwatch.streaming.rows import EPISODE, Row, fact_rows, record_batch
from txnwatch.streaming.transaction_fold import TransactionFold

OFFSETS_WORTH_A_TASK = 100_000
ASKED_WORTH_A_TASK = 200
ROWS_PER_ARROW_BATCH = 10_000
_WIDEST_CLOCK_MS = 10_000  # its middle is off by no more than what the thresholds tolerate


@dataclass(frozen=True, slots=True)
class Range:
    """A range of one partition to be read, [start, end); an end below the start means the log was truncated.

    `last_epoch` is the leader epoch of what was read before, -1 if unknown. `is_new` marks the first reading of a
    coordinator partition that was there before us, of which only live transactions are passed on. `is_tail` marks
    a range that goes on where everything had been read: compaction does not reach there unless we are late. A gap may
    be of such a range though its log is read in chunks by now: its holes count, at worst for one reading too many.
    """

    partition: TopicPartition
    topic_id: str
    start: int
    end: int
    last_epoch: int
    must_check: bool
    is_new: bool
    is_tail: bool = False


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What one task reads; `end` is the batch's whole offset, only in the plan that brings the barrier.

    `risen` are data partitions that have had an election since the listing before; `unfinished` partitions of the
    coordinator's log of which this batch's reading may have been overtaken by compaction.
    """

    ranges: tuple[Range, ...]
    listed_ms: int
    end: SourceOffset | None = None
    previous_listed_ms: int = 0
    risen: frozenset[TopicPartition] = frozenset()
    unfinished: frozenset[int] = frozenset()
    census: Census | None = None


def plan_reads(
    start: SourceOffset, end: SourceOffset, options: SourceOptions, census: Census | None = None
) -> list[ReadPlan]:
    """The tasks of one batch, with its census if there is one."""
    ranges = [found for found in (_range(start, end, partition) for partition in end.positions) if found is not None]
    log = [found for found in ranges if not is_data(found.partition)]
    data = [found for found in ranges if is_data(found.partition)]
    offsets = sum(max(0, found.end - found.start) for found in data)
    tasks = max(1, min(options.input_partitions, -(-offsets // OFFSETS_WORTH_A_TASK)))
    shares = _spread(data, tasks)
    is_large = census is not None and len(census.asked) > ASKED_WORTH_A_TASK
    listed_ms, previous_listed_ms = end.data_listed_ms, start.coordinator_listed_ms
    first_census = None if is_large else census
    risen, unfinished = _risen(start, end), _unfinished(start, end)
    plans = [ReadPlan((*log, *shares[0]), listed_ms, end, previous_listed_ms, risen, unfinished, first_census)]
    plans.extend(ReadPlan(tuple(share), listed_ms) for share in shares[1:])
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


def _goes_on(start: SourceOffset, end: SourceOffset, partition: TopicPartition) -> bool:
    before = start.positions.get(partition)
    if before is None or partition in end.begun or end.reread.get(partition, 1) <= 0:
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
    if partition in end.begun:
        # Found later means made later: there are no old idle ids in it, and what it says is news.
        is_old = start.barrier == 0 or partition in start.positions
        found = Range(partition, at.topic_id, end.begun[partition], at.offset, -1, must_check=False, is_new=is_old)
    elif before is None:
        return None
    elif back is not None and back < before.offset:
        found = Range(partition, at.topic_id, back, at.offset, -1, must_check=False, is_new=False, is_tail=back > 0)
    else:
        risen = before.epoch != at.epoch
        found = Range(
            partition,
            at.topic_id,
            before.offset,
            at.offset,
            before.epoch,
            must_check=risen,
            is_new=False,
            is_tail=before.offset >= before.listed,
        )
    return found if found.start != found.end or found.must_check else None


def _spread(ranges: list[Range], tasks: int) -> list[list[Range]]:
    """Largest first, each to the task that has least."""
    shares: list[list[Range]] = [[] for _ in range(tasks)]
    loads = [0] * tasks
    for found in sorted(ranges, key=lambda found: found.start - found.end):
        lightest = loads.index(min(loads))
        shares[lightest].append(found)
        loads[lightest] += max(1, found.end - found.start)
    return shares


def run_plan(plan: ReadPlan, options: SourceOptions, cluster: Cluster) -> Iterator[pa.RecordBatch]:
    """Reads a plan's ranges and yields their facts, the barrier last."""
    reads = [_read(found, options) for found in plan.ranges]
    read_ranges(cluster, reads, patience_s=options.read_patience_s)
    if options.episodes:
        yield from _arrow(_episode_rows(reads))
        return
    facts = [*_facts(plan, reads), *_census_facts(plan, cluster)]
    yield from _arrow(fact_rows(facts, options.buckets))


def _read(found: Range, options: SourceOptions) -> RangeRead:
    def data_fold(start: int, end: int) -> PartitionFold:
        return PartitionFold(start, end, keep_episodes=options.episodes)

    def log_fold(start: int, end: int) -> TransactionFold:
        return TransactionFold(found.partition.partition, start, end)

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
    for read, found in zip(reads, plan.ranges, strict=True):
        yield from read.notices
        if isinstance(read.fold, TransactionFold):
            yield from read.fold.facts(live_only=found.is_new)
            if found.is_tail and read.fold.hole is not None:
                detail = "compaction has passed where reading stopped: what ended a transaction may be gone"
                yield PartitionNotice(NoticeKind.LOST, read.partition, read.topic_id, read.fold.hole, found.end, detail)
        else:
            yield from read.fold.facts(read.partition, read.topic_id, plan.listed_ms)
            if 0 <= read.last_stable_offset < read.fold.position:
                yield LastStable(read.partition, read.topic_id, read.last_stable_offset)
    if plan.end is not None:
        for partition, topic_id in plan.end.gone.items():
            yield PartitionNotice(NoticeKind.DELETED, partition, topic_id, 0, 0, "no longer in the cluster's metadata")
        yield plan.end.barrier_fact(_clock_offset_ms(plan, reads), plan.risen, plan.unfinished, _holes(reads))


def _holes(reads: Iterable[RangeRead]) -> dict[int, int]:
    """Where the last hole ended in each partition of the coordinator's log that has one in its range."""
    folds = [read.fold for read in reads if isinstance(read.fold, TransactionFold)]
    return {fold.log_partition: fold.whole_from for fold in folds if fold.whole_from > fold.start}


def _census_facts(plan: ReadPlan, cluster: Cluster) -> Iterator[Fact]:
    if plan.census is None:
        return
    yield from take_census(cluster, plan.census)


def _clock_offset_ms(plan: ReadPlan, reads: list[RangeRead]) -> int | None:
    """The broker's clock minus ours, from records the coordinator stamped between two listings.

    A record stamped s by the broker and listed now (ours, t) but not at the listing before (ours, p) was written
    in between: the offset lies from s - t to s - p. The middle of what all records of the batch allow is taken, unless
    that is so wide (nobody could be asked for a while) that the middle says nothing.
    """
    assert plan.end is not None
    lowest: int | None = None
    highest: int | None = None
    for read, found in zip(reads, plan.ranges, strict=True):
        fold = read.fold
        if not isinstance(fold, TransactionFold) or found.is_new or fold.times is None:
            continue
        low = fold.times[1] - plan.end.coordinator_listed_ms
        high = fold.times[0] - plan.previous_listed_ms
        lowest = low if lowest is None else max(lowest, low)
        highest = high if highest is None else min(highest, high)
    if lowest is None or highest is None or highest - lowest > _WIDEST_CLOCK_MS:
        return None
    return (lowest + highest) // 2


def _episode_rows(reads: Iterable[RangeRead]) -> Iterator[Row]:
    for read in reads:
        if not isinstance(read.fold, PartitionFold):
            continue
        for episode in read.fold.episodes:
            yield {
                "kind": EPISODE,
                "topic": read.partition.topic,
                "partition": read.partition.partition,
                "topic_id": read.topic_id,
                "producer_id": episode.producer_id,
                "producer_epoch": episode.producer_epoch,
                "txn_start_offset": episode.start_offset,
                "last_offset": episode.last_offset,
                "last_timestamp_ms": episode.last_timestamp_ms,
                "last_marker_offset": episode.marker.offset,
                "last_marker_epoch": episode.marker.producer_epoch,
                "last_marker_commit": episode.marker.commit,
                "last_marker_coordinator_epoch": episode.marker.coordinator_epoch,
                "last_marker_timestamp_ms": episode.marker.timestamp_ms,
            }
        for notice in read.notices:
            yield {
                "kind": "notice",
                "topic": read.partition.topic,
                "partition": read.partition.partition,
                "range_start": notice.from_offset,
                "range_end": notice.to_offset,
                "detail": json.dumps({"notice": notice.kind, "detail": notice.detail}),
            }


def _arrow(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    chunk: list[Row] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == ROWS_PER_ARROW_BATCH:
            yield record_batch(chunk)
            chunk = []
    yield record_batch(chunk)
