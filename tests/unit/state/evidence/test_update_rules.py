"""When an open incident needs an update: every rule, and what is none."""

from __future__ import annotations

from typing import Any

import pytest

from support.incidents import an_event, an_update
from txnwatch.state.evidence.ending import needs_update
from txnwatch.state.model.incident import Action, AffectedGroup, Decision, GroupState, Refusal, WaitingGroup


def a_group(name: str, state: str, committed: int = 90) -> AffectedGroup:
    return AffectedGroup(group_id=name, state=GroupState(state), committed_offset=committed, hidden_lag=120 - committed)


def waits(name: str, *partitions: str) -> WaitingGroup:
    return WaitingGroup(group_id=name, partitions=partitions)


BEFORE: dict[str, Any] = {
    "waiting_groups": (waits("billing", "orders-0"),),
    "transactional_id": None,
    "hidden_records": 21,
    "lso_standing_ms": 5,
    "consumer_groups": (a_group("billing", "stopped"), a_group("audit", "at_risk")),
    "action": None,
}
ACTION = Action(decision=Decision.REFUSED, refusal=Refusal.OUTCOME_UNKNOWN, by="one", at_ms=1)

UPDATES: dict[str, dict[str, Any]] = {
    "its owner": {"transactional_id": "payments"},
    "its verdict": {"verdict": "late"},
    "its severity": {"severity": "warning"},
    "ten times as many": {"hidden_records": 210},
    "a decision": {"action": ACTION},
    "another group has stopped": {"consumer_groups": (a_group("audit", "stopped"),)},
    "a group nobody knew of has stopped": {"consumer_groups": (a_group("new", "stopped"),)},
    "another group waits for its offsets": {"waiting_groups": (waits("billing", "orders-0"), waits("audit", "a-0"))},
    "no command fits any more": {"suggested_command": None},
}
NOISE: dict[str, dict[str, Any]] = {
    "nothing": {},
    "not yet ten times as many": {"hidden_records": 209},
    "fewer": {"hidden_records": 0},
    "not known now": {"hidden_records": None},
    "time": {"lso_standing_ms": 60_005, "last_write_ms": 9, "overdue_ms": 9},
    "offsets": {"high_watermark": 130, "last_stable_offset": 100},
    "it waits behind another now": {"is_lso_blocker": False},
    "a group at risk": {"consumer_groups": (a_group("billing", "stopped"), a_group("new", "at_risk"))},
    "a group that goes on": {"consumer_groups": ()},
    "a group that waits no longer": {"waiting_groups": ()},
    "a group that waits for more": {"waiting_groups": (waits("billing", "orders-0", "orders-1"),)},
    "a stopped group's lag": {"consumer_groups": (a_group("billing", "stopped", 80),)},
}


@pytest.mark.parametrize("changes", UPDATES.values(), ids=UPDATES.keys())
def test_a_relevant_change_causes_an_update(changes: dict[str, Any]) -> None:
    known = an_event(**BEFORE)
    assert needs_update(known, an_update(known, known.time_ms + 1, **changes))


@pytest.mark.parametrize("changes", NOISE.values(), ids=NOISE.keys())
def test_noise(changes: dict[str, Any]) -> None:
    known = an_event(**BEFORE)
    assert not needs_update(known, an_update(known, known.time_ms + 1, **changes))


@pytest.mark.parametrize(
    ("known", "now", "is_update"), [(None, 9, False), (None, 10, True), (0, 9, False), (0, 10, True)]
)
def test_the_first_hidden_records(known: int | None, now: int, is_update: bool) -> None:  # noqa: FBT001
    event = an_event(hidden_records=known)
    assert needs_update(event, an_update(event, event.time_ms, hidden_records=now)) is is_update


def test_hidden_records_that_grow_to_a_hundred_thousand_are_five_events() -> None:
    known, updates = an_event(hidden_records=1), 0
    for hidden in (*range(2, 10_001), *range(10_010, 100_001, 10)):
        now = an_update(known, known.time_ms, hidden_records=hidden)
        if needs_update(known, now):
            known, updates = now, updates + 1
    assert updates == 5
