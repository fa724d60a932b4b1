"""The capacity page: its figures follow the rows of the benchmarks."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def page() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "scripts"))
    yield importlib.import_module("capacity")
    sys.path.remove(str(ROOT / "scripts"))


@pytest.fixture
def costs(page: ModuleType) -> dict[str, float]:
    """One core lists and plans 10,000 partitions in a second; a micro-batch of Spark takes 0.2 s."""
    figures = dict.fromkeys(page.costs_of(measured()), 1e-6)
    return {**figures, "listed_s": 4e-5, "planned_s": 6e-5, "idle_s": 0.3, "idle_wall_s": 0.2, "scaling": 0.8}


def measured() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "docs" / "benchmarks.json").read_text())
    return found


def a_load(page: ModuleType, partitions: int, bytes_s: float = 0.0) -> Any:
    return page.Load(3, partitions, 0, bytes_s)


@pytest.mark.parametrize(
    ("work", "serial_s", "trigger_s", "expected"),
    [
        (0.5, 0.0, 1, "0.50"),
        (0.5, 0.5, 1, "1.0"),  # half of the time is left for it
        (0.2, 0.5, 1, "0.70"),  # the driver's own work
        (4.0, 1.0, 3, "7.5"),  # two executors do 1.6 times the work of one
        (4.0, 3.0, 3, "not feasible: the driver alone takes 3.0 s"),
    ],
)
def test_what_the_driver_does_alone_is_no_time_for_the_others(
    page: ModuleType, costs: dict[str, float], work: float, serial_s: float, trigger_s: int, expected: str
) -> None:
    assert page.cores(work, serial_s, trigger_s, costs) == expected


def test_a_longer_trigger_needs_fewer_cores(page: ModuleType, costs: dict[str, float]) -> None:
    found = page.needs(a_load(page, 20_000, 4e6), costs)
    assert found["scan_1"].startswith("not feasible")
    assert [found[f"scan_{second}"] for second in (3, 5, 10)] == ["18.8", "8.9", "6.4"]
    assert found["most_transactions_s"] == f"{16e6 * (1 - 2.2 / 3):,.0f}"


def test_bytes_over_tls_have_the_cost_that_was_measured_over_tls(page: ModuleType, costs: dict[str, float]) -> None:
    found = page.needs(a_load(page, 0, 1e6), {**costs, "byte_s": 2e-6, "tls_byte_s": 5e-6})
    assert found["reading"] == pytest.approx(2.0)
    assert found["reading_over_tls"] == pytest.approx(5.0)


def test_work_for_more_than_one_core_has_the_loss_of_two_executors(page: ModuleType, costs: dict[str, float]) -> None:
    assert [page.loss_of(work, costs) for work in (1.0, 4.0)] == [0.0, pytest.approx(1.0)]


def test_memory_grows_with_the_partitions(page: ModuleType, costs: dict[str, float]) -> None:
    memory = {"idle_mb": 800.0, "partition_mb": 0.1, "ids_mb": 200.0}
    assert page.needs(a_load(page, 50_000), {**costs, **memory})["memory_gb"] == pytest.approx(6.0)


def test_a_row_that_was_not_measured_is_named(page: ModuleType) -> None:
    found = measured()
    del found["census/a round"]
    with pytest.raises(KeyError, match="census/a round"):
        page.costs_of(found)


def test_the_page_shows_every_cost_in_time_and_every_need(page: ModuleType, costs: dict[str, float]) -> None:
    text = (ROOT / "docs" / "capacity.md").read_text()
    shown = set(re.findall(r"\{([\w.]+)[:}]", text))
    assert page.shown_costs(costs).keys() - shown == {"byte_s", "tls_byte_s"}
    needs = page.needs(a_load(page, 1), costs).keys() - {"bytes_s"}
    assert {f"{load}.{name}" for load in page.LOADS for name in needs} <= shown
