"""Where a last stable offset stands, the leader is asked what is open: at once, after growing pauses, when it moves."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from support.facts import ORDERS, PAYMENTS
from txnwatch.state.model.facts import StandsAt
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.values import BarrierNumber, LeaderEpoch, Offset, Problem, TopicPartition
from txnwatch.streaming.source.standing_looks import StandingLooks

AWAY = Problem("no answer")
LookAt = tuple[int, int] | Problem | None  # end and last stable offset; no answer to the second request; to the first


class Leaders:
    """The leaders of partitions, which are looked at one barrier after the other."""

    def __init__(self) -> None:
        self.looks, self.barrier = StandingLooks(), 0
        self.requested: list[TopicPartition] = []
        self.standing: dict[TopicPartition, StandsAt] = {}

    def look(self, *at: LookAt, epoch: int = 0, topic_id: str = "id") -> set[TopicPartition]:
        """One look at ORDERS, and at PAYMENTS if there are two values."""
        self.barrier += 1
        shown = dict(zip((ORDERS, PAYMENTS), at, strict=False))
        ends = {
            p: ListedOffset(Offset(one[0]), LeaderEpoch(epoch), 1) for p, one in shown.items() if isinstance(one, tuple)
        }
        self.requested = self.looks.moved(ends)
        stable = {p: ListedOffset(Offset(shown[p][1]), LeaderEpoch(epoch), 1) for p in self.requested}  # type: ignore[index]
        self.standing = self.looks.take(ends, stable, dict.fromkeys(shown, topic_id), BarrierNumber(self.barrier))
        return self.looks.due


CASES: dict[str, tuple[list[LookAt], list[int]]] = {
    "nothing is open": ([(5, 5), (9, 9), (9, 9)], []),
    "it flows: what is open is another transaction each time": ([(5, 3), (9, 6), (14, 11), (20, 15)], []),
    "it stands": ([(5, 3), (5, 3), (5, 3), (5, 3), (5, 3), (5, 3), (5, 3), (5, 3)], [2, 3, 5]),
    "it stands while others write": ([(5, 3), (6, 3), (7, 3), (8, 3), (9, 3)], [2, 3, 5]),
    "it moves on: the end is seen": ([(5, 3), (5, 3), (6, 6), (6, 6)], [2, 3]),
    "it moves to the next that stands": ([(9, 3), (9, 3), (10, 5), (10, 5)], [2, 3, 4]),
    "it had moved before anybody was asked": ([(5, 3), (6, 6), (7, 7)], []),
    "no answer in between": ([(5, 3), None, (5, 3)], [3]),
}


@pytest.mark.parametrize(("shown", "asked_at"), CASES.values(), ids=CASES.keys())
def test_a_leader_is_asked_where_the_offset_stands(shown: list[LookAt], asked_at: list[int]) -> None:
    leaders = Leaders()
    assert [number for number, at in enumerate(shown, 1) if leaders.look(at)] == asked_at


def test_pauses_grow_up_to_eight_looks() -> None:
    leaders = Leaders()
    asked = [number for number in range(1, 50) if leaders.look((5, 3))]
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert pauses == [1, 2, 4, 8, 8, 8, 8, 8]


def test_the_stable_offset_is_requested_where_the_end_has_moved_only() -> None:
    leaders = Leaders()
    leaders.look((5, 3), (7, 7))
    assert leaders.requested == [ORDERS, PAYMENTS]
    leaders.look((5, 3), (8, 7))
    assert leaders.requested == [PAYMENTS]
    leaders.look((5, 3), (8, 7), epoch=1)
    assert leaders.requested == [ORDERS, PAYMENTS], "another leader has another log"


def test_a_partition_that_is_no_longer_looked_at_begins_anew() -> None:
    leaders = Leaders()
    leaders.look((5, 3))
    leaders.looks.take({}, {}, {}, BarrierNumber(2))
    assert not leaders.look((5, 3))


def test_without_the_second_answer_the_next_look_compares_with_the_one_before() -> None:
    leaders = Leaders()
    leaders.look((5, 3))
    end = {ORDERS: ListedOffset(Offset(6), LeaderEpoch(0), 1)}
    assert not leaders.looks.take(end, {ORDERS: AWAY}, {ORDERS: "id"}, BarrierNumber(2))
    assert leaders.look((6, 3)) == {ORDERS}


@pytest.mark.parametrize("changes", [{"epoch": 1}, {"topic_id": "other"}], ids=["another leader", "another topic"])
def test_the_same_offset_of_another_log_stands_since_then(changes: dict[str, Any]) -> None:
    leaders = Leaders()
    leaders.look((5, 3))
    leaders.look((5, 3))
    assert leaders.standing == {ORDERS: StandsAt(Offset(3), LeaderEpoch(0), BarrierNumber(1))}
    leaders.look((6, 3), **changes)
    assert leaders.standing == {}
    leaders.look((6, 3), **changes)
    assert leaders.standing[ORDERS].since == 3
