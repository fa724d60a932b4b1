"""The results of docs/*.json, which targets of the Makefile write: what the comments of blocks can name.

A block `results: FILE` has the content of one file, `results: FILE/PART` the part whose keys begin with PART, and
`results` each file by its name. All files are treated alike. A page names:

- a value by its path: `{hangs.made}`. A benchmark also has the values of its largest size, and a way of reading logs is
  below the shape of the data: `{scan/1 MB batches.fold.wall_s}`;
- `{measured}`: the command, the days, the machines and the file; `{source}` of one benchmark;
- `{total.runs}`: the sum of a column, or how many values it has; `{most.s}`: its highest value;
- the rows of a table, by the names of their values. The key of a row is its name, if the row itself has none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import capacity
from tables import Content, grouped

DOCS = Path(__file__).resolve().parent.parent / "docs"
Row = dict[str, Any]
# Each file and the target that writes it.
TARGETS = {
    **{f"{what}-times": f"{what}-times" for what in ("stop", "takeover", "cluster")},
    **{name: name for name in ("faults", "soak", "fuzz", "bad-inputs")},
    "faults-looked-at": "faults",
    "disturbances": "faults",
    "ways-in": "long",
    "benchmarks": "bench",
}
# Reading logs: how many times as fast as librdkafka the fold has to be, by the shape of the data.
SPEEDS = {"1 MB batches": 8.0, "one-record batches": 20.0}
LIBRDKAFKA = "librdkafka, large queue"
_END = ("row", "name", "truth", "verdict", "reason", "expected_outcome", "is_named")


@cache
def results(file: str) -> Any:  # noqa: ANN401 - what a file has
    """The content of one file of results."""
    return json.loads((DOCS / f"{file}.json").read_text())


def values_of(file: str, part: str = "") -> Row:
    """What a page can name of a file: it has rows by their keys, a list of rows, or one run."""
    content = results(file)
    if isinstance(content, list):
        values, rows = {}, content
    elif "date" in content:
        values, rows = content, [content]
    elif "targets" in content:
        values, rows = content, content["targets"]
    else:
        found = {key.removeprefix(f"{part}/"): row for key, row in content.items() if key.startswith(part)}
        rows = [{"name": key, **row, **_at_largest_size(row)} for key, row in found.items()]
        values = _nested(dict(zip(found, rows, strict=True)))
    return {
        **values,
        "measured": _measured(file, part, rows),
        **(_of_faults(rows) if file.startswith("faults") else {"rows": [*values.values()] if part else rows}),
        "runs": len(rows),
        "total": {name: _total([row.get(name) for row in rows]) for name in rows[0]},
        "most": {name: max(_numbers([row.get(name) for row in rows]), default=None) for name in rows[0]},
        "versions": _listed(sorted({row["version"] for row in rows if "version" in row}, key=_version, reverse=True)),
        "changes": {name: f"{one['end'] / one['begin'] - 1:+.0%}" for name, one in values.get("growth", {}).items()},
    }


def _at_largest_size(row: Row) -> Row:
    if "points" not in row:
        return {}
    picture = f", [picture]({row['plot']})" if len(row["points"]) > 1 else ""
    return {**row["points"][-1], "source": f"`make bench ARGS={row['bench']}`, {row['date']}{picture}"}


def _nested(rows: dict[str, Row]) -> Row:
    """The row of a key `a: b` is below `a`, with the others of `a`."""
    found: Row = {}
    for key, row in rows.items():
        shape, _, way = key.partition(": ")
        if way:
            found.setdefault(shape, {"name": shape})[way] = row
        else:
            found[key] = row
    return found


def _measured(file: str, part: str, rows: list[Row]) -> str:
    days, machines = (sorted({row[name] for row in rows}) for name in ("date", "machine"))
    command = f"make {TARGETS[file]} ARGS={part}" if part else f"make {TARGETS[file]}"
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    return f"`{command}`, {when}, {' and '.join(machines)}. Raw results: [{file}.json]({file}.json)."


def _numbers(values: list[Any]) -> list[float]:
    return [value for value in values if isinstance(value, int | float)]


def _total(values: list[Any]) -> float:
    """The sum of the numbers, plus the number of other values; each value of a list counts."""
    others = [value for value in values if value is not None and not isinstance(value, int | float)]
    return sum(_numbers(values)) + sum(len(one) if isinstance(one, list) else 1 for one in others)


def _of_faults(rows: list[Row]) -> Row:
    return {"rows": _ends_of_faults(rows), "known_outcomes": _known_outcomes(rows)}


def _known_outcomes(rows: list[Row]) -> Row:
    """How many hangs had a known outcome, by the version of Kafka."""
    hangs = [run for run in rows if run["is_outcome_known"] is not None]
    newest_first = sorted(hangs, key=lambda run: _version(run["version"]), reverse=True)
    return {
        f"of {len(runs)} on {version}": sum(run["is_outcome_known"] for run in runs)
        for version, runs in grouped(newest_first, "version").items()
    }


def _listed(names: list[str]) -> str:
    *others, last = names or [""]
    return f"{', '.join(others)} and {last}" if others else last


def _version(text: str) -> list[int]:
    return [int(part) for part in text.split(".")]


def _ends_of_faults(rows: list[Row]) -> list[Row]:
    """One row for each end of a fault: the slowest run, with the versions of Kafka that end alike."""

    def end(run: Row) -> str:
        answers = [one["answer"] if isinstance(one, dict) else one for one in run["others"].values()]
        return str([answers, *(run[name] for name in _END)])

    newest_first = sorted(rows, key=lambda run: _version(run["version"]), reverse=True)
    same = grouped(sorted(newest_first, key=lambda run: (run["row"], run["name"])), end).values()
    return [
        {**max(runs, key=lambda run: run["seconds"] or 0.0), "versions": ", ".join(run["version"] for run in runs)}
        for runs in same
    ]


def speeds(shapes: list[Row]) -> list[Row]:
    """Reading logs: how many times as fast as each other reader txnwatch is, and whether this is the target."""
    return [
        {"name": ways["name"], "date": ways["fold"]["date"], **_speed(ways)}
        for ways in sorted(shapes, key=itemgetter("name"))
    ]


def _speed(ways: Row) -> Row:
    def times(other: str, cost: str = "wall_s", way: str = "fold") -> float:
        return float(ways[other][cost] / ways[way][cost])

    target = SPEEDS.get(ways["name"])
    time, cpu = times(LIBRDKAFKA), times(LIBRDKAFKA, "cpu_s")
    is_reached = ["missed" if target is None or one < target else "reached" for one in (time, cpu)]
    return {
        "target": None if target is None else f"{target:.0f}: {is_reached[0]}, by CPU time {is_reached[1]}",
        "time": time,
        "cpu": cpu,
        "limit": times(LIBRDKAFKA, way="bare Fetch"),
        "python": times("kafka-python"),
        "spark": times("Spark's Kafka source", way="txnwatch's source in Spark"),
    }


def _scan() -> Row:
    values = values_of("benchmarks", "scan")
    return {**values, "rows": speeds(values["rows"])}


def _all() -> Row:
    """Each file by its name, and what is computed of several rows."""
    return {**{file: values_of(file) for file in TARGETS}, "scan": {row["name"]: row for row in _scan()["rows"]}}


BLOCKS: dict[str, Callable[[], Content]] = {
    "results": _all,
    **{f"results: {file}": partial(values_of, file) for file in TARGETS},
    "results: benchmarks/scan": _scan,
    "cost of single operations": lambda: capacity.shown_costs(_costs()),
    "resources for a cluster": lambda: {name: capacity.needs(of, _costs()) for name, of in capacity.LOADS.items()},
    "the model and whole watches": lambda: capacity.checked(results("benchmarks"), _costs()),
}


def _costs() -> capacity.Costs:
    return capacity.costs_of(results("benchmarks"))
