"""What `make bench` writes down: rows that are replaced as a whole, slopes, and growth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import batch_profile, plots, results
from bench.results import Point, Results, Row


def row(name: str, *costs: tuple[float, float]) -> Row:
    return Row("idle", name, "partitions", "nothing", [Point(size, cpu_s=spent, ratio=2.0) for size, spent in costs])


@pytest.mark.parametrize(
    ("costs", "slope"),
    [
        (((10, 3.0), (100, 3.0), (1_000, 3.0)), 0.0),
        (((10, 1.0), (100, 10.0), (1_000, 100.0)), 1.0),
        (((10, 1.0), (1_000, 10.0)), 0.5),
        (((10, 1.0),), None),
        (((0, 1.0), (10, 0.0)), None),
    ],
    ids=["flat", "in proportion", "by the root", "one size", "nothing to take logarithms of"],
)
def test_the_slope_is_the_exponent_of_growth(costs: tuple[tuple[float, float], ...], slope: float | None) -> None:
    found = row("a", *costs).slope
    assert found is None if slope is None else found == pytest.approx(slope)


WITHOUT_CPU = [Point(10, wall_s=1.0, cpu_s=5.0), Point(100, wall_s=10.0)]
WITH_CPU = [Point(10, wall_s=60.0, cpu_s=1.0), Point(100, wall_s=60.0, cpu_s=10.0)]


@pytest.mark.parametrize(
    ("points", "cost"), [(WITHOUT_CPU, "seconds"), (WITH_CPU, "CPU seconds")], ids=["a size without CPU", "CPU"]
)
def test_the_slope_and_the_line_are_of_the_same_column(points: list[Point], cost: str) -> None:
    found = Row("idle", "a", "partitions", "nothing", points)
    assert found.cost == cost
    assert found.costs == [(10, 1.0), (100, 10.0)]
    assert found.slope == pytest.approx(1.0)


def test_a_panel_draws_the_cost_of_its_own_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    figure = pytest.importorskip("matplotlib.figure", reason="only the environment of make bench has it").Figure
    figures: list[Any] = []
    monkeypatch.setattr(figure, "savefig", lambda drawn, *_, **__: figures.append(drawn))
    rows = [Row("idle", name, "partitions", "", points) for name, points in (("a", WITH_CPU), ("b", WITHOUT_CPU))]
    plots.plot(tmp_path / "of" / "rows.svg", rows)
    ((first, second, *_),) = [drawn.axes for drawn in figures]
    for axes, label in ((first, "CPU seconds"), (second, "seconds")):
        assert axes.get_ylabel() == label
        assert list(axes.lines[0].get_ydata()) == [1.0, 10.0]
        assert "slope 1.00" in axes.get_title()


def test_a_run_replaces_its_own_rows_and_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "plot", lambda *_: None)
    path = tmp_path / "benchmarks.json"
    path.write_text(json.dumps({"scan/old": {"bench": "scan"}, "idle/gone": {"bench": "idle"}}))
    with Results(path).of("idle") as rows:
        rows.append(row("new", (10, 1.0), (100, 1.0)))
    found = json.loads(path.read_text())
    assert found.keys() == {"scan/old", "idle/new"}
    assert found["idle/new"]["slope"] == 0.0
    assert found["idle/new"]["growth"] == {}


def test_a_run_that_fails_leaves_all_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.json"
    path.write_text("{}")

    def fails() -> None:
        with Results(path).of("idle") as rows:
            rows.append(row("half", (10, 1.0)))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert path.read_text() == "{}"


def test_growth_over_minutes_is_stated_an_hour() -> None:
    points = [Point(minute, figures={"PSS MB": 900.0 + minute, "ids": 5.0}) for minute in (5, 10, 60)]
    points[0] = Point(5, figures={**points[0].figures, "live MB": 3.0})
    growth = Row("steady", "a", "minutes", points=points).growth
    assert growth == {"PSS MB": pytest.approx(60.0)}
    assert Row("steady", "a", "partitions", points=points).growth == {}
    assert Row("steady", "a", "minutes", points=points[:1]).growth == {}


def test_the_profile_has_a_share_of_each_part_of_a_micro_batch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(batch_profile, "CHANGING", 100)
    rows: list[Row] = []
    batch_profile.run(tmp_path, rows)
    shares = rows[0].points[0].figures
    assert all(share > 0.0 for name, share in shares.items() if name != "% the rest"), shares
    assert sum(shares.values()) == pytest.approx(100.0)
