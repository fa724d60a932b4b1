"""Pauses that double up to a limit."""

from __future__ import annotations

from txnwatch.state.model.values import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, NO_ATTEMPT, doubled


def test_a_pause_doubles_up_to_its_limit() -> None:
    assert [doubled(1_000, 30_000, times) for times in range(7)] == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
    assert [doubled(0.25, 5.0, times) for times in (0, 1, 4, 5)] == [0.25, 0.5, 4.0, 5.0]


def test_a_pause_has_its_limit_after_any_number_of_repeats() -> None:
    assert doubled(0.25, 5.0, 1_000_000) == 5.0
    assert doubled(1, 64, 1_000_000) == 64


def test_attempts_are_due_at_once_and_then_after_pauses_that_double_up_to_the_longest() -> None:
    attempts, pauses = NO_ATTEMPT, []
    assert attempts.due_ms <= 1_000_000
    for _ in range(80):
        attempts = attempts.next(1_000_000)
        pauses.append(attempts.due_ms - 1_000_000)
    assert pauses[:7] == [FIRST_PAUSE_MS * factor for factor in (1, 2, 4, 8, 16, 32, 60)]
    assert set(pauses[6:]) == {LONGEST_PAUSE_MS}
