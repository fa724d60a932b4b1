"""What the answers of a target mean, and how long a target is left alone."""

from __future__ import annotations

import pytest

from txnwatch.push.target_answers import LONGEST_WAIT_MS, Retries, TargetAnswer, answer_of, wait_of

NOW_MS = 1_700_000_000_000  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("answer", "statuses"),
    [
        (TargetAnswer.TAKEN, (200, 201, 202, 204, 299)),
        (TargetAnswer.GONE, (410,)),
        (TargetAnswer.REFUSED, (400, 413, 415, 422)),
        (TargetAnswer.AGAIN, (301, 302, 307, 308, 401, 403, 404, 408, 409, 429, 500, 502, 503, 504, 599)),
    ],
)
def test_every_status_has_a_meaning(answer: TargetAnswer, statuses: tuple[int, ...]) -> None:
    assert {status: answer_of(status) for status in statuses} == dict.fromkeys(statuses, answer)


@pytest.mark.parametrize(
    ("header", "wait_ms"),
    [
        (None, 0),
        ("7", 7_000),
        (" 7 ", 7_000),
        ("0", 0),
        ("86400", LONGEST_WAIT_MS),
        ("9" * 4_000, LONGEST_WAIT_MS),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30_000),
        ("Tue, 14 Nov 2023 22:13:50", 30_000),
        ("Tue, 14 Nov 2023 22:13:10 GMT", 0),
        ("Wed, 15 Nov 2023 22:13:20 GMT", LONGEST_WAIT_MS),
        ("soon", 0),
        ("-5", 0),
        ("1.5", 0),
        ("\u0667", 0),
        ("", 0),
    ],
)
def test_the_time_that_a_target_asks_for_counts_up_to_a_limit(header: str | None, wait_ms: int) -> None:
    assert wait_of(header, NOW_MS) == wait_ms


def test_pauses_double_up_to_thirty_seconds_and_end_with_a_success() -> None:
    retries, pauses = Retries(lambda _, __: 1.0), []
    for _ in range(8):
        retries.failed(NOW_MS)
        pauses.append(retries.due_ms - NOW_MS)
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]
    assert retries.succeeded()
    assert not retries.succeeded(), "nothing has failed since"
    retries.failed(NOW_MS)
    assert retries.due_ms - NOW_MS == 1_000


def test_pauses_differ_by_a_fifth_so_that_several_watchers_do_not_come_together() -> None:
    asked: list[tuple[float, float]] = []

    def least(low: float, high: float) -> float:
        asked.append((low, high))
        return low

    retries = Retries(least)
    retries.failed(NOW_MS)
    assert asked == [(0.8, 1.2)]
    assert retries.due_ms - NOW_MS == 800


def test_a_target_is_left_alone_at_least_for_as_long_as_it_asks() -> None:
    retries = Retries(lambda _, __: 1.0)
    retries.failed(NOW_MS, 60_000)
    assert retries.due_ms - NOW_MS == 60_000
    retries.failed(NOW_MS, 500)
    assert retries.due_ms - NOW_MS == 2_000
