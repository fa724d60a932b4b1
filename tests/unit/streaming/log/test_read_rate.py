"""A rate of bytes holds over any stretch of time, whatever the answers are, and nothing is saved up."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnwatch.streaming.client.connection import LEAST
from txnwatch.streaming.log import fetch
from txnwatch.streaming.log.fetch import ReadRate

BYTES_PER_S = 1 << 20


class Clock(SimpleNamespace):
    """A clock that moves when somebody sleeps."""

    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock() -> Iterator[Clock]:
    with mock.patch.object(fetch, "time", Clock()) as found:
        yield found


@given(st.lists(st.tuples(st.integers(0, 4 * BYTES_PER_S), st.floats(0, 5)), min_size=1, max_size=20))
def test_no_more_is_received_than_the_time_is_worth(answers: list[tuple[int, float]]) -> None:
    with mock.patch.object(fetch, "time", Clock()) as clock:
        rate, began, received = ReadRate(BYTES_PER_S), clock.now_s, 0
        for size, took_s in answers:
            clock.now_s += took_s
            rate.received(size)
            rate.rest()
            received += size
            assert received <= BYTES_PER_S * (clock.now_s - began) * (1 + 1e-9) + 1


def test_nothing_is_saved_up(clock: Clock) -> None:
    rate = ReadRate(BYTES_PER_S)
    clock.now_s += 3_600
    rate.received(BYTES_PER_S)
    assert rate.rest() == pytest.approx(1.0)
    assert rate.rest() == 0.0


def test_a_pause_ends_at_the_given_time_and_the_rest_of_it_follows(clock: Clock) -> None:
    rate = ReadRate(BYTES_PER_S)
    rate.received(4 * BYTES_PER_S)
    assert rate.rest(clock.now_s + 1.0) == pytest.approx(1.0)
    assert rate.rest() == pytest.approx(3.0), "what is left of it is still to come"


@pytest.mark.parametrize(
    ("bytes_per_s", "leaders", "expected"),
    [(8 << 20, 1, 2 << 20), (8 << 20, 4, 512 << 10), (8 << 20, 0, 2 << 20), (1000, 3, LEAST)],
)
def test_a_round_asks_all_leaders_for_a_quarter_of_a_second(bytes_per_s: int, leaders: int, expected: int) -> None:
    assert ReadRate(bytes_per_s).at_a_time(leaders) == expected
