"""The summary of the benchmark of reading logs: what it says about the targets and the limit follows from the rows."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"
SECONDS = {
    "bare socket": 0.1,
    "bare Fetch": 0.6,
    "header walk": 0.9,
    "fold": 1.0,
    "fold to Arrow": 1.1,
    "txnwatch's source in Spark": 2.0,
    "librdkafka, large queue": 5.0,
    "librdkafka, default queue": 25.0,
}


@pytest.fixture(scope="module")
def page() -> Iterator[ModuleType]:
    sys.path.insert(0, str(SCRIPTS))
    yield importlib.import_module("scan_summary")
    sys.path.remove(str(SCRIPTS))


def rows(**changed: float) -> list[dict[str, Any]]:
    """Both shapes with the same figures; an argument changes the seconds of a way, by its last word."""
    seconds = {way: changed.get(way.rpartition(" ")[2], spent) for way, spent in SECONDS.items()}
    return [
        {"name": f"{shape}: {way}", "points": [{"wall_s": 9.0, "cpu_s": 9.0}, {"wall_s": spent, "cpu_s": spent / 2}]}
        for shape in ("1 MB batches", "one-record batches")
        for way, spent in seconds.items()
    ]


def test_a_target_is_reached_or_missed_as_the_rows_say(page: ModuleType) -> None:
    lines = page.scan_summary(rows())
    assert "| 1 MB batches | 8 | 5.0, missed | 5.0, missed | 25.0, reached | 25.0, reached |" in lines
    assert "| one-record batches | 20 | 5.0, missed | 5.0, missed | 25.0, reached | 25.0, reached |" in lines


@pytest.mark.parametrize(
    ("fetch_s", "limit", "bound"),
    [
        (0.6, "the broker over the loopback interface", "8.3 times as fast as librdkafka with a large queue, so a"),
        (0.2, "the walk and the fold in Python", "25.0 times as fast as librdkafka with a large queue, so a"),
    ],
)
def test_the_limit_is_what_takes_most_of_the_time(page: ModuleType, fetch_s: float, limit: str, bound: str) -> None:
    (line,) = [line for line in page.scan_summary(rows(Fetch=fetch_s)) if line.startswith("On 1 MB batches")]
    assert f"the limit is {limit}" in line
    assert bound in line


def test_a_target_beyond_what_the_broker_allows_is_called_impossible(page: ModuleType) -> None:
    text = "\n".join(page.scan_summary(rows(Fetch=0.6)))
    assert "a time of 1/8 is possible here" in text
    assert "a time of 1/20 is impossible here" in text


def test_the_shares_of_the_steps_add_up_to_the_whole_query(page: ModuleType) -> None:
    assert "| 1 MB batches | 2 | 5% | 25% | 15% | 5% | 5% | 45% |" in page.scan_summary(rows())


def test_a_share_that_rounds_to_zero_has_no_sign(page: ModuleType) -> None:
    lines = page.scan_summary(rows(walk=1.004))
    assert "| 1 MB batches | 2 | 5% | 25% | 20% | 0% | 5% | 45% |" in lines
