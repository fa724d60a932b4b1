"""A group that is behind by itself, and a partition without a record for a reader: each is said with its figures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from support.fake_admin import FakeAdmin
from support.one_look import a_searcher
from txnwatch.cli import explain_positions
from txnwatch.cli.compose import Question
from txnwatch.cli.explain_positions import nature_lines, position_lines, positions_of
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.values import Offset, Problem, TopicPartition
from txnwatch.state.telling.commands import Origin
from txnwatch.streaming.log.visible_ahead import Ahead, Place

ORDERS = TopicPartition("orders", 0)
Answers = dict[Offset, Ahead | Problem]


class World:
    """One partition, and what its log has at some offsets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: Answers = {}
        self.is_away = False
        monkeypatch.setattr(explain_positions, "look_ahead", self._look)
        cluster: Any = SimpleNamespace()
        self.question = Question(cluster, Origin("cluster", "a:1"), a_searcher(FakeAdmin(), lambda: 0))

    def _look(self, _: object, offsets: dict[TopicPartition, Offset], __: object) -> dict[TopicPartition, Any]:
        if self.is_away:
            raise BrokerError("no broker answers")
        return {at: self.answers[offset] for at, offset in offsets.items()}

    def group(self, committed: int, stable: int = 60, end: int = 60) -> str:
        reading = PartitionReading(ORDERS, last_stable_offset=stable, high_watermark=end)
        found = positions_of(self.question, {ORDERS: committed}, {ORDERS: reading})
        return " ".join(position_lines(found, [ORDERS] if stable < end else []))

    def partition(self, start: int, end: int) -> list[str]:
        reading = PartitionReading(ORDERS, last_stable_offset=end, high_watermark=end, log_start_offset=start)
        return list(nature_lines(self.question, ORDERS, reading))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


GROUPS = {
    "a marker": (
        Ahead(Place.COMMIT_MARKER, 0, 10),
        "orders-0: it has committed 9, can read with read_committed up to 60 (the last stable offset), and the end is "
        "60. At 9 is a COMMIT marker, which clients skip. The next record that it gets is at 10. No transaction stops "
        "it: it is behind by itself.",
    ),
    "a record": (
        Ahead(Place.RECORD, 0, 9),
        "At 9 is a record. The next record that it gets is that one. No transaction stops it: it is behind by itself.",
    ),
    "an aborted record": (
        Ahead(Place.RECORD, 0, 12),
        "At 9 is a record of an aborted transaction, which is not given to it. The next record that it gets is at 12.",
    ),
    "nothing more": (
        Ahead(Place.ABORT_MARKER, 0),
        "At 9 is an ABORT marker, which clients skip. Only markers and aborted records are left for it up to 60: it "
        "has read everything, although its lag is 51.",
    ),
    "compacted": (Ahead(Place.NOTHING, 0, 12), "At 9 is no record any more: compaction has removed it."),
    "gone": (
        Ahead(Place.BELOW_START, 20),
        "Offset 9 is no longer there: auto.offset.reset decides where it goes on. No transaction stops it.",
    ),
    "not read to its end": (
        Ahead(Place.RECORD, 0, None, is_known=False),
        "At 9 is a record. Where its next record is was not read. No transaction stops it.",
    ),
}


@pytest.mark.parametrize(("ahead", "text"), GROUPS.values(), ids=GROUPS.keys())
def test_a_group_that_is_behind_by_itself(world: World, ahead: Ahead, text: str) -> None:
    world.answers = {9: ahead}
    assert world.group(9).endswith(text) or text in world.group(9)
    assert world.question.missing == {}


def test_behind_a_hang_that_it_has_not_reached_no_transaction_stops_it_yet(world: World) -> None:
    world.answers = {9: Ahead(Place.RECORD, 0, 9)}
    assert "No transaction stops it before that offset: it is behind by itself." in world.group(9, stable=40)


def test_a_group_at_the_end_or_beyond_it(world: World) -> None:
    assert world.group(60) == "It has read everything on its partition."
    assert "Its offset is beyond the end: the partition was made again or has lost records" in world.group(70)


def test_a_log_that_cannot_be_read_is_not_known(world: World) -> None:
    world.answers = {9: Problem("NO_LEADER")}
    assert "What is at its offset could not be read." in world.group(9)
    assert world.question.missing == {"the log of orders-0": "NO_LEADER"}
    world.is_away = True
    assert "What is at its offset could not be read." in world.group(9)


RECORD, MARKER = Ahead(Place.RECORD, 0, 0), Ahead(Place.COMMIT_MARKER, 0)
PARTITIONS: dict[str, tuple[int, int, Answers, list[str]]] = {
    "nothing was written": (0, 0, {}, ["(nothing was ever written to it)"]),
    "retention took all": (60, 60, {}, ["(retention or DeleteRecords has removed what it had)"]),
    "records, and one at the end": (0, 60, {0: RECORD, 59: Ahead(Place.RECORD, 0, 59)}, []),
    "a marker at the end": (0, 60, {0: RECORD, 59: MARKER}, ["Its last offset, 59, is a COMMIT marker: no consumer"]),
    "all aborted": (
        0,
        60,
        {0: Ahead(Place.RECORD, 0), 59: Ahead(Place.ABORT_MARKER, 0)},
        ["no record for read_committed consumers: there are only markers", "is an ABORT marker"],
    ),
    "too much to read": (
        0,
        60,
        {0: Ahead(Place.RECORD, 0, None, is_known=False), 59: Ahead(Place.RECORD, 0, 59)},
        [],
    ),
}


@pytest.mark.parametrize(("start", "end", "answers", "texts"), PARTITIONS.values(), ids=PARTITIONS.keys())
def test_what_a_partition_is_made_of(world: World, start: int, end: int, answers: Answers, texts: list[str]) -> None:
    world.answers = answers
    lines = world.partition(start, end)
    assert len(lines) == len(texts)
    assert all(text in line for text, line in zip(texts, lines, strict=True))
