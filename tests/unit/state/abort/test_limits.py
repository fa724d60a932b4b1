from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnwatch.state.abort.rules import Refused
from txnwatch.state.evidence.confirmation import Answer
from txnwatch.state.incidents.abort_protocol import FRESH_READ_MS, HOUR_MS, MarkerResult, action, outdated
from txnwatch.state.incidents.automatic_abort import (
    IDLE_HOLDER_MS,
    UNPROVEN_MS,
    Breaker,
    is_left_undecided,
    is_unproven_for_long,
    markers_last_hour,
    trip_by_refusal,
    trip_by_result,
)
from txnwatch.state.model.incident import ActionResult, Decision, Refusal
from txnwatch.state.model.values import TopicPartition

NOW_MS = 1_700_000_000_000
ORDERS = TopicPartition("orders", 3)


@given(st.lists(st.integers(NOW_MS - 2 * HOUR_MS, NOW_MS + HOUR_MS)))
def test_the_budget_counts_only_markers_of_the_last_hour(written_ms: list[int]) -> None:
    expected = [at_ms for at_ms in written_ms if at_ms in range(NOW_MS - HOUR_MS + 1, NOW_MS + 1)]
    assert markers_last_hour(written_ms, NOW_MS) == len(expected)


@pytest.mark.parametrize(
    ("ago_ms", "count"), [(-1, 0), (0, 1), (HOUR_MS - 1, 1), (HOUR_MS, 0)], ids=["future", "now", "last", "over"]
)
def test_a_marker_counts_for_exactly_an_hour_and_never_from_the_future(ago_ms: int, count: int) -> None:
    assert markers_last_hour([NOW_MS - ago_ms], NOW_MS) == count


def test_a_breaker_is_open_until_its_cooldown_is_over() -> None:
    breaker = Breaker(NOW_MS, "why")
    assert breaker.is_open(NOW_MS - 1)
    assert not breaker.is_open(NOW_MS)


@pytest.mark.parametrize("answer", Answer)
@pytest.mark.parametrize("refusal", Refusal)
def test_only_a_proven_hang_that_a_read_contradicts_opens_the_breaker(refusal: Refusal, answer: Answer) -> None:
    why = trip_by_refusal(Refused(refusal, "it is live"), answer, ORDERS)
    is_contradicted = (refusal, answer) == (Refusal.STILL_OWNED, Answer.REFUTED)
    assert why == ("orders-3: it is live" if is_contradicted else None)


@pytest.mark.parametrize("result", ActionResult)
def test_every_result_but_verified_opens_the_breaker(result: ActionResult) -> None:
    expected = f"the abort on orders-3 ended with the result {result}"
    assert trip_by_result(MarkerResult(result), ORDERS) == (None if result is ActionResult.VERIFIED else expected)


@pytest.mark.parametrize("result", ActionResult)
def test_a_missing_right_opens_the_breaker_whatever_the_result_is(result: ActionResult) -> None:
    denied = MarkerResult(result, "no right", is_denied=True)
    assert trip_by_result(denied, ORDERS) == "the broker refuses markers: no right"


@pytest.mark.parametrize(("age_ms", "is_old"), [(0, False), (FRESH_READ_MS, False), (FRESH_READ_MS + 1, True)])
def test_no_marker_is_written_on_an_old_read(age_ms: int, is_old: bool) -> None:  # noqa: FBT001
    assert (outdated(NOW_MS - age_ms, NOW_MS, FRESH_READ_MS) is not None) is is_old


_DECIDED = action(Decision.REFUSED, "host", NOW_MS)


@pytest.mark.parametrize(
    ("done", "age_ms", "is_left"),
    [
        (None, 1_000 + IDLE_HOLDER_MS, True),
        (None, 1_000 + IDLE_HOLDER_MS - 1, False),
        (_DECIDED, 1_000 + IDLE_HOLDER_MS, False),
    ],
)
def test_the_holder_of_the_lease_has_some_minutes_after_the_waiting_time_to_decide(
    done: Any,
    age_ms: int,
    is_left: bool,  # noqa: FBT001
) -> None:
    assert is_left_undecided(done, NOW_MS - age_ms, 1_000, NOW_MS) is is_left


@pytest.mark.parametrize(("age_ms", "is_long"), [(UNPROVEN_MS - 1, False), (UNPROVEN_MS, True)])
def test_a_published_hang_is_refused_after_the_time_in_which_the_state_would_repeat_it(
    age_ms: int,
    is_long: bool,  # noqa: FBT001
) -> None:
    assert is_unproven_for_long(NOW_MS - age_ms, NOW_MS) is is_long
