"""Pauses: a fixed one, and one that doubles up to a limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from txnwatch.state.model.pauses import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, Attempts, Every, GrowingPause, doubled

NOW_MS = 1_000_000


def test_a_pause_doubles_up_to_its_limit() -> None:
    assert [doubled(1_000, 30_000, times) for times in range(7)] == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
    assert [doubled(0.25, 5.0, times) for times in (0, 1, 4, 5)] == [0.25, 0.5, 4.0, 5.0]


def test_a_pause_has_its_limit_after_any_number_of_repeats() -> None:
    assert doubled(0.25, 5.0, 1_000_000) == 5.0
    assert doubled(1, 64, 1_000_000) == 64


@given(st.lists(st.booleans(), max_size=80))
def test_a_growing_pause_depends_on_the_failures_since_the_last_success(are_failures: list[bool]) -> None:
    pause, in_a_row = GrowingPause(0.25, 5.0), 0
    for is_failure in are_failures:
        assert pause.times == in_a_row
        assert pause.length == doubled(0.25, 5.0, in_a_row)
        if is_failure:
            assert pause.next() == doubled(0.25, 5.0, in_a_row)
            in_a_row += 1
        else:
            assert pause.end() == (in_a_row > 0)
            in_a_row = 0


def test_attempts_are_due_at_once_and_then_after_pauses_that_double_up_to_the_longest() -> None:
    attempts, pauses = Attempts(), []
    assert attempts.due_ms <= NOW_MS
    for _ in range(80):
        attempts.put_off(NOW_MS)
        pauses.append(attempts.due_ms - NOW_MS)
    assert pauses[:7] == [FIRST_PAUSE_MS * factor for factor in (1, 2, 4, 8, 16, 32, 60)]
    assert set(pauses[6:]) == {LONGEST_PAUSE_MS}


def test_an_attempt_is_due_when_its_pause_is_over_and_at_once_after_a_success() -> None:
    attempts = Attempts(5_000, 20_000, NOW_MS)
    assert [attempts.is_due(NOW_MS - 1), attempts.is_due(NOW_MS)] == [False, True]
    attempts.put_off(NOW_MS)
    assert [attempts.is_due(NOW_MS + 4_999), attempts.is_due(NOW_MS + 5_000)] == [False, True]
    attempts.put_off(NOW_MS)
    assert attempts.end()
    assert not attempts.end(), "nothing has failed since"
    assert attempts.is_due(NOW_MS)
    attempts.put_off(NOW_MS)
    assert attempts.due_ms == NOW_MS + 5_000


@given(st.integers(0, NOW_MS), st.integers(1, 20))
def test_a_clock_that_is_set_back_makes_no_attempt_wait_longer(back_ms: int, failures: int) -> None:
    attempts = Attempts()
    for _ in range(failures):
        attempts.put_off(NOW_MS)
    set_back_ms = NOW_MS - back_ms
    assert attempts.is_due(set_back_ms) is (back_ms > 0)
    attempts.put_off(set_back_ms)
    assert not attempts.is_due(set_back_ms)
    assert attempts.is_due(set_back_ms + LONGEST_PAUSE_MS)


def test_what_comes_again_after_a_fixed_pause_is_due_at_once_and_then_when_the_pause_is_over() -> None:
    every = Every(100)
    assert [every.take(now) for now in (7, 8, 106, 107, 206, 500, 599, 600)] == [
        *(True, False, False, True),
        *(False, True, False, True),
    ]


def test_only_what_is_begun_has_a_pause() -> None:
    every = Every(2.5)
    assert [every.is_due(0.0), every.is_due(0.0)] == [True, True]
    every.begin(10.0)
    assert [every.is_due(12.4), every.is_due(12.5), every.is_due(9.0)] == [False, True, False]
