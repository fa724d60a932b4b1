"""What a task may read: small ranges as a whole, large ones up to the budget, and the rest is reported."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from msgspec.structs import replace as with_changes

from txnwatch.state.model.facts import NoticeKind
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.log.fetch import Budget
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.source.offsets import Position, SourceOffset
from txnwatch.streaming.source.options import parse_options
from txnwatch.streaming.source.tasks import LOG_BYTES, LOG_BYTES_AT_FIRST, TaskPlan, budgets, plan_reads

MB = 1 << 20
ORDERS = TopicPartition("orders", 0)


@dataclass
class Bytes:
    """A fold of which an offset is a byte."""

    position: int
    end: int
    leader_epoch: int = -1

    @property
    def is_done(self) -> bool:
        return self.position >= self.end

    def feed(self, buffer: memoryview | bytes) -> None:
        self.position += len(buffer)


def a_read(end: int, name: str = "orders", number: int = 0, *, must_check: bool = False) -> RangeReading:
    return RangeReading(Range(TopicPartition(name, number), "id", 0, end, 3, must_check), Bytes)


def answer(read: RangeReading, size: int) -> None:
    """What a leader sends: at most `size`."""
    if read.needs_fetch:
        sent = min(size, read.fold.end - read.fold.position)
        read.must_check, read.is_answered = False, True
        read.size += sent
        read.fold.position += sent


def rounds(reads: list[RangeReading], budget: Budget, size: int) -> None:
    for _ in range(1000):
        for read in reads:
            answer(read, size)
        budget.stop_spent(0.0)
        if not any(read.needs_fetch for read in reads):
            return
    raise AssertionError("it never ends")


def left(read: RangeReading) -> list[tuple[NoticeKind, int, int]]:
    return [(notice.kind, notice.from_offset, notice.to_offset) for notice in read.notices]


def test_small_ranges_are_read_whole_and_the_large_one_gets_the_rest() -> None:
    small = [a_read(20, number=number) for number in range(4)]
    large = a_read(10**6, number=9)
    reads = [*small, large]
    rounds(reads, Budget(reads, max_bytes=200), size=10)
    assert [left(read) for read in small] == [[]] * 4
    assert left(large) == [(NoticeKind.LEFT, large.fold.position, 10**6)]
    assert 40 <= large.fold.position <= 200


def test_many_large_ranges_read_no_more_than_twice_the_bytes() -> None:
    reads = [a_read(10**6, number=number) for number in range(10)]
    rounds(reads, Budget(reads, max_bytes=1000), size=7)
    assert sum(read.size for read in reads) <= 2000
    assert all(read.size >= 100 for read in reads), "each has its share"


def test_time_stops_what_was_answered_and_nothing_else() -> None:
    answering, silent, unchecked = a_read(100, number=0), a_read(100, number=1), a_read(100, number=2, must_check=True)
    answer(answering, 10)
    Budget([answering, silent, unchecked], until_s=5.0).stop_spent(4.9)
    assert answering.needs_fetch
    Budget([answering, silent, unchecked], until_s=5.0).stop_spent(5.0)
    assert left(answering) == [(NoticeKind.LEFT, 10, 100)]
    assert silent.needs_fetch, "nobody has answered: that is for patience to decide, and no budget"
    assert unchecked.needs_fetch, "whether the log was cut is always asked"


def test_a_range_that_is_read_to_its_end_is_never_left() -> None:
    read = a_read(10)
    answer(read, 10)
    Budget([read], max_bytes=1, until_s=0.0).stop_spent(1.0)
    assert left(read) == []


OPTIONS = {"kafka.bootstrap.servers": "kafka:9092", "subscribe": "orders"}


def test_a_task_has_its_share_of_the_bytes_and_its_time() -> None:
    options = parse_options({**OPTIONS, "maxReadMsPerTrigger": "700", "driverFile": "rereads"})
    data, log = a_read(10), a_read(10, TRANSACTION_STATE_TOPIC)
    of_data, of_log, _ = budgets(TaskPlan((), 0, max_bytes=4 * MB), [log, data], options, 10.0)
    assert (of_data.reads, of_data.max_bytes, of_data.until_s) == ([data], 4 * MB, 10.7)
    assert (of_log.reads, of_log.max_bytes, of_log.until_s) == ([log], LOG_BYTES, float("inf"))


def test_the_first_reading_of_the_log_has_a_larger_budget() -> None:
    options = parse_options({**OPTIONS, "driverFile": "rereads"})
    log = a_read(10, TRANSACTION_STATE_TOPIC)
    first = Range(log.partition, "id", 0, 10, -1, backlog_end=10, is_first=True)
    for found, expected in (
        (first, LOG_BYTES_AT_FIRST),
        (with_changes(first, is_first=False), LOG_BYTES),
        (with_changes(first, backlog_end=9), LOG_BYTES),
    ):
        (of_log,) = [one for one in budgets(TaskPlan((found,), 0), [log], options, 0.0) if one.reads]
        assert of_log.max_bytes == expected


@pytest.mark.parametrize(
    ("passed_ms", "expected"),
    [(1_000, 8 * MB), (250, 2 * MB), (60_000, 40 * MB), (-5, 8 * MB // 1000)],
    ids=["a second", "a quarter", "long ago: not saved", "our clock is odd"],
)
def test_the_tasks_of_a_batch_share_what_the_limit_allows_since_the_last_listing(passed_ms: int, expected: int) -> None:
    options = parse_options({**OPTIONS, "maxBytesPerSecond": str(8 * MB), "inputPartitions": "2"})
    at = Position("id", 0, 0, 10**6, 1)
    start = SourceOffset("", 1, 100_000, 100_000, {ORDERS: at})
    listed_ms = 100_000 + passed_ms
    end = SourceOffset("", 2, listed_ms, listed_ms, {ORDERS: with_changes(at, offset=10**6)})
    plans = plan_reads(start, end, options)
    assert [plan.max_bytes for plan in plans] == [expected // 2] * 2


def test_a_fetch_asks_for_no_more_than_is_left() -> None:
    reads = [a_read(100, number=0), a_read(100, number=1)]
    budget = Budget(reads, max_bytes=150)
    assert budget.left == 150
    answer(reads[0], 100)
    assert budget.left == 50
    answer(reads[1], 100)
    assert budget.left == 0


@pytest.mark.parametrize("option", ["maxBytesPerSecond", "maxReadMsPerTrigger"])
def test_without_a_driver_file_no_rest_of_a_range_is_left(option: str) -> None:
    options = parse_options({**OPTIONS, option: "1"})
    assert budgets(TaskPlan((), 0), [a_read(10)], options, 0.0) == []
