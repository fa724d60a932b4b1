"""When the page may be green: each condition alone keeps it from being green, and nothing is green by default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnwatch.page.truth import CONDITIONS, JUDGED_WITHIN_MS, Condition, Facts, PageState, judge
from txnwatch.state.incidents.heartbeat import ACTIVE_MS
from txnwatch.state.model.values import CoordinatorAccess, TimestampMs
from txnwatch.state.model.verdicts import Verdict

NOW_MS = TimestampMs(1_000_000)
GOOD = Facts(
    now_ms=NOW_MS,
    is_source_read=True,
    judged_ms=TimestampMs(NOW_MS - 400),
    access=CoordinatorAccess.LOG,
    is_ready=True,
    is_log_read=True,
    unproven=0,
    undecided=0,
    open_verdicts=(),
    undelivered=0,
)
# What differs from good facts in one value, and the state that follows.
TABLE: tuple[tuple[str, Facts, PageState], ...] = (
    ("the source is read", replace(GOOD, is_source_read=False), PageState.UNKNOWN),
    ("the source is read", replace(GOOD, is_source_read=None), PageState.UNKNOWN),
    ("the source is read", replace(GOOD, is_source_read=False, open_verdicts=(Verdict.LATE,)), PageState.UNKNOWN),
    ("a barrier was evaluated", replace(GOOD, judged_ms=None), PageState.UNKNOWN),
    ("it was evaluated lately", replace(GOOD, judged_ms=TimestampMs(NOW_MS - JUDGED_WITHIN_MS - 1)), PageState.UNKNOWN),
    ("the view shows hangs", replace(GOOD, access=CoordinatorAccess.NONE), PageState.UNKNOWN),
    ("the view shows hangs", replace(GOOD, access=None), PageState.UNKNOWN),
    ("no incident is open", replace(GOOD, open_verdicts=(Verdict.HANGING,)), PageState.INCIDENT),
    ("no incident is open", replace(GOOD, open_verdicts=(Verdict.STUCK_PREPARE,)), PageState.INCIDENT),
    ("no incident is open", replace(GOOD, open_verdicts=(Verdict.LONG_RUNNING, Verdict.LATE)), PageState.INCIDENT),
    ("no incident is open", replace(GOOD, open_verdicts=None), PageState.INCIDENT),
    ("the watch is ready", replace(GOOD, is_ready=False), PageState.UNKNOWN),
    ("the watch is ready", replace(GOOD, is_ready=None), PageState.UNKNOWN),
    ("the coordinators' log is read", replace(GOOD, is_log_read=False), PageState.UNKNOWN),
    ("the coordinators' log is read", replace(GOOD, is_log_read=None), PageState.UNKNOWN),
    ("all open data is decided", replace(GOOD, undecided=1), PageState.PARTIAL),
    ("all open data is decided", replace(GOOD, undecided=None), PageState.PARTIAL),
    ("all open data is decided", replace(GOOD, undecided=1, unproven=1), PageState.PARTIAL),
    ("every partition is proven", replace(GOOD, unproven=1), PageState.PARTIAL),
    ("every partition is proven", replace(GOOD, unproven=None), PageState.PARTIAL),
    ("the events topic has every event", replace(GOOD, undelivered=1), PageState.PARTIAL),
    ("the events topic has every event", replace(GOOD, undelivered=None), PageState.PARTIAL),
    ("every verdict is detected", replace(GOOD, access=CoordinatorAccess.API), PageState.LIMITED),
)


def faults(conditions: Sequence[Condition]) -> list[str]:
    """The rows of the table that these conditions answer otherwise."""
    return [f"{why}: {facts}" for why, facts, state in TABLE if judge(facts, conditions) != (state, why)]


def test_it_is_green_if_everything_is_good() -> None:
    assert judge(GOOD) == (PageState.CLEAR, None)
    assert judge(replace(GOOD, open_verdicts=(Verdict.LONG_RUNNING, Verdict.STRAY_WRITE))).state is PageState.CLEAR
    assert judge(replace(GOOD, judged_ms=TimestampMs(NOW_MS - JUDGED_WITHIN_MS))).state is PageState.CLEAR


def test_each_condition_alone_keeps_it_from_being_green() -> None:
    assert faults(CONDITIONS) == []
    assert {why for why, _, _ in TABLE} == {condition.name for condition in CONDITIONS}


@pytest.mark.parametrize("left_out", CONDITIONS, ids=[one.name for one in CONDITIONS])
def test_a_condition_that_is_left_out_is_found(left_out: Condition) -> None:
    assert faults([one for one in CONDITIONS if one is not left_out]) != []


@pytest.mark.parametrize("broken", CONDITIONS, ids=[one.name for one in CONDITIONS])
def test_a_condition_that_always_holds_is_found(broken: Condition) -> None:
    planted = broken._replace(is_met=lambda _: True)
    assert faults([planted if one is broken else one for one in CONDITIONS]) != []


def test_the_order_of_the_conditions_decides() -> None:
    stale = replace(GOOD, judged_ms=None, open_verdicts=(Verdict.HANGING,), unproven=3)
    assert judge(stale).state is PageState.UNKNOWN, "an old incident is not told as a new one"
    assert judge(replace(GOOD, open_verdicts=(Verdict.LATE,), unproven=3)).state is PageState.INCIDENT
    assert judge(replace(GOOD, open_verdicts=(Verdict.LATE,), is_ready=False)).state is PageState.INCIDENT


def test_heartbeats_have_a_longer_limit_and_no_other_one() -> None:
    minute = replace(GOOD, judged_within_ms=ACTIVE_MS, judged_ms=TimestampMs(NOW_MS - ACTIVE_MS))
    assert judge(minute).state is PageState.CLEAR
    assert judge(replace(minute, judged_ms=TimestampMs(NOW_MS - ACTIVE_MS - 1))).why == "it was evaluated lately"


def test_it_is_not_green_by_default() -> None:
    assert judge(Facts(now_ms=NOW_MS)).state is PageState.UNKNOWN


_VALUES = {
    "is_source_read": st.none() | st.booleans(),
    "judged_ms": st.none() | st.sampled_from([NOW_MS, TimestampMs(0), TimestampMs(NOW_MS - JUDGED_WITHIN_MS)]),
    "access": st.none() | st.sampled_from(list(CoordinatorAccess)),
    "is_ready": st.none() | st.booleans(),
    "is_log_read": st.none() | st.booleans(),
    "unproven": st.none() | st.integers(0, 3),
    "undecided": st.none() | st.integers(0, 3),
    "open_verdicts": st.none() | st.lists(st.sampled_from(list(Verdict)), max_size=2),
    "undelivered": st.none() | st.integers(0, 3),
}


@given(st.fixed_dictionaries(_VALUES))
def test_whatever_is_not_known_is_not_green(values: dict[str, object]) -> None:
    facts = Facts(now_ms=NOW_MS, **values)  # type: ignore[arg-type]
    if any(getattr(facts, one.name) is None for one in fields(facts)):
        assert judge(facts).state is not PageState.CLEAR
