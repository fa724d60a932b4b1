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


@pytest.mark.parametrize(("partitions", "least_ms"), [(0, 200), (1_500, 400), (8_000, 1_000), (50_000, 5_200)])
def test_the_least_trigger_has_room_for_listing_planning_and_spark(
    page: ModuleType, costs: dict[str, float], partitions: int, least_ms: int
) -> None:
    assert page.least_trigger_ms(a_load(page, partitions), costs) == least_ms


def test_a_second_is_marked_where_a_micro_batch_cannot_end_in_it(page: ModuleType, costs: dict[str, float]) -> None:
    fits, does_not = (page.needs(a_load(page, partitions), costs) for partitions in (1_500, 50_000))
    assert fits["feasible"] == "feasible if changes add less than 0.6 s to it"
    assert does_not["feasible"] == "not feasible: it takes 5.2 s even if nothing changes"
    assert does_not["trigger_ms"] == 5_200
    assert does_not["listing"] < 1.0


def test_bytes_over_tls_have_the_cost_that_was_measured_over_tls(page: ModuleType, costs: dict[str, float]) -> None:
    found = page.needs(a_load(page, 0, 1e6), {**costs, "byte_s": 2e-6, "tls_byte_s": 5e-6})
    assert found["reading"] == pytest.approx(2.0)
    assert found["reading_over_tls"] == pytest.approx(5.0)


def test_work_for_more_than_one_core_has_the_loss_of_two_executors(page: ModuleType, costs: dict[str, float]) -> None:
    below, above = (page.needs(a_load(page, 0, bytes_s), costs) for bytes_s in (1e6, 4e6))
    assert below["loss"] == 0.0
    assert above["loss"] == pytest.approx(1.0)
    assert above["total"] == pytest.approx(4.0 + 1.0 + 0.3)


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
