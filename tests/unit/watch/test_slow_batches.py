"""Slow micro-batches are reported once, after 30 s of nothing else, and their end once."""

from __future__ import annotations

import pytest

from support.log_lines import LogLines
from txnwatch.state.model.findings import BucketCount
from txnwatch.state.model.values import TimestampMs
from txnwatch.watch.alerts import SLOW_MS, SlowBatches

SLOW, QUICK = SLOW_MS + 900, 400
AGAIN = "micro-batches take less than 2 s again"


def batch(listed_ms: int) -> list[BucketCount]:
    return [BucketCount(7, 0, (), (), listed_ms, 0, (), None, None, 0, 0)]


CASES: dict[str, tuple[list[tuple[int, int]], list[str]]] = {
    "slow for 30 s": ([(SLOW, 30_000)], ["slow"]),
    "slow for less": ([(SLOW, 26_000)], []),
    "one quick batch in between": ([(SLOW, 20_000), (QUICK, 400), (SLOW, 20_000)], []),
    "slow for minutes": ([(SLOW, 300_000)], ["slow"]),
    "quick again": ([(SLOW, 60_000), (QUICK, 31_000)], ["slow", AGAIN]),
    "quick for less than 30 s": ([(SLOW, 60_000), (QUICK, 20_000), (SLOW, 60_000), (QUICK, 20_000)], ["slow"]),
    "slow a second time": ([(SLOW, 60_000), (QUICK, 31_000), (SLOW, 31_000)], ["slow", AGAIN, "slow"]),
    "one batch of a minute": ([(60_000, 60_000)], ["slow"]),
    "just quick enough": ([(SLOW_MS - 1, 120_000)], []),
}


@pytest.mark.parametrize(("phases", "lines"), CASES.values(), ids=CASES.keys())
def test_it_is_reported_when_it_persists(phases: list[tuple[int, int]], lines: list[str]) -> None:
    log, now_ms = LogLines(), 0
    slow = SlowBatches(log, lambda: TimestampMs(now_ms))
    for took_ms, length_ms in phases:
        until_ms = now_ms + length_ms
        while now_ms < until_ms:
            now_ms += took_ms
            slow.on_batch(batch(now_ms - took_ms))
    assert ["slow" if line.startswith("warning: micro-batches are slow") else line for line in log] == lines


def test_a_batch_without_an_evaluated_bucket_says_nothing_about_its_duration() -> None:
    log, now_ms = LogLines(), 3_000
    slow = SlowBatches(log, lambda: TimestampMs(now_ms))
    slow.on_batch(batch(0))
    now_ms = 40_000
    slow.on_batch([])
    assert log == []
    slow.on_batch(batch(37_000))
    assert "the last one 3.0 s" in log[0]
