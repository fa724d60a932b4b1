"""The rules of the soak: which verdicts are true by the coordinators' log, and how much may grow."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from soak.coordinator_log import CoordinatorLog
from soak.result import false_verdicts, growth_of
from soak.samples import Sample
from txnwatch.state.model.verdicts import Verdict

ONGOING, PREPARED, COMPLETE = 1, 2, 4
PRODUCER, TIMEOUT_MS = 7, 60_000


def log_of(*steps: tuple[int, int, int]) -> CoordinatorLog:
    """Records with a stamp, the time at which they could be read, and a state."""
    log = object.__new__(CoordinatorLog)
    log.steps = {PRODUCER: []}
    for at_ms, read_ms, state in steps:
        log.add(at_ms, read_ms, struct.pack(">hqhib", 1, PRODUCER, 0, TIMEOUT_MS, state) + b"the rest")
    return log


def event(verdict: Verdict, time_ms: int, producer_id: int = PRODUCER) -> Any:
    return SimpleNamespace(verdict=verdict, time_ms=time_ms, producer_id=producer_id)


@pytest.mark.parametrize(
    ("steps", "verdict", "time_ms", "is_true"),
    [
        ([(0, 5, PREPARED), (31_000, 31_005, COMPLETE)], Verdict.STUCK_PREPARE, 30_100, True),
        ([(0, 5, PREPARED)], Verdict.STUCK_PREPARE, 30_100, True),
        ([(0, 5, PREPARED), (1_000, 31_000, COMPLETE)], Verdict.STUCK_PREPARE, 30_100, True),
        ([(0, 5, PREPARED), (1_000, 1_005, COMPLETE)], Verdict.STUCK_PREPARE, 30_100, False),
        ([(0, 5, PREPARED)], Verdict.STUCK_PREPARE, 29_000, False),
        ([(0, 5, ONGOING)], Verdict.STUCK_PREPARE, 30_100, False),
        ([(0, 5, ONGOING)], Verdict.LATE, 75_100, True),
        ([(0, 5, ONGOING)], Verdict.LATE, 74_000, False),
        ([(0, 5, ONGOING), (60_000, 60_005, PREPARED)], Verdict.LATE, 75_100, False),
    ],
    ids=[
        "completed later",
        "not completed",
        "the completion was not acknowledged by the replicas",
        "completed at once",
        "reported too early",
        "never prepared",
        "not aborted in time",
        "reported too early, late",
        "aborted in time",
    ],
)
def test_the_log_of_the_coordinators_decides(
    steps: list[tuple[int, int, int]], verdict: Verdict, time_ms: int, *, is_true: bool
) -> None:
    log = log_of(*steps)
    assert log.is_true(event(verdict, time_ms)) == is_true
    assert not log.is_true(event(verdict, time_ms, producer_id=8))


@pytest.mark.parametrize("verdict", [Verdict.LONG_RUNNING, Verdict.STRAY_WRITE])
def test_no_other_verdict_is_true(verdict: Verdict) -> None:
    one = SimpleNamespace(
        **vars(event(verdict, 75_100)), status="opened", reason=None, subject="", transactional_id="", evidence=""
    )
    assert len(false_verdicts([one], [], log_of((0, 5, ONGOING)))) == 1  # type: ignore[list-item]


def sample(at_s: float, size: int) -> Sample:
    return Sample(at_s, {"JVM": size}, {"checkpoint": 1}, {"JVM": 300}, 0.0)


def test_growth_is_measured_from_the_second_sixth_to_the_last() -> None:
    samples = [sample(at_s, 400_000_000 + (at_s > 600) * 100_000_000) for at_s in range(0, 3_600, 10)]
    flat = growth_of(samples, 3_600.0)
    assert (flat["memory"].begin, flat["memory"].end, flat["memory"].is_flat) == (5e8, 5e8, True)
    grown = growth_of([sample(at_s, 400_000_000 + at_s * 100_000) for at_s in range(0, 3_600, 10)], 3_600.0)
    assert not grown["memory"].is_flat
    assert grown["disk"].is_flat
    assert grown["descriptors"].is_flat


def test_a_short_run_has_no_growth() -> None:
    assert growth_of([sample(1.0, 1)], 600.0) == {}
