"""One picture a benchmark: what each row costs by size, both axes in decades."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.results import Row

_WIDTH, _HEIGHT = 6.4, 3.6


def plot(path: Path, rows: Sequence[Row]) -> None:
    """Draws the rows that have two sizes or more into an SVG file; nothing where there are none."""
    drawn = [(row, found) for row in rows if len(found := _costs(row)) > 1]
    if not drawn:
        return
    from matplotlib import rc_context  # only `make bench` has it
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    axes = figure.subplots()
    for row, found in drawn:
        slope = f", slope {row.slope:.2f}" if row.slope is not None else ""
        axes.plot(*zip(*found, strict=True), marker="o", label=f"{row.name}{slope}")
    axes.set(xscale="log", yscale="log", xlabel=drawn[0][0].sizes_are, ylabel=_unit(drawn[0][0]))
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
    path.parent.mkdir(exist_ok=True)
    with rc_context({"svg.hashsalt": "txnwatch"}):
        figure.savefig(path, format="svg", metadata={"Date": None})


def _costs(row: Row) -> list[tuple[float, float]]:
    told = [(point.size, point.cpu_s if point.cpu_s is not None else point.wall_s) for point in row.points]
    return [(size, spent) for size, spent in told if size > 0 and spent]


def _unit(row: Row) -> str:
    return "CPU seconds" if row.points[0].cpu_s is not None else "seconds"
