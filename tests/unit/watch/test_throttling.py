"""Throttling is reported once, and its end once; the patience of a connection begins when the broker reads again."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from support.facts import BucketRun
from support.log_lines import LogLines
from txnwatch.state.model.facts import Throttled
from txnwatch.state.model.findings import RequestsThrottled
from txnwatch.streaming.client.connection import FIRST, LEAST, MOST, NEVER, PROGRESS, AnswerWait, Pace, Throttle
from txnwatch.watch.alerts import Throttling


def test_it_is_logged_once_and_its_end_too() -> None:
    lines = LogLines()
    clock = [0]
    throttling = Throttling(lines, lambda: clock[0])
    for at_ms, fetch_ms in ((0, 0), (1_000, 1_200), (2_000, 900), (31_000, 0)):
        clock[0] = at_ms
        throttling.on_batch([RequestsThrottled((("Fetch", fetch_ms),))] if fetch_ms else [])
    assert len(lines) == 1
    assert "Fetch for 1.2 s" in lines[0]
    clock[0] = 32_000
    throttling.on_batch([])
    assert lines[1:] == ["brokers no longer throttle txnwatch; in total: Fetch for 2.1 s"]


def test_throttle_times_of_the_driver_count_too() -> None:
    lines = LogLines()
    throttling = Throttling(lines, lambda: 0, lambda: {"ListTransactions": 500})
    assert throttling.on_batch([]) == [RequestsThrottled((("ListTransactions", 500),))]
    assert "ListTransactions for 0.5 s" in lines[0]


def test_one_bucket_emits_the_throttle_time_of_the_tasks() -> None:
    findings = BucketRun().batch(Throttled({"Fetch": 700}), Throttled({"Fetch": 50, "ListOffsets": 1}))
    assert findings == [RequestsThrottled((("Fetch", 700),)), RequestsThrottled((("Fetch", 50), ("ListOffsets", 1)))]


def test_a_throttle_lasts_for_the_last_announced_time_and_is_added_up() -> None:
    total_ms: Counter[str] = Counter()
    throttle = Throttle(total_ms)
    assert throttle.left_s == 0.0
    throttle.add("Fetch", 0)
    assert (throttle.left_s, total_ms) == (0.0, {})
    throttle.add("Fetch", 60_000)
    throttle.add("ListOffsets", 10)
    assert 50 < throttle.left_s <= 60
    assert total_ms == {"Fetch": 60_000, "ListOffsets": 10}


def test_bytes_renew_the_patience_and_a_trickle_does_not() -> None:
    wait = AnswerWait(time.monotonic() + 0.01, 60.0, NEVER)
    wait.got(PROGRESS - 1)
    assert wait.left_s() <= 0.01
    wait.got(1)
    assert wait.left_s() > 50.0


def test_bytes_that_have_arrived_are_read_after_the_patience_but_not_after_the_deadline() -> None:
    now = time.monotonic()
    assert AnswerWait(now - 1.0, 1.0, NEVER).left_s() == 0.0
    with pytest.raises(TimeoutError):
        AnswerWait(now + 60.0, 60.0, now - 1.0).left_s()


PACES = {
    "a quick answer that is full makes it more": ([(FIRST, FIRST, 0.1, 0.0)], FIRST * 5 // 4),
    "a quick answer with little in it proves nothing": ([(FIRST, 1_000, 0.1, 0.0)], FIRST),
    "never more than the most": ([(MOST, MOST, 0.1, 0.0)] * 20, MOST),
    "a slow answer makes it what comes in a second": ([(FIRST, FIRST, 4.0, 0.0)], FIRST // 4),
    "a throttle makes it what is throttled for a quarter of a second": ([(FIRST, 0, 0.1, 2.0)], FIRST // 8),
    "a short throttle proves nothing": ([(FIRST, 0, 0.1, 0.2)], FIRST),
    "never less than the least": ([(FIRST, 0, 9.0, 0.0)], LEAST),
    "it grows again": ([(FIRST, FIRST, 5.0, 0.0), (FIRST // 5, FIRST // 5, 0.2, 0.0)], FIRST // 4),
}


@pytest.mark.parametrize(("answers", "size"), PACES.values(), ids=PACES.keys())
def test_the_pace_follows_the_answers(answers: list[tuple[int, int, float, float]], size: int) -> None:
    pace = Pace()
    for answer in answers:
        pace.answered(*answer)
    assert abs(pace.size - size) <= 1
