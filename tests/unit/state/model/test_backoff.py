"""Pauses that double up to a limit."""

from __future__ import annotations

from txnwatch.state.model.backoff import doubled


def test_a_pause_doubles_up_to_its_limit() -> None:
    assert [doubled(1_000, 30_000, times) for times in range(7)] == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
    assert [doubled(0.25, 5.0, times) for times in (0, 1, 4, 5)] == [0.25, 0.5, 4.0, 5.0]


def test_a_pause_has_its_limit_after_any_number_of_repeats() -> None:
    assert doubled(0.25, 5.0, 1_000_000) == 5.0
    assert doubled(1, 64, 1_000_000) == 64
