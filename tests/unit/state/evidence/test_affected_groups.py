"""Which groups are affected, as a table: the last stable offset stays at 100, and a group is read twice or more.

Each look is (committed offset, end of the partition, seconds since the look before).
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from txnwatch.state.evidence.read_committed import (
    NEAR_OFFSETS,
    UnmovedOffset,
    affected_groups,
    look_again,
    observe,
)
from txnwatch.state.model.incident import AffectedGroup, GroupState
from txnwatch.state.model.ports import GroupOffset

LSO, FAR = 1100, 5
Look = tuple[int | None, int, int]


@dataclass(frozen=True)
class Case:
    looks: list[Look]
    state: str | None
    joined: bool = True


CASES = {
    # One look proves nothing, wherever the group is.
    "at it, seen once": Case([(1100, 1120, 0)], "at_risk"),
    "near it, seen once": Case([(1099, 1120, 0)], "at_risk"),
    "far below, seen once": Case([(FAR, 1120, 0)], "at_risk"),
    # Two looks, and the end has moved.
    "at it, stands still": Case([(1100, 1120, 0), (1100, 1130, 10)], "stopped"),
    "a marker below it, stands still": Case([(1099, 1120, 0), (1099, 1130, 10)], "stopped"),
    "behind aborted data, stands still": Case(
        [(LSO - NEAR_OFFSETS, 1120, 0), (LSO - NEAR_OFFSETS, 1130, 10)], "stopped"
    ),
    "far below, stands still for a reason of its own": Case([(FAR, 1120, 0), (FAR, 1130, 10)], "at_risk"),
    "moves towards it": Case([(1050, 1120, 0), (1099, 1130, 10)], "at_risk"),
    "moved there, and stands still since": Case([(1050, 1120, 0), (1099, 1130, 10), (1099, 1140, 10)], "stopped"),
    "the end does not move, so nothing is kept from it": Case([(1100, 1120, 0), (1100, 1120, 60)], "at_risk"),
    "the end moved before it came there": Case([(1050, 1120, 0), (1100, 1130, 10), (1100, 1130, 10)], "at_risk"),
    "looked at twice too soon": Case([(1100, 1120, 0), (1100, 1130, 4)], "at_risk"),
    "the end moves later": Case([(1100, 1120, 0), (1100, 1120, 60), (1100, 1121, 60)], "stopped"),
    "stopped stays stopped": Case([(1100, 1120, 0), (1100, 1130, 10), (1100, 1130, 60)], "stopped"),
    # read_uncommitted readers get past it.
    "beyond it": Case([(1101, 1120, 0)], None),
    "went past it": Case([(1099, 1120, 0), (1120, 1130, 10)], None),
    "at it by chance, then past it": Case([(1100, 1120, 0), (1130, 1130, 10)], None),
    # Nobody has joined: gone for good, or a reader that only stores its offsets.
    "without members, far below": Case([(FAR, 1120, 0), (FAR, 1130, 10)], None, joined=False),
    "without members, a little below": Case([(1090, 1120, 0), (1090, 1130, 10)], None, joined=False),
    "without members, at it": Case([(1100, 1120, 0), (1100, 1130, 10)], "stopped", joined=False),
    "without members, a marker below it": Case([(1099, 1120, 0), (1099, 1130, 10)], "stopped", joined=False),
    "without members, but it moves": Case([(FAR, 1120, 0), (1060, 1130, 10)], "at_risk", joined=False),
    # A member has the partition, and nothing was committed.
    "nothing committed": Case([(None, 1120, 0)], "at_risk"),
    "nothing committed, and the end moves": Case([(None, 1120, 0), (None, 1130, 60)], "at_risk"),
    "commits for the first time and stands still": Case(
        [(None, 1120, 0), (1100, 1130, 10), (1100, 1140, 10)], "stopped"
    ),
    "commits beyond it": Case([(None, 1120, 0), (1120, 1130, 10)], None),
    "nothing committed and nothing behind it": Case([(None, 1100, 0)], None),
    # Nothing is hidden.
    "nothing behind it": Case([(1100, 1100, 0), (1100, 1100, 60)], None),
}


def looked(case: Case, *, lso: int = LSO) -> str | None:
    unmoved: UnmovedOffset | None = None
    now_ms = 0
    found: tuple[dict[str, object], ...] = ()
    for committed, end, seconds in case.looks:
        now_ms += seconds * 1000
        groups = [GroupOffset("group", committed, case.joined)]
        unmoved = observe(unmoved, lso, end, groups, now_ms)
        found = affected_groups(unmoved, end, groups, now_ms)
    return str(found[0].state) if found else None


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_table(case: Case) -> None:
    assert looked(case) == case.state


def test_a_last_stable_offset_that_moves_starts_the_measurement_again() -> None:
    groups = [GroupOffset("group", 100, has_members=True)]
    before = observe(None, 100, 120, groups, 0)
    after = observe(before, 101, 130, groups, 60_000)
    assert after.since_ms == 60_000
    assert affected_groups(after, 130, groups, 60_000)[0].state == "at_risk"


def test_a_look_that_did_not_see_the_groups_forgets_nothing() -> None:
    groups = [GroupOffset("group", 100, has_members=True)]
    unmoved = observe(observe(None, 100, 120, groups, 0), 100, 125, None, 3_000)
    unmoved = observe(unmoved, 100, 130, groups, 6_000)
    assert unmoved.since_ms == 0
    assert affected_groups(unmoved, 130, groups, 6_000) == (
        AffectedGroup(group_id="group", state=GroupState.STOPPED, committed_offset=100, hidden_lag=30),
    )


def test_a_group_that_may_be_farther_than_its_offset_is_never_stopped() -> None:
    groups = [GroupOffset("group", 100, has_members=True, is_floor=True)]
    unmoved = observe(observe(None, 100, 120, groups, 0), 100, 130, groups, 60_000)
    assert affected_groups(unmoved, 130, groups, 60_000)[0].state == "at_risk"
    exact = [GroupOffset("group", 100, has_members=True)]
    unmoved = observe(unmoved, 100, 140, exact, 70_000)
    assert affected_groups(unmoved, 140, exact, 70_000)[0].state == "stopped"


def test_a_floor_that_does_not_move_is_no_move() -> None:
    groups = [GroupOffset("group", 90, has_members=False, is_floor=True)]
    unmoved = observe(observe(None, 100, 120, groups, 0), 100, 130, groups, 60_000)
    assert affected_groups(unmoved, 130, groups, 60_000) == ()


def test_the_worst_come_first() -> None:
    first = [GroupOffset("stopped", 1100, has_members=True), GroupOffset("behind", 5, has_members=True)]
    then = [*first, GroupOffset("also", 40, has_members=True), GroupOffset("beyond", 1120, has_members=True)]
    unmoved = observe(observe(None, LSO, 1120, first, 0), LSO, 1130, then, 10_000)
    assert [one.group_id for one in affected_groups(unmoved, 1130, then, 10_000)] == ["stopped", "behind", "also"]


def test_a_group_that_has_committed_nothing_has_the_hidden_records_as_its_lag() -> None:
    groups = [GroupOffset("new", None, has_members=True)]
    (found,) = affected_groups(observe(None, LSO, 1120, groups, 0), 1120, groups, 0)
    assert (found.committed_offset, found.hidden_lag) == (None, 20)


def test_a_group_that_rebalances_is_not_cleared_by_a_complete_answer() -> None:
    before = [
        AffectedGroup(group_id=name, state=GroupState.AT_RISK, committed_offset=None, hidden_lag=20)
        for name in ("gone", "moving")
    ]
    seen = look_again(None, before, LSO, 1120, [], 10, is_complete=True, unassigned=("moving",))
    assert [one.group_id for one in seen.affected or ()] == ["moving"]


UNANSWERED = {
    "complete, with the group": ([GroupOffset("billing", 1100, True)], True, ["billing"]),
    "complete, without groups": ([], True, []),
    "not complete, with the group": ([GroupOffset("billing", 1100, True)], False, ["billing", "search"]),
    "not complete, without groups": ([], False, None),
}


@pytest.mark.parametrize(("groups", "is_complete", "affected"), UNANSWERED.values(), ids=UNANSWERED.keys())
def test_an_answer_that_is_not_complete_clears_no_group(
    groups: list[GroupOffset], affected: list[str] | None, *, is_complete: bool
) -> None:
    search = AffectedGroup(group_id="search", state=GroupState.AT_RISK, committed_offset=FAR, hidden_lag=20)
    seen = look_again(None, [search], LSO, 1120, groups, 10, is_complete=is_complete)
    assert seen.offset.since_ms == 10
    assert (None if seen.affected is None else [one.group_id for one in seen.affected]) == affected
