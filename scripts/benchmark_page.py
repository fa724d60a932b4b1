"""docs/benchmarks.md: the results of the last `make bench` (docs/benchmarks.json)."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

ABOUT = """
Compare the ratios: both sides were measured in one run on one machine. Seconds are valid for that machine only. CPU is
the time of all processes that took part, without the broker. The slope is the exponent of growth over the sizes: 0 is
constant, 1 is proportional. `make bench` measures everything, `make bench ARGS="scan idle"` a part of it. Each run
replaces its own rows.
""".strip()
TITLES = {
    "scan": "Reading logs",
    "buckets": "The stateful operator alone",
    "operators": "The stateful operator in Spark",
    "executors": "From one executor to two",
    "latency": "From a hang to its event",
    "changing": "From a hang to its event, while all producers write",
    "census": "A round of the census",
    "many_hangs": "Many hangs at once",
    "idle": "An idle cluster",
    "quota": "Under a quota of 1 MB/s",
    "first_reading": "The first reading of the coordinators' log",
    "million": "A million transactional ids, the whole job",
    "partitions": "Many partitions",
    "steady": "Memory over time",
}


def benchmarks_page(found: dict[str, Any], docs: Path, generated: str) -> str:
    """The page: rows grouped by benchmark, with a plot for a benchmark that was measured at several sizes."""
    lines = ["# Benchmarks", "", generated, ABOUT, ""]
    rows = sorted(found.values(), key=lambda row: (list(TITLES).index(row["bench"]), row["name"]))
    for bench, its in groupby(rows, key=lambda row: str(row["bench"])):
        lines += _benchmark(bench, list(its), docs)
    return "\n".join(lines)


def _benchmark(bench: str, rows: list[dict[str, Any]], docs: Path) -> list[str]:
    first = rows[0]
    lines = [f"## {TITLES[bench]}", "", f"`make bench ARGS={bench}`, {first['measured']}, {first['machine']}.", ""]
    for row in rows:
        lines += _row(row)
    for picture, sizes_are in {row["plot"]: row["sizes_are"] for row in rows}.items():
        if (docs / picture).exists():
            lines += [f"![{TITLES[bench]}, by {sizes_are}]({picture})", ""]
    return lines


def _row(row: dict[str, Any]) -> list[str]:
    points = row["points"]
    names = sorted({name for point in points for name in point["figures"]})
    columns: list[tuple[str, list[float | None]]] = [
        ("seconds", [point["wall_s"] for point in points]),
        ("CPU seconds", [point["cpu_s"] for point in points]),
        (f"x {row['beside']}", [point["ratio"] for point in points]),
        *((name, [point["figures"].get(name) for point in points]) for name in names),
    ]
    shown = [(head, values) for head, values in columns if any(value is not None for value in values)]
    slope = f" Slope {row['slope']:.2f}." if row["slope"] is not None else ""
    heads = [row["sizes_are"], *(head for head, _ in shown)]
    lines = [f"**{row['name']}.**{slope}", "", table_line(heads), table_line(["---:"] * len(heads))]
    for number, point in enumerate(points):
        lines.append(table_line([f"{point['size']:,.0f}", *(_figure(values[number]) for _, values in shown)]))
    return [*lines, ""]


def table_line(cells: list[str]) -> str:
    """One line of a table in Markdown."""
    return "| " + " | ".join(cells) + " |"


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
