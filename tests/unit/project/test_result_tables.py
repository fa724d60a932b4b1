"""What the pages can name of the results in docs/*.json, and that the page of results names all of them."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
MEASURED = (ROOT / "docs" / "measured.md").read_text()
WHEN = {"date": "2026-01-02", "machine": "2 cores"}


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("result_tables")


def values(page: ModuleType, monkeypatch: pytest.MonkeyPatch, content: Any, file: str = "soak", part: str = "") -> Any:
    """What a page can name of a file with this content."""
    monkeypatch.setattr(page, "results", lambda _: content)
    return page.values_of(file, part)


def test_the_page_links_every_file_of_results_and_names_every_benchmark(page: ModuleType) -> None:
    files = {path.name for path in (ROOT / "docs").glob("*.json")}
    assert files == {f"{file}.json" for file in page.TARGETS}
    assert [file for file in files if f"]({file})" not in MEASURED] == []
    benches = {row["bench"] for row in json.loads((ROOT / "docs" / "benchmarks.json").read_text()).values()}
    assert [bench for bench in benches if not re.search(rf"ARGS={bench}\b|\*{bench}\*", MEASURED)] == []


def test_every_target_that_writes_results_is_in_the_makefile(page: ModuleType) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(page.TARGETS.values()) <= set(targets)


@pytest.mark.parametrize(
    "content",
    [
        [{**WHEN, "name": "a", "s": 1.0}, {**WHEN, "name": "b", "s": 3.0}],
        {"a": {**WHEN, "s": 1.0}, "b": {**WHEN, "s": 3.0}},
        {"version": 1, "targets": [{**WHEN, "name": "a", "s": 1.0}, {**WHEN, "name": "b", "s": 3.0}]},
    ],
    ids=["a list", "rows by their keys", "targets"],
)
def test_rows_are_the_same_in_each_form_of_a_file(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch, content: Any
) -> None:
    found = values(page, monkeypatch, content)
    assert [(row["name"], row["s"]) for row in found["rows"]] == [("a", 1.0), ("b", 3.0)]
    assert (found["runs"], found["total"]["s"], found["most"]["s"]) == (2, 4.0, 3.0)
    assert found["measured"] == "`make soak`, 2026-01-02, 2 cores. Raw results: [soak.json](soak.json)."


def test_the_days_and_the_machines_are_named_once(page: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"date": f"2026-01-0{day}", "machine": f"{day % 2} cores"} for day in (3, 1, 2)]
    assert "2026-01-01 to 2026-01-03, 0 cores and 1 cores." in values(page, monkeypatch, rows)["measured"]


@pytest.mark.parametrize(
    ("column", "total"),
    [([[], ["a", "b"]], 2), ([None, "failed"], 1), ([True, False], 1), ([None, 2.5], 2.5), ([None, None], 0)],
)
def test_a_total_is_a_sum_or_a_number_of_values(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch, column: list[Any], total: float
) -> None:
    rows = [{**WHEN, "of": value} for value in column]
    assert values(page, monkeypatch, rows)["total"]["of"] == total


def test_one_run_has_its_values_and_how_much_has_grown(page: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    run = {**WHEN, "minutes": 60.0, "growth": {"memory": {"begin": 100, "end": 103}}}
    found = values(page, monkeypatch, run)
    assert (found["minutes"], found["changes"]) == (60.0, {"memory": "+3%"})
    assert values(page, monkeypatch, {**run, "growth": {}})["changes"] == {}, "a short run has no growth"


def a_benchmark(*sizes: int, bench: str = "idle") -> dict[str, Any]:
    points = [{"size": size, "wall_s": size / 10, "cpu_s": size / 20, "figures": {"ids": size}} for size in sizes]
    return {**WHEN, "bench": bench, "name": "rows", "plot": "benchmarks/idle.svg", "points": points}


def test_a_benchmark_has_the_values_of_its_largest_size_and_its_source(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {"idle/rows": a_benchmark(1, 10), "idle/one size": a_benchmark(5)}
    found = values(page, monkeypatch, content, "benchmarks")
    assert (found["idle/rows"]["size"], found["idle/rows"]["figures"], found["idle/rows"]["points"][0]["size"]) == (
        10,
        {"ids": 10},
        1,
    )
    assert found["idle/rows"]["source"] == "`make bench ARGS=idle`, 2026-01-02, [picture](benchmarks/idle.svg)"
    assert found["idle/one size"]["source"] == "`make bench ARGS=idle`, 2026-01-02", "there is no picture of one size"


# The seconds of each way of reading logs; by CPU time each takes half.
SECONDS = {
    "bare Fetch": 0.6,
    "fold": 1.0,
    "txnwatch's source in Spark": 2.0,
    "librdkafka, large queue": 10.0,
    "kafka-python": 30.0,
    "Spark's Kafka source": 12.0,
}


def scan(**changed: float) -> dict[str, Any]:
    """Three shapes with the same figures; an argument changes the CPU seconds of a way, by its last word."""
    found = {}
    for shape in ("1 MB batches", "16 KB batches", "one-record batches"):
        for way, spent in SECONDS.items():
            row = a_benchmark(1, bench="scan")
            cost = {"wall_s": spent, "cpu_s": changed.get(way.rpartition(" ")[2], spent / 2)}
            found[f"scan/{shape}: {way}"] = {**row, "points": [{**row["points"][0], **cost}]}
    return {**found, "idle/rows": a_benchmark(1)}


def test_a_part_of_a_file_has_its_rows_by_the_shape_of_the_data(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = values(page, monkeypatch, scan(), "benchmarks", "scan")
    assert [row["name"] for row in found["rows"]] == ["1 MB batches", "16 KB batches", "one-record batches"]
    assert found["1 MB batches"]["kafka-python"]["wall_s"] == 30.0
    assert "idle/rows" not in found
    assert "`make bench ARGS=scan`, " in found["measured"]


def test_a_target_is_reached_or_missed_as_the_rows_say(page: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    found = values(page, monkeypatch, scan(fold=0.9), "benchmarks", "scan")
    large, middle, small = page.speeds(found["rows"])
    assert large["target"] == "8: reached, by CPU time missed"
    assert middle["target"] is None
    assert small["target"] == "20: missed, by CPU time missed"
    for row in (large, middle, small):
        assert (row["time"], row["cpu"], row["python"], row["spark"]) == (10.0, pytest.approx(5.0 / 0.9), 30.0, 6.0)
        assert row["limit"] == pytest.approx(10.0 / 0.6), "the limit is the bare Fetch"


def a_run(version: str, seconds: float | None, answer: str = "nothing", **changed: Any) -> dict[str, Any]:
    run = {**WHEN, "row": "A", "name": "late", "truth": "open", "verdict": "hanging", "reason": None}
    others = {"find_hanging": {"answer": answer, "seconds": seconds}, "gauge": 0}
    run |= {"expected_outcome": None, "is_named": True, "version": version, "seconds": seconds, "others": others}
    return {**run, "false_verdicts": [], "is_outcome_known": None, **changed}


def test_runs_of_a_fault_that_end_alike_are_one_row_with_the_slowest(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [a_run("3.9.2", 1.5), a_run("4.3.1", 1.0), a_run("4.3.1", None, name="none", verdict=None)]
    found = values(page, monkeypatch, rows, "faults")
    assert [(row["versions"], row["seconds"]) for row in found["rows"]] == [("4.3.1, 3.9.2", 1.5), ("4.3.1", None)]
    assert (found["runs"], found["versions"]) == (3, "4.3.1 and 3.9.2")


def test_known_outcomes_are_counted_for_each_version_newest_first(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [("3.9.2", True), ("3.9.2", False), ("4.10.0", True), ("4.4.0", False), ("4.4.0", None)]
    rows = [a_run(version, 1.0, is_outcome_known=is_known) for version, is_known in known]
    found = values(page, monkeypatch, rows, "faults")
    assert found["known_outcomes"] == {"of 1 on 4.10.0": 1, "of 1 on 4.4.0": 0, "of 2 on 3.9.2": 1}
    assert [*found["known_outcomes"]] == ["of 1 on 4.10.0", "of 1 on 4.4.0", "of 2 on 3.9.2"]
    assert found["versions"] == "4.10.0, 4.4.0 and 3.9.2"


@pytest.mark.parametrize(
    "other",
    [{"truth": "closed"}, {"verdict": "late"}, {"reason": "a"}, {"is_named": False}, {"answer": "found"}],
    ids=lambda changed: next(iter(changed)),
)
def test_a_run_that_ends_in_another_way_is_a_row_of_its_own(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]
) -> None:
    found = values(page, monkeypatch, [a_run("3.9.2", 1.0, **other), a_run("4.3.1", 2.0)], "faults")
    assert [row["versions"] for row in found["rows"]] == ["4.3.1", "3.9.2"]
