"""The history of open spans: what their partitions' logs show, for many at a time, and what cannot be known (yet)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from typing import Any

import pytest

from support.batches import a_batch, a_marker
from support.problems import a_problem
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.facts import NoticeKind
from txnwatch.state.model.ports import BEING_READ, ListedOffset, SpanHistory
from txnwatch.state.model.values import Problem, SpanStart, TopicPartition
from txnwatch.streaming.client.cluster import EARLIEST, LATEST
from txnwatch.streaming.client.metadata import Metadata, TopicInfo
from txnwatch.streaming.log import lookups as extent
from txnwatch.streaming.log.lookups import OFFSETS_BELOW, SpanHistoryFold, SpanHistoryReader, near
from txnwatch.streaming.log.range_reading import RangeReading

MINE, OTHER = 7, 8
BUDGET_S = 0.3
ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)
DATA = a_batch(0, producer_id=MINE)
FIRST = a_marker(1, producer_id=MINE, producer_epoch=1, commit=True)
LAST = a_marker(3, producer_id=MINE, producer_epoch=2, commit=False)
THEIRS = a_marker(4, producer_id=OTHER)


def a_span(start: int, producer_id: int = MINE, at: TopicPartition = ORDERS) -> SpanStart:
    return SpanStart(at, producer_id, start)


def summary(history: SpanHistory) -> tuple[int, int | None, bool]:
    return (
        history.start_epoch,
        history.last_marker.offset if history.last_marker is not None else None,
        history.is_first,
    )


@pytest.mark.parametrize(
    ("begin", "batches", "marker", "is_first"),
    [
        pytest.param(0, [DATA, a_batch(1, count=4)], None, True, id="none"),
        pytest.param(0, [DATA, FIRST, a_batch(2, producer_id=MINE), LAST, THEIRS], 3, False, id="the last of its own"),
        pytest.param(0, [FIRST, a_batch(2, count=3)], 1, False, id="a hole below it hides nothing later"),
        pytest.param(0, [DATA, FIRST, THEIRS], None, False, id="what is missing above it may have been a later one"),
        pytest.param(0, [DATA, FIRST, a_batch(9)], None, False, id="also what is missing to the end"),
        pytest.param(1, [FIRST, a_batch(2, count=3)], 1, False, id="the first of the range"),
        pytest.param(1, [a_batch(1, count=4)], None, False, id="what is below the range may have been the first"),
    ],
)
def test_the_last_marker(begin: int, batches: list[bytes], marker: int | None, is_first: bool) -> None:  # noqa: FBT001
    fold = SpanHistoryFold((a_span(5),), begin, 6)
    fold.feed(b"".join(batches))
    (history,) = dict(fold.histories()).values()
    assert (history.last_marker.offset if history.last_marker is not None else None, history.is_first) == (
        marker,
        is_first,
    )


TWO_EPOCHS = [
    a_batch(0, producer_id=MINE, producer_epoch=2),
    a_marker(1, producer_id=MINE, producer_epoch=2, commit=True),
    a_batch(2, producer_id=MINE, producer_epoch=3),
    a_batch(3, producer_id=OTHER, producer_epoch=9),
    a_batch(4, producer_id=MINE, producer_epoch=4),
]
HISTORIES = {
    a_span(2): (3, 1, False),  # the epoch it began with, not the last; and the marker below
    a_span(0): (2, None, True),  # nothing lies below the first
    a_span(3): (None, 1, False),  # another producer's batch is there
    a_span(1): (None, None, True),  # a marker is there
    a_span(3, OTHER): (9, None, True),  # another producer's marker is not its own
    a_span(9): (None, 1, False),  # nothing is there
}


class Logs:
    """The part of a Cluster that reading histories needs.

    Attributes:
        passes: how many ranges were read side by side, each time.
        on_read: happens to each range instead of being read to its end.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches = {ORDERS: TWO_EPOCHS, PAYMENTS: TWO_EPOCHS}
        self.errors: dict[int, str] = {}
        self.passes: list[int] = []
        self.until = float("inf")
        self.on_read: Callable[[RangeReading, bytes], None] = lambda read, log: read.fold.feed(log)
        self.known = Metadata("cluster", {}, {at.topic: TopicInfo(at.topic, "id", {}) for at in self.batches})
        monkeypatch.setattr(extent, "read_ranges", self.read)

    def use_up(self) -> None:
        """Uses up the time that is left, if it is limited."""
        while time.monotonic() <= self.until < float("inf"):
            time.sleep(0.01)

    @contextmanager
    def budget(self, seconds: float) -> Any:
        assert seconds > 0
        yield

    def list_offsets(
        self, partitions: Iterable[TopicPartition], *, timestamp: int = LATEST
    ) -> dict[TopicPartition, ListedOffset | Problem]:
        offset = 0 if timestamp == EARLIEST else 5
        is_away = timestamp in self.errors
        return {
            at: a_problem(self.errors[timestamp]) if is_away and at == ORDERS else ListedOffset(offset, 0, 1)
            for at in partitions
        }

    def read(self, _: object, reads: Iterable[RangeReading], **__: object) -> None:
        asked = list(reads)
        self.passes.append(len(asked))
        for read in asked:
            self.on_read(read, b"".join(self.batches[read.partition]))


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    return Logs(monkeypatch)


def reader_of(logs: Logs) -> SpanHistoryReader:
    return SpanHistoryReader(logs)  # type: ignore[arg-type]


@pytest.mark.parametrize("span", HISTORIES, ids=str)
def test_the_history_of_a_span_is_in_its_partition(logs: Logs, span: SpanStart) -> None:
    assert summary(reader_of(logs).read([span])[span]) == HISTORIES[span]


def test_many_spans_of_many_partitions_are_read_in_one_pass(logs: Logs) -> None:
    spans = [*HISTORIES, *(span._replace(partition=PAYMENTS) for span in HISTORIES)]
    found = reader_of(logs).read(spans)
    assert [summary(found[span]) for span in spans] == [*HISTORIES.values(), *HISTORIES.values()]
    assert logs.passes == [2], "one range of each partition, side by side"


def test_spans_that_are_far_from_each_other_do_not_share_a_walk() -> None:
    spans = [a_span(start) for start in (3 * OFFSETS_BELOW, 0, OFFSETS_BELOW, OFFSETS_BELOW + 1)]
    assert [span.start_offset for span in near(spans)] == [0, OFFSETS_BELOW]


@pytest.mark.parametrize("timestamp", [EARLIEST, LATEST])
def test_a_partition_that_cannot_be_listed_is_a_problem_of_its_own_spans(logs: Logs, timestamp: int) -> None:
    logs.errors[timestamp] = "NOT_LEADER_OR_FOLLOWER"
    found = reader_of(logs).read([a_span(2), a_span(2, at=PAYMENTS)])
    assert found[a_span(2)] == SpanHistory(problem="NOT_LEADER_OR_FOLLOWER")
    assert summary(found[a_span(2, at=PAYMENTS)]) == HISTORIES[a_span(2)]


def test_a_read_that_exceeds_its_time_continues_where_it_ended(logs: Logs) -> None:
    steps = iter(TWO_EPOCHS)
    logs.on_read = lambda read, _: read.fold.feed(next(steps))
    reader = reader_of(logs)
    for _ in TWO_EPOCHS[:4]:
        logs.until = time.monotonic() + BUDGET_S
        logs.on_read = lambda read, _: (read.fold.feed(next(steps)), logs.use_up())[0]  # type: ignore[func-returns-value]
        assert reader.read([a_span(4)])[a_span(4)] == BEING_READ
    logs.until = float("inf")
    assert summary(reader.read([a_span(4)])[a_span(4)]) == (4, 1, False)


def test_a_read_that_did_not_begin_in_time_is_a_problem(logs: Logs) -> None:
    logs.until = time.monotonic()
    assert "time budget" in (reader_of(logs).read([a_span(2)])[a_span(2)].problem or "")


def test_a_partition_of_which_nothing_came_does_not_pass_for_one_that_is_being_read(logs: Logs) -> None:
    logs.until = time.monotonic() + BUDGET_S
    logs.on_read = lambda *_: logs.use_up()
    assert reader_of(logs).read([a_span(2)])[a_span(2)] == SpanHistory(
        problem="its partition's log returned no data in time"
    )


def unreachable(read: RangeReading, _: bytes) -> None:
    read.gap("no leader")


def cut(read: RangeReading, log: bytes) -> None:
    read.truncated(1, "the log diverges")
    read.fold.feed(log)


def gone(read: RangeReading, _: bytes) -> None:
    read.notice(NoticeKind.DELETED, 0, 1, "the topic was deleted or re-created")
    read.is_over = True


def nobody(*_: object) -> None:
    raise BrokerError("no broker answered")


@pytest.mark.parametrize("happens", [unreachable, cut, gone, nobody])
def test_a_failed_read_can_be_requested_again(logs: Logs, happens: Callable[[RangeReading, bytes], None]) -> None:
    reader, usual = reader_of(logs), logs.on_read
    logs.on_read = happens
    assert reader.read([a_span(2)])[a_span(2)].problem
    logs.on_read = usual
    assert summary(reader.read([a_span(2)])[a_span(2)]) == HISTORIES[a_span(2)]


def undecodable(read: RangeReading, _: bytes) -> None:
    read.gap("the batch at offset 0 is not valid", is_decode_failure=True)


def behind_retention(read: RangeReading, _: bytes) -> None:
    read.notice(NoticeKind.LOST, 0, 3, "retention was faster")
    read.fold = read.new_fold(3, read.end)
    read.fold.feed(b"".join(TWO_EPOCHS[3:]))


@pytest.mark.parametrize("happens", [undecodable, behind_retention])
def test_an_epoch_that_can_never_be_read_is_unknown_and_no_problem(
    logs: Logs, happens: Callable[[RangeReading, bytes], None]
) -> None:
    logs.on_read = happens
    assert reader_of(logs).read([a_span(2)])[a_span(2)] == SpanHistory()
