"""A picture for each benchmark: what each row costs by size, in a panel of its own; or some figures of one row.

In a panel both axes are in decades, the title has the slope, and the axis names the cost that both are of: CPU or wall
time. Figures have linear axes that begin at 0.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bench.results import Row

_COLUMNS, _WIDTH, _HEIGHT = 3, 2.9, 1.9  # of a panel, in inches
_TITLE = 36  # characters of a line
_STYLE = {"svg.hashsalt": "txnwatch", "svg.fonttype": "none", "font.size": 8, "axes.titlesize": 8}


def plot(path: Path, rows: Sequence[Row]) -> None:
    """Draws the rows that have two sizes or more into an SVG file; nothing where there are none.

    All panels have the same axes, so rows can be compared.
    """
    if rows[0].drawn:
        _plot_figures(path, rows[0])
        return
    drawn = [row for row in rows if len(row.costs) > 1]
    if not drawn:
        return
    from matplotlib import rc_context  # only `make bench` has it
    from matplotlib.figure import Figure

    columns = min(_COLUMNS, len(drawn))
    lines = -(-len(drawn) // columns)
    with rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH * columns, _HEIGHT * lines + 0.3), layout="constrained")
        panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flatten()
        for axes, row in zip(panels, drawn, strict=False):
            axes.plot(*zip(*row.costs, strict=True), marker="o", markersize=4)
            axes.set(xscale="log", yscale="log", title=_title(row), ylabel=row.cost)
            axes.minorticks_off()
            axes.grid(visible=True, which="major", alpha=0.3)
        for axes in panels[len(drawn) :]:
            axes.set_visible(False)
        figure.supxlabel(drawn[0].sizes_are)
        _write(figure, path)


def _plot_figures(path: Path, row: Row) -> None:
    """A line for each drawn figure of one row."""
    from matplotlib import rc_context  # only `make bench` has it
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH * 2, _HEIGHT * 2), layout="constrained")
        axes = figure.subplots()
        sizes = [point.size for point in row.points]
        for name in row.drawn:
            axes.plot(sizes, [point.figures[name] for point in row.points], marker="o", markersize=4, label=name)
        axes.set(xlabel=row.sizes_are, title=row.name, xlim=(0, None), ylim=(0, None))
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
        _write(figure, path)


def _write(figure: Figure, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})


def _title(row: Row) -> str:
    slope = f", slope {row.slope:.2f}" if row.slope is not None else ""
    return "\n".join(textwrap.wrap(f"{row.name}{slope}", _TITLE))
