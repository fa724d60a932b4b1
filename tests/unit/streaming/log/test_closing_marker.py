"""The marker that closed a transaction: its producer's first control batch from an offset on, or nothing at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from support.batches import TIMESTAMP_MS, a_batch, a_control_batch, a_marker
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.facts import NoticeKind
from txnwatch.state.model.transaction import ClosingMarker, Marker
from txnwatch.state.model.values import Problem, SpanStart, TopicPartition
from txnwatch.streaming.log import lookups as closing
from txnwatch.streaming.log.lookups import FirstMarker, closing_marker
from txnwatch.streaming.log.range_reading import Range, RangeReading

PARTITION = TopicPartition("orders", 0)
ABORTED_AT_3 = ClosingMarker(Marker(3, 1, False, 5, TIMESTAMP_MS), None)


@pytest.mark.parametrize(
    ("batches", "found", "position"),
    [
        pytest.param([a_batch(2), a_batch(3)], None, 4, id="data only"),
        pytest.param(
            [a_batch(2), a_marker(3, commit=False, producer_epoch=1, coordinator_epoch=5), a_marker(4)],
            ABORTED_AT_3._replace(data_epoch=0),
            9,
            id="the first of two",
        ),
        pytest.param(
            [a_marker(2, producer_id=8), a_marker(3, commit=False, producer_epoch=1, coordinator_epoch=5)],
            ABORTED_AT_3,
            9,
            id="another producer's stands before it",
        ),
        pytest.param(
            [a_marker(1), a_marker(3, commit=False, producer_epoch=1, coordinator_epoch=5)],
            ABORTED_AT_3,
            9,
            id="one below the offset",
        ),
        pytest.param([a_control_batch([], 3), a_marker(4)], None, 9, id="emptied by compaction: of what kind is gone"),
        pytest.param([a_batch(8), a_marker(9)], None, 9, id="one beyond the end"),
    ],
)
def test_the_walk_ends_with_the_first_control_batch_of_the_producer(
    batches: list[bytes], found: ClosingMarker | None, position: int
) -> None:
    fold = FirstMarker(7, 2, 9)
    fold.feed(b"".join(batches))
    assert (fold.found, fold.position) == (found, position)
    assert fold.is_done == (position == 9)


@pytest.mark.parametrize(
    ("batches", "data_epoch"),
    [
        pytest.param([a_batch(2, producer_epoch=1), a_batch(3, producer_epoch=2)], 2, id="the highest"),
        pytest.param([a_batch(2, producer_epoch=2), a_batch(3, producer_epoch=1)], 2, id="the highest, not the last"),
        pytest.param([a_batch(2, producer_epoch=0), a_batch(3, producer_epoch=0)], 0, id="of the first epoch"),
        pytest.param([a_batch(1, producer_epoch=2), a_batch(2, producer_id=8), a_batch(3)], 0, id="below the offset"),
        pytest.param([a_batch(2, producer_id=8, producer_epoch=2), a_batch(3, producer_id=8)], None, id="of another"),
        pytest.param([a_batch(2, producer_epoch=2, transactional=False), a_batch(3)], 0, id="of no transaction"),
        pytest.param([a_batch(2), a_marker(3, producer_id=8, producer_epoch=2)], 0, id="a marker is no data"),
        pytest.param([a_batch(3, producer_epoch=2)], None, id="above a hole: it may have held a marker"),
        pytest.param([a_batch(2, producer_epoch=2)], 2, id="below a hole"),
    ],
)
def test_the_newest_data_that_the_marker_closed_is_told_by_its_epoch(
    batches: list[bytes], data_epoch: int | None
) -> None:
    fold = FirstMarker(7, 2, 9)
    for batch in (*batches, a_marker(4, producer_epoch=1), a_batch(5, producer_epoch=9)):
        fold.feed(batch)
    assert fold.found == ClosingMarker(Marker(4, 1, True, 0, TIMESTAMP_MS), data_epoch)


class Log:
    """A log as `list_extents` and `read_parts` give it."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, start: int, end: int, *, problem: Problem | None = None
    ) -> None:
        self.asked: list[tuple[int, int]] = []
        self.is_spoilt, self.is_away = False, False
        monkeypatch.setattr(
            closing, "list_extents", lambda *_: {PARTITION: problem or Range(PARTITION, "id", start, end)}
        )
        monkeypatch.setattr(closing, "read_parts", self._read)

    def _read(self, _: object, parts: Iterable[RangeReading]) -> list[RangeReading]:
        reads = list(parts)
        for read in reads:
            self.asked.append((read.start, read.end))
            if self.is_away:
                raise BrokerError("no broker")
            if self.is_spoilt:
                read.notice(NoticeKind.TRUNCATED, 0, read.start, "the log was cut")
            read.fold.feed(a_marker(3, commit=False, producer_epoch=1, coordinator_epoch=5))
        return reads

    def ask(self, start: int, first: int) -> ClosingMarker | None:
        cluster: Any = None
        return closing_marker(cluster, SpanStart(PARTITION, 7, start), first)


def test_it_is_read_from_the_higher_of_both_offsets_and_not_endlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(monkeypatch, 0, 3_000_000)
    assert log.ask(1, 2) == log.ask(3, 2) == ABORTED_AT_3
    assert log.asked == [(2, 1_000_002), (3, 1_000_003)]


def test_a_deleted_offset_may_have_had_the_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Log(monkeypatch, 3, 9).ask(0, 2) is None


def test_a_partition_that_does_not_answer_proves_nothing_and_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Log(monkeypatch, 0, 9, problem=Problem("no leader")).ask(0, 2) is None
    log = Log(monkeypatch, 0, 9)
    log.is_away = True
    assert log.ask(0, 2) is None


def test_a_log_that_was_truncated_while_it_was_read_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(monkeypatch, 0, 9)
    log.is_spoilt = True
    assert log.ask(0, 2) is None
