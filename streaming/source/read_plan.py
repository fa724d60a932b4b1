"""Plans the tasks of a batch: the ranges that each one reads. plan_run.py runs a plan.

The first plan of a batch has the barrier. Data ranges and those of `__transaction_state` are spread over more plans if
they are large: each further Spark task costs about 18 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from txnwatch.state.model.facts import PartitionNotice
from txnwatch.state.model.ids import LeaderEpoch, TopicPartition
from txnwatch.state.model.quantities import FIRST_OFFSET, LONG_AGO, DurationMs, Offset, TimestampMs
from txnwatch.state.model.record import ModelValue
from txnwatch.streaming.source.offsets import NotBegun, Position, SourceOffset, is_data
from txnwatch.streaming.source.options import SourceOptions
from txnwatch.streaming.source.planner import is_begun
from txnwatch.streaming.source.snapshot_schedule import Census

OFFSETS_WORTH_A_TASK = 100_000
LOG_OFFSETS_WORTH_A_TASK = 20_000  # half a second of decoding
ASKED_WORTH_A_TASK = 200


class Range(ModelValue, frozen=True):
    """A range [start, end) of one partition to read. An end below the start means that the log was truncated.

    `last_epoch` is the leader epoch of what was read before; None if unknown.

    For `__transaction_state`: records below `backlog_end` existed before reading began or restarted. `is_first` marks
    the beginning of a first reading, when nothing of the partition is known: of the existing records, only live
    transactions are passed on. `is_tail` marks a range of new records that continues at the last end: compaction does
    not reach them unless reading is late.
    """

    partition: TopicPartition
    topic_id: str
    start: Offset
    end: Offset
    last_epoch: LeaderEpoch | None
    must_check: bool
    backlog_end: Offset = FIRST_OFFSET
    is_first: bool = False
    is_tail: bool = False

    @property
    def is_history(self) -> bool:
        """Whether it is the beginning of a first reading, and all its records existed before."""
        return self.is_first and not is_data(self.partition) and self.end <= self.backlog_end


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What one task reads.

    Attributes:
        end: the batch's whole offset; only in plans that read `__transaction_state`, as the next four.
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
    listed_ms: TimestampMs
    end: SourceOffset | None = None
    previous_listed_ms: TimestampMs = LONG_AGO
    risen: frozenset[TopicPartition] = frozenset()
    unfinished: frozenset[int] = frozenset()
    followed: frozenset[int] = frozenset()
    census: Census | None = None
    tasks: int = 1
    throttled_ms: Mapping[str, DurationMs] = field(default_factory=dict)
    unlisted: tuple[PartitionNotice, ...] = ()
    brings_barrier: bool = True


def plan_reads(
    start: SourceOffset, end: SourceOffset, options: SourceOptions, census: Census | None = None
) -> list[ReadPlan]:
    """The plans of one batch, one per task, with its census if there is one."""
    ranges = [found for found in (_range(start, end, partition) for partition in end.positions) if found is not None]
    log = [found for found in ranges if not is_data(found.partition)]
    data = [found for found in ranges if is_data(found.partition)]
    history = [found for found in log if found.is_history]
    tails = [found for found in log if not found.is_history]
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
    plans = [ReadPlan((*parts[0], *histories[0], *shares[0]), listed_ms, end, *whole, first_census, tasks)]
    for number in range(1, tasks):
        ranges_of_task = (*parts[number], *histories[number], *shares[number])
        if parts[number]:
            plans.append(ReadPlan(ranges_of_task, listed_ms, end, *whole, tasks=tasks, brings_barrier=False))
        else:
            at = end if histories[number] else None
            plans.append(ReadPlan(ranges_of_task, listed_ms, at, tasks=tasks, brings_barrier=False))
    if is_large:
        plans.append(ReadPlan((), listed_ms, census=census))
    return plans


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


def _unfinished(start: SourceOffset, end: SourceOffset) -> frozenset[int]:
    """Partitions of `__transaction_state` that were not read to their end before: one more batch must follow.

    Their compaction holes are no loss. While they are read, compaction can remove a record in favour of a later one
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
    if not is_begun(before) or partition in end.begun:
        return False
    back = end.reread.get(partition, before.offset)
    if partition in end.reread and (back <= 0 or back < end.backlog_end.get(partition, 0)):
        return False
    return before.topic_id == end.positions[partition].topic_id and before.offset >= before.listed


def _range(start: SourceOffset, end: SourceOffset, partition: TopicPartition) -> Range | None:
    at = end.positions[partition]
    if not is_begun(at) or at.is_stale:
        return None
    known = start.positions.get(partition)
    before = known if is_begun(known) and known.topic_id == at.topic_id else None
    back = end.reread.get(partition)
    backlog_end = end.backlog_end.get(partition, FIRST_OFFSET)
    if partition in end.begun:
        first = end.begun[partition]
        found = Range(
            partition, at.topic_id, first, at.offset, None, must_check=False, backlog_end=backlog_end, is_first=True
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
            before.epoch if begin > 0 else None,
            must_check=before.epoch != at.epoch,
            backlog_end=backlog_end,
            is_tail=not is_data(partition) and begin >= backlog_end and _goes_on(start, end, partition),
        )
    return found if found.start != found.end or found.must_check else None


def _worth(ranges: Iterable[Range], options: SourceOptions, worth_a_task: int) -> int:
    """How many tasks to use for some ranges."""
    offsets = sum(max(0, found.end - found.start) for found in ranges)
    return max(1, min(options.input_partitions, -(-offsets // worth_a_task)))


def _largest_first(ranges: list[Range]) -> list[Range]:
    return sorted(ranges, key=lambda found: found.start - found.end)


def _dealt(ranges: list[Range], tasks: int, *, of: int) -> list[list[Range]]:
    """Deals ranges in turn to the first tasks `of` all.

    Loads are not compared, because the number of records in a compacted range is unknown.
    """
    return [ranges[number::tasks] if number < tasks else [] for number in range(of)]


def _spread(ranges: list[Range], tasks: int) -> list[list[Range]]:
    """Assigns ranges to tasks, the largest first, each to the task with the smallest load."""
    shares: list[list[Range]] = [[] for _ in range(tasks)]
    loads = [0] * tasks
    for found in sorted(ranges, key=lambda found: found.start - found.end):
        lightest = loads.index(min(loads))
        shares[lightest].append(found)
        loads[lightest] += max(1, found.end - found.start)
    return shares
