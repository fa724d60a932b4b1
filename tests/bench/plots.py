"""One picture a benchmark: what each row costs by size, both axes in decades."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.results import Row

_WIDTH, _HEIGHT = 6.4, 3.6


def plot(path: Path, rows: Sequence[Row]) -> None:
    """Draws the rows that have two sizes or more into an SVG file; nothing where there are none.

    CPU where all of them have it, else wall time: one axis has one meaning.
    """
    has_cpu = all(point.cpu_s is not None for row in rows for point in row.points)
    drawn = [(row, found) for row in rows if len(found := _costs(row, has_cpu=has_cpu)) > 1]
    if not drawn:
        return
    from matplotlib import rc_context  # only `make bench` has it
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    axes = figure.subplots()
    for row, found in drawn:
        slope = f", slope {row.slope:.2f}" if row.slope is not None else ""
        axes.plot(*zip(*found, strict=True), marker="o", label=f"{row.name}{slope}")
    axes.set(xscale="log", yscale="log", xlabel=drawn[0][0].sizes_are, ylabel="CPU seconds" if has_cpu else "seconds")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
    path.parent.mkdir(exist_ok=True)
    with rc_context({"svg.hashsalt": "txnwatch"}):
        figure.savefig(path, format="svg", metadata={"Date": None})


def _costs(row: Row, *, has_cpu: bool) -> list[tuple[float, float]]:
    timed = [(point.size, point.cpu_s if has_cpu else point.wall_s) for point in row.points]
    return [(size, spent) for size, spent in timed if size > 0 and spent]
