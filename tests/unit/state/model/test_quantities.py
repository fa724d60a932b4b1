"""mypy keeps offsets, times, durations, epochs and ids apart, and gives their arithmetic the right types."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from mypy import api

from txnwatch.state.model.values import DurationMs, TimestampMs, elapsed

ROOT = Path(__file__).parents[4]
GIVEN = """
from txnwatch.state.model.findings import OpenSpan
from txnwatch.state.model.values import BarrierNumber, BrokerId, CoordinatorEpoch
from txnwatch.state.model.values import LeaderEpoch, ProducerEpoch, ProducerId
from txnwatch.state.model.values import DurationMs, Offset, TimestampMs, TopicPartition, elapsed
from txnwatch.state.model.transaction import Marker

at = TopicPartition("topic", 0)
offset, time_ms, length_ms = Offset(1), TimestampMs(2), DurationMs(3)
producer_id, epoch, broker, number = ProducerId(4), ProducerEpoch(5), BrokerId(6), BarrierNumber(7)
leader_epoch, coordinator_epoch = LeaderEpoch(8), CoordinatorEpoch(9)
leaders: dict[BrokerId, str] = {}
"""
RIGHT = [
    "OpenSpan(at, offset, time_ms)",
    "OpenSpan(at, offset + 1, time_ms + length_ms)",
    "OpenSpan(at, max(offset, offset + 1), min(time_ms, time_ms - length_ms))",
    "elapsed(time_ms, time_ms - -length_ms * 2 - (time_ms - time_ms))",
    "late_ms: TimestampMs = length_ms + length_ms + time_ms",
    "count: int = offset - offset",
    "Marker(offset, epoch, True, coordinator_epoch, time_ms)",
    "leaders[broker]",
]
WRONG = [
    "OpenSpan(at, offset, offset)  # an offset as a time",
    "OpenSpan(at, time_ms, time_ms)  # a time as an offset",
    "OpenSpan(at, epoch, time_ms)  # an epoch as an offset",
    "OpenSpan(at, offset, length_ms)  # a duration as a time",
    "OpenSpan(at, offset, 5)  # a plain number as a time",
    "OpenSpan(at, number, time_ms)  # the number of a barrier as an offset",
    "elapsed(time_ms, time_ms + time_ms)  # the sum of two times",
    "elapsed(time_ms, time_ms + 5)  # a plain number as a duration",
    "elapsed(time_ms, time_ms + offset)  # an offset as a duration",
    "elapsed(time_ms, time_ms - time_ms)  # a duration as a time",
    "Marker(offset, epoch, True, leader_epoch, time_ms)  # the epoch of another log's leader",
    "Marker(offset, coordinator_epoch, True, coordinator_epoch, time_ms)  # an epoch of a coordinator as a producer's",
    "leaders[producer_id]  # a producer id as a broker id",
]


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The statements that mypy refuses."""
    home = tmp_path_factory.mktemp("types")
    (home / "txnwatch").mkdir()
    (home / "txnwatch" / "__init__.py").touch()
    (home / "txnwatch" / "state").symlink_to(ROOT / "state")
    lines = [*textwrap.dedent(GIVEN).splitlines(), *RIGHT, *WRONG]
    (home / "snippet.py").write_text("\n".join(lines) + "\n")
    (home / "mypy.ini").write_text(f"[mypy]\nstrict = true\nmypy_path = {home}\ncache_dir = {home / 'cache'}\n")
    found, problem, _ = api.run(["--config-file", str(home / "mypy.ini"), str(home / "snippet.py")])
    assert not problem
    places = [line.split(":") for line in found.splitlines() if ": error:" in line]
    assert {Path(path).name for path, *_ in places} == {"snippet.py"}, found
    return {lines[int(number) - 1] for _, number, *_ in places}


@pytest.mark.parametrize("statement", RIGHT)
def test_mypy_accepts_quantities_that_belong_together(statement: str, refused: set[str]) -> None:
    assert statement not in refused


@pytest.mark.parametrize("statement", WRONG)
def test_mypy_refuses_confused_quantities(statement: str, refused: set[str]) -> None:
    assert statement in refused


def test_time_that_has_passed_is_never_negative() -> None:
    assert elapsed(TimestampMs(2_000), TimestampMs(5_000)) == DurationMs(3_000)
    assert elapsed(TimestampMs(5_000), TimestampMs(2_000)) == 0
