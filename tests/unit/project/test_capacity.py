"""The capacity page: its figures follow the rows of the benchmarks."""

from __future__ import annotations

import importlib
import json
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


@pytest.fixture(scope="module")
def costs(page: ModuleType) -> Any:
    """One core lists and plans 10,000 partitions in a second; a micro-batch of Spark takes 0.2 s."""
    figures = dict.fromkeys(page.Costs._fields, 1e-6)
    return page.Costs(
        **{**figures, "listed_s": 4e-5, "planned_s": 6e-5, "idle_s": 0.3, "idle_wall_s": 0.2, "scaling": 0.8}
    )


def a_load(page: ModuleType, partitions: int) -> Any:
    return page.Load("a cluster", 3, partitions, 0, 0.0)


@pytest.mark.parametrize(("partitions", "least_ms"), [(0, 200), (1_500, 400), (8_000, 1_000), (50_000, 5_200)])
def test_the_least_trigger_has_room_for_listing_planning_and_spark(
    page: ModuleType, costs: Any, partitions: int, least_ms: int
) -> None:
    assert page.least_trigger_ms(a_load(page, partitions), costs) == least_ms


def test_a_second_is_marked_where_a_micro_batch_cannot_end_in_it(page: ModuleType, costs: Any) -> None:
    fits, does_not = (page.needs(a_load(page, partitions), costs) for partitions in (1_500, 50_000))
    assert fits["one micro-batch per second"] == "feasible if changes add less than 0.6 s to it"
    assert does_not["one micro-batch per second"] == "not feasible: it takes 5.2 s even if nothing changes"
    assert does_not["`--trigger-ms` of the lines below"] == "5,200"
    assert float(does_not["cores: listing, serial in the driver"]) < 1.0


def test_bytes_over_tls_have_the_cost_that_was_measured_over_tls(page: ModuleType, costs: Any) -> None:
    load = page.Load("a cluster", 3, 0, 0, 1e6)
    found = page.needs(load, costs._replace(byte_s=2e-6, tls_byte_s=5e-6))
    assert found["cores: fetching and folding data"] == "2.0"
    assert found["cores: fetching and folding data over TLS"] == "5.0"


def test_work_for_more_than_one_core_has_the_loss_of_two_executors(page: ModuleType, costs: Any) -> None:
    small, large = (page.Load("a cluster", 3, 0, 0, bytes_s) for bytes_s in (1e6, 4e6))
    below, above = (page.needs(load, costs) for load in (small, large))
    assert below["cores: loss of more than one executor, at least"] == "0.0"
    assert above["cores: loss of more than one executor, at least"] == "1.0"
    assert above["cores, total, at least"] == f"{4.0 + 1.0 + 0.3:.2f}"


def test_memory_grows_with_the_partitions(page: ModuleType, costs: Any) -> None:
    measured = costs._replace(idle_mb=800.0, partition_mb=0.1, ids_mb=200.0)
    found = page.needs(a_load(page, 50_000), measured)
    assert found["memory (PSS) to scan everything, at least"] == "6.0 GB"


def test_a_row_that_was_not_measured_is_named(page: ModuleType) -> None:
    found = json.loads((ROOT / "docs" / "benchmarks.json").read_text())
    del found["census/a round"]
    for made in (page.cost_table, page.resource_table):
        assert made(found).endswith(": census/a round")
