"""What the benchmarks measured, in one JSON file; a run replaces the rows it has measured and leaves the others.

A row is one way of doing one thing, at several sizes. Its ratio is against something that a user would use instead, or
against the smallest size, measured in the same run: times of two machines cannot be compared, ratios can.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import linear_regression
from typing import Any

from bench.plots import plot

CPU, WALL = "CPU seconds", "seconds"


@dataclass(frozen=True, slots=True)
class Point:
    """One size.

    Attributes:
        size: in the row's `sizes_are`.
        wall_s, cpu_s: None where that was not measured; CPU is of every process that took part.
        ratio: against the row's `beside`; None for what is itself the yardstick.
        figures: everything else, by a name that has its unit.
    """

    size: float
    wall_s: float | None = None
    cpu_s: float | None = None
    ratio: float | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Row:
    """One line of one plot.

    Attributes:
        drawn: the figures to plot instead of the cost; the row is then the only one of its sizes.
    """

    bench: str
    name: str
    sizes_are: str
    beside: str = ""
    points: list[Point] = field(default_factory=list)
    drawn: tuple[str, ...] = ()

    @property
    def cost(self) -> str:
        """The column that the plot and the slope are of: CPU if every size has it, else wall time."""
        return CPU if all(point.cpu_s is not None for point in self.points) else WALL

    @property
    def costs(self) -> list[tuple[float, float]]:
        """The sizes with their costs, except those without a logarithm."""
        found = [(point.size, point.cpu_s if self.cost == CPU else point.wall_s) for point in self.points]
        return [(size, spent) for size, spent in found if size > 0 and spent]

    @property
    def slope(self) -> float | None:
        """The exponent of growth: 0 is flat, 1 is in proportion; by least squares over the logarithms."""
        logs = [(math.log(size), math.log(spent)) for size, spent in self.costs]
        if len(logs) < 2:
            return None
        mean_x, mean_y = (sum(axis) / len(logs) for axis in zip(*logs, strict=True))
        spread = sum((x - mean_x) ** 2 for x, _ in logs)
        return sum((x - mean_x) * (y - mean_y) for x, y in logs) / spread if spread else None

    @property
    def growth(self) -> dict[str, float]:
        """How fast each amount of memory grew in an hour, by least squares; nothing if the sizes are not minutes."""
        if self.sizes_are != "minutes" or len(self.points) < 2:
            return {}
        hours = [point.size / 60 for point in self.points]
        names = set.intersection(*(set(point.figures) for point in self.points))
        return {
            name: linear_regression(hours, [point.figures[name] for point in self.points]).slope
            for name in sorted(names)
            if "MB" in name
        }


class Results:
    """The file, and the plots beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    @contextmanager
    def of(self, bench: str) -> Iterator[list[Row]]:
        """A benchmark's rows, to be filled; they are written when it has ended well."""
        rows: list[Row] = []
        yield rows
        kept = {key: row for key, row in self._rows.items() if row["bench"] != bench}
        origin = {"machine": machine(), "date": f"{datetime.now(UTC):%Y-%m-%d}", "command": _command(bench)}
        fresh = {
            f"{bench}/{row.name}": {
                **asdict(row),
                "slope": row.slope,
                "growth": row.growth,
                "plot": _plot(row),
                **origin,
            }
            for row in rows
        }
        self._rows = {**kept, **fresh}
        self._path.write_text(json.dumps(self._rows, indent=1, sort_keys=True) + "\n")
        for picture in dict.fromkeys(map(_plot, rows)):
            plot(self._path.parent / picture, [row for row in rows if _plot(row) == picture])
        for row in rows:
            print(_line(row), flush=True)


def _command(bench: str) -> str:
    """How to measure a benchmark again as it was measured; settings of a benchmark are variables BENCH_*."""
    settings = [f"{name}={value} " for name, value in sorted(os.environ.items()) if name.startswith("BENCH_")]
    return f"{''.join(settings)}make bench ARGS={bench}"


def _plot(row: Row) -> str:
    """The file that a row is drawn in, beside the benchmark's other rows of the same sizes."""
    return f"benchmarks/{row.bench}-{row.sizes_are.replace(' ', '-')}.svg"


def machine() -> str:
    """Where it was measured."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.machine()}, Python {platform.python_version()}"


def _line(row: Row) -> str:
    slope = f", slope of {row.cost} {row.slope:.2f}" if row.slope is not None else ""
    return "\n".join(
        [f"{row.name} (by {row.sizes_are}{slope})", *(f"  {_point_text(row, point)}" for point in row.points)]
    )


def _point_text(row: Row, point: Point) -> str:
    parts = [f"{point.size:,.0f}:"]
    parts += [f"{point.wall_s:.3f} s"] if point.wall_s is not None else []
    parts += [f"{point.cpu_s:.3f} s CPU"] if point.cpu_s is not None else []
    parts += [f"{point.ratio:.2f} x {row.beside}"] if point.ratio is not None else []
    parts += [f"{name} {value:,.6g}" for name, value in point.figures.items()]
    return "  ".join(parts)
