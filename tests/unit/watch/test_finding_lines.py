"""Every notice about a partition is counted; of those that repeat, one a minute is written."""

from __future__ import annotations

from collections import Counter

import pytest

from support.log_lines import LogLines
from txnwatch.state.model.facts import NoticeKind, PartitionNotice
from txnwatch.state.model.findings import Mismatch, PartitionAlarm, ViewHealed
from txnwatch.state.model.values import TopicPartition
from txnwatch.watch.alerts import PAUSE_MS, FindingLines

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)
WHY = "the right READ on the topic is missing"


def gap(start: int, partition: TopicPartition = ORDERS, kind: NoticeKind = NoticeKind.GAP) -> PartitionAlarm:
    return PartitionAlarm(PartitionNotice(kind, partition, "id", start, start + 1, WHY))


class Watched:
    def __init__(self) -> None:
        self.now_ms, self.lines, self.counts = 0, LogLines(), Counter[str]()
        self.written = FindingLines(self.lines, self.counts, lambda: self.now_ms)

    def batch(self, at_ms: int, *emitted: PartitionAlarm | ViewHealed) -> list[str]:
        """The lines of one micro-batch."""
        self.now_ms, before = at_ms, len(self.lines)
        self.written.on_batch(emitted)
        return self.lines[before:]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_the_first_gap_is_written_at_once_and_the_last_one_of_a_minute_after_it(watched: Watched) -> None:
    assert watched.batch(0, gap(0)) == [f"warning: gap orders-0 [0, 1): {WHY}"]
    assert watched.batch(500, gap(1)) == []
    assert watched.batch(PAUSE_MS - 1, gap(2)) == []
    assert watched.batch(PAUSE_MS) == [f"warning: gap orders-0 [2, 3): {WHY} (1 more since the last line)"]
    assert watched.batch(PAUSE_MS * 3) == []
    assert watched.batch(PAUSE_MS * 3 + 1, gap(9)) == [f"warning: gap orders-0 [9, 10): {WHY}"]
    assert watched.counts == {"partitions gap": 4}


def test_another_partition_and_another_kind_do_not_wait(watched: Watched) -> None:
    watched.batch(0, gap(0))
    lines = watched.batch(1, gap(0, PAYMENTS), gap(1, kind=NoticeKind.LOST))
    assert lines == [f"warning: gap payments-0 [0, 1): {WHY}", f"warning: lost orders-0 [1, 2): {WHY}"]


def test_a_clock_that_was_set_back_holds_nothing_back(watched: Watched) -> None:
    watched.batch(PAUSE_MS, gap(0))
    assert len(watched.batch(0, gap(1))) == 1


def test_every_correction_of_our_copy_is_written(watched: Watched) -> None:
    healed = ViewHealed(ORDERS, 7, 3, next(iter(Mismatch)))
    assert [len(watched.batch(at_ms, healed)) for at_ms in (0, 1, 2)] == [1, 1, 1]
