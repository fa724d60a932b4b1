"""A broker's clock is reported once if it certainly differs, and once when it agrees again."""

from __future__ import annotations

import pytest

from support.log_lines import LogLines
from txnwatch.state.model.clocks import Clock
from txnwatch.state.model.findings import BucketCount
from txnwatch.watch.alerts import ClockDifferences

AGREES = "the clock of broker 1 agrees with the clock of this machine again"


def batch(bounds: dict[int, tuple[int, int | None]]) -> list[BucketCount]:
    clocks = tuple((broker, Clock(lowest_ms, highest_ms, 0)) for broker, (lowest_ms, highest_ms) in bounds.items())
    return [BucketCount(7, 0, (), clocks, 0, 0, (), None, None, 0, 0)]


CASES: dict[str, tuple[list[tuple[int, int | None]], list[str]]] = {
    "certainly ahead": ([(600_000, 600_900)] * 3, ["at least 600 s ahead of"]),
    "ahead without an upper bound": ([(10_000, None)], ["at least 10 s ahead of"]),
    "certainly behind": ([(-601_000, -600_000)] * 3, ["at least 600 s behind"]),
    "it may agree": ([(-600_000, 600_000), (-600_000, None), (0, 0)], []),
    "a difference below the limit": ([(9_999, None), (-20_000, -9_999)], []),
    "agrees again": ([(20_000, 20_100), (-50, 200), (-50, 200)], ["at least 20 s ahead of", AGREES]),
    "near the limit": ([(10_000, None), (9_000, None), (10_500, None), (5_000, None)], ["at least 10 s ahead of"]),
    "from ahead to behind": ([(20_000, None), (-30_000, -20_000)], ["at least 20 s ahead of", "at least 20 s behind"]),
    "again after it agreed": ([(20_000, None), (0, 9), (-30_000, -20_000)], ["20 s ahead of", AGREES, "20 s behind"]),
}


@pytest.mark.parametrize(("bounds", "lines"), CASES.values(), ids=CASES.keys())
def test_only_a_certain_difference_is_reported(bounds: list[tuple[int, int | None]], lines: list[str]) -> None:
    log = LogLines()
    differences = ClockDifferences(log)
    for bound in bounds:
        differences.on_batch(batch({1: bound}))
    assert len(log) == len(lines), log
    assert all(part in line for part, line in zip(lines, log, strict=True)), log


def test_each_broker_has_its_own_line() -> None:
    log = LogLines()
    differences = ClockDifferences(log)
    differences.on_batch(batch({1: (20_000, None), 2: (0, 10), 3: (-30_000, -20_000)}))
    differences.on_batch([])
    differences.on_batch(batch({2: (0, 10)}))
    assert [line.partition(";")[0] for line in log] == [
        "warning: the clock of broker 1 is at least 20 s ahead of the clock of this machine",
        "warning: the clock of broker 3 is at least 20 s behind the clock of this machine",
    ]
