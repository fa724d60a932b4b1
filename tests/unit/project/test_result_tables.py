"""The tables of the benchmark of reading logs: what they say about the targets and the limit follows from the rows."""

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
    yield importlib.import_module("result_tables")
    sys.path.remove(str(SCRIPTS))


def rows(**changed: float) -> list[dict[str, Any]]:
    """Both shapes with the same figures; an argument changes the seconds of a way, by its last word."""
    seconds = {way: changed.get(way.rpartition(" ")[2], spent) for way, spent in SECONDS.items()}
    return [
        {"name": f"{shape}: {way}", "points": [{"wall_s": 9.0, "cpu_s": 9.0}, {"wall_s": spent, "cpu_s": spent / 2}]}
        for shape in ("1 MB batches", "one-record batches")
        for way, spent in seconds.items()
    ]


def shapes(page: ModuleType, cost: str = "wall_s", **changed: float) -> Any:
    return page.by_shape(rows(**changed), cost)


def test_a_target_is_reached_or_missed_as_the_rows_say(page: ModuleType) -> None:
    large, small = page.speeds(shapes(page), shapes(page, "cpu_s"))
    assert (large["shape"], large["target"]) == ("1 MB batches", "8")
    assert (small["shape"], small["target"]) == ("one-record batches", "20")
    for found in (large["time"], large["cpu"], small["time"], small["cpu"]):
        assert found == {"librdkafka, large queue": "5.0, missed", "librdkafka, default queue": "25.0, reached"}


@pytest.mark.parametrize(("fetch_s", "share", "limit"), [(0.6, 0.6, 5.0 / 0.6), (0.2, 0.2, 25.0)])
def test_the_limit_is_the_bare_fetch(page: ModuleType, fetch_s: float, share: float, limit: float) -> None:
    for found in page.speeds(shapes(page, Fetch=fetch_s), shapes(page, "cpu_s")):
        assert found["share"] == pytest.approx(share)
        assert found["limit"] == pytest.approx(limit)


def test_the_shares_of_the_steps_add_up_to_the_whole_query(page: ModuleType) -> None:
    first, _ = page.shares_of_steps(shapes(page))
    assert (first["shape"], first["seconds"]) == ("1 MB batches", 2.0)
    assert [*first["shares"].values()] == ["5%", "25%", "15%", "5%", "5%", "45%"]


def test_a_share_that_rounds_to_zero_has_no_sign(page: ModuleType) -> None:
    first, _ = page.shares_of_steps(shapes(page, walk=1.004))
    assert [*first["shares"].values()] == ["5%", "25%", "20%", "0%", "5%", "45%"]


def test_every_way_has_a_column_of_costs_and_a_way_that_was_not_measured_a_dash(page: ModuleType) -> None:
    some = [row for row in rows() if row["name"] != "1 MB batches: bare socket"]
    others = ("kafka-consumer-perf-test", "kafka-python", "Spark's Kafka source")
    some += [{"name": f"1 MB batches: {name}", "points": [{"wall_s": 7.0, "cpu_s": 3.5}]} for name in others]
    heads, _, first, second = page.costs_of_ways(page.by_shape(some, "wall_s")).splitlines()
    assert heads.count("|") == 2 + len(page.WAYS) + len(page.OTHERS)
    assert first == "| 1 MB batches | - | 0.6 | 0.9 | 1 | 1.1 | 2 | 5 | 25 | 7 | 7 | 7 |"
    assert second == "| one-record batches | 0.1 | 0.6 | 0.9 | 1 | 1.1 | 2 | 5 | 25 | - | - | - |"
    assert "kafka-python" not in page.costs_of_ways(shapes(page))
