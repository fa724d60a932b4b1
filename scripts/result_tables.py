"""The rows of the tables that come from results: docs/*.json, which targets of the Makefile write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import capacity
from tables import Content, Key, code, grouped, table, value_of

DOCS = Path(__file__).resolve().parent.parent / "docs"
Row = dict[str, Any]


@cache
def results(name: str) -> Any:  # noqa: ANN401 - what a file has
    """The content of one file of results."""
    return json.loads((DOCS / f"{name}.json").read_text())


def rows_of(found: list[Row] | dict[str, Row]) -> list[Row]:
    """The rows of results. The key of a row is its name, if the row itself has none."""
    return found if isinstance(found, list) else [{"name": name, **row} for name, row in found.items()]


def _measured(target: str, rows: Iterable[Row]) -> str:
    """How, when and where it was measured; each date and machine once."""
    places = sorted({f"{row['date']}, {row['machine']}" for row in rows})
    return f"`make {target}`: {'; '.join(places)}."


def _listed(target: str, found: list[Row] | dict[str, Row], order: Callable[[Row], Any] = lambda _: 0) -> Row:
    rows = sorted(rows_of(found), key=order)
    return {"measured": _measured(target, rows), "rows": rows}


# The faults and the disturbances


def _verdicts(found: list[Row] | dict[str, Row]) -> Row:
    """The verdicts that were false in all rows, and the versions of Kafka."""
    rows = rows_of(found)
    wrong = [text for row in rows for text in row["false_verdicts"]]
    versions = " and ".join(sorted({row["version"] for row in rows}, reverse=True))
    false = f"{len(wrong)}: {'; '.join(wrong)}" if wrong else "none"
    return {"runs": len(rows), "kafka": versions, "wrong": wrong, "false": false, "date": rows[0]["date"]}


def _faults() -> Row:
    """The runs of a fault with the same end are one row; a cell has the version where they differ."""
    found = results("faults")
    newest_first = sorted(found.values(), key=lambda run: run["version"], reverse=True)
    same = grouped(sorted(newest_first, key=_fault_of), lambda run: (*_fault_of(run), run["truth"]))
    cells: dict[str, Key] = {
        "txnwatch": _verdict,
        "after": "{seconds:.1f} s",
        "find_hanging": lambda run: _answers(run, "find_hanging"),
        "kafka_python": lambda run: _answers(run, "kafka_python"),
        "gauge": "others.gauge",
    }
    rows = [
        {
            **runs[0],
            "versions": ", ".join(run["version"] for run in runs),
            **{name: _each({run["version"]: value_of(run, cell) for run in runs}) for name, cell in cells.items()},
        }
        for runs in same.values()
    ]
    return {**_verdicts(found), "measured": _measured("faults", found.values()), "rows": rows}


def _fault_of(run: Row) -> tuple[str, str]:
    return run["row"], run["name"]


def _verdict(run: Row) -> str:
    if run["verdict"] is None:
        return "no verdict, as expected"
    reason = f" / {code(run['reason'])}" if run["reason"] else ""
    outcome = f", expected: {run['expected_outcome']}" if run["expected_outcome"] in {"commit", "abort"} else ""
    return f"{code(run['verdict'])}{reason}{outcome}{'' if run['is_named'] else ', not named'}"


def _answers(run: Row, tool: str) -> str:
    at_default, at_0 = (run["others"].get(name, {"answer": "not run"})["answer"] for name in (tool, f"{tool}_at_0"))
    return f"{at_default}; at 0: {at_0}".replace("found", "**found**")


def _each(values: dict[str, object]) -> object:
    """The value of each version; only once if it is the same for all."""
    first, *others = dict.fromkeys(values.values())
    return "; ".join(f"{value} ({version})" for version, value in values.items()) if others else first


def _disturbances() -> Row:
    found = results("disturbances")
    rows = [{**row, "meanwhile_s": row["found_s"] if row["is_found_meanwhile"] else None} for row in found]
    return {**_verdicts(found), **_listed("faults", rows)}


# The soak and the fuzzer


def _soak() -> Row:
    found: Row = results("soak")
    failed = "\n".join(["The run has **failed**:", "", *(f"- {problem}" for problem in found["problems"])])
    verdict = failed if found["problems"] else "The run has passed."
    return {**found, "measured": _measured("soak", [found]), "verdict": verdict}


def _growth() -> Content:
    def sizes(row: Row) -> Row:
        in_bytes = row["name"] != "descriptors"
        shown = {
            name: f"{row[name] / 1e6:,.1f} MB" if in_bytes else f"{row[name]:,.0f}" for name in ("begin", "end", "most")
        }
        return {"name": row["name"], **shown, "change": _change(row)}

    rows = rows_of(results("soak")["growth"])
    return [*map(sizes, rows)] or "The run was too short to compare its beginning with its end."


def _change(row: Row) -> str:
    return f"{row['end'] / row['begin'] - 1:+.0%}"


def _fuzz() -> Row:
    found = results("fuzz")
    rows = found["targets"]
    shown = [
        {**row, "failure": code(row["failure"].splitlines()[0][:80]) if row["failure"] else "none"} for row in rows
    ]
    return {
        **_listed("fuzz", shown),
        "atheris": found["atheris"],
        "minutes": sum(row["seconds"] for row in rows) / 60,
        "runs": sum(row["runs"] for row in rows),
        "failed": [row["name"] for row in rows if row["failure"] is not None],
    }


_NOT_TRIED = dict.fromkeys(("doctor", "find-hanging", "run", "abort", "secrets"))


def _bad_inputs() -> str:
    rows = sorted(results("bad-inputs").values(), key=lambda row: str(row["part"]))
    columns: dict[str, Key] = {"input": "given", "message": "{said!c}", "exit code": "code"}
    parts = [f"## {part}\n\n{table(columns, found)}" for part, found in grouped(rows, "part").items()]
    return "\n\n".join([_measured("bad-inputs", rows), f"{len(rows)} inputs.", *parts])


# The benchmarks


def _benchmark_rows(bench: str) -> list[Row]:
    return [row for _, row in sorted(results("benchmarks").items()) if row["bench"] == bench]


def _benchmark(bench: str) -> str:
    rows = _benchmark_rows(bench)
    return f"{_measured(f'bench ARGS={bench}', rows)}\n\n{benchmark(rows)}"


def benchmark(rows: list[Row]) -> str:
    """The rows of a benchmark, a line for each size. Rows with the same columns are one table."""
    same = grouped([line for row in rows for line in _lines(row)], tuple)
    made = [table({title: itemgetter(title) for title in titles}, lines) for titles, lines in same.items()]
    growths = [", ".join(f"{name} {an_hour:+.0f}" for name, an_hour in row["growth"].items()) for row in rows]
    return "\n\n".join([*made, *(f"Growth an hour, by least squares over all lines: {one}." for one in growths if one)])


def _lines(row: Row) -> list[Row]:
    """A line for each size; a column is shown if one size has a value."""
    slope = "" if row["slope"] is None else f" (slope {row['slope']:.2f})"
    names = sorted({name for point in row["points"] for name in point["figures"]})
    lines = [
        {
            "": f"{row['name']}{slope}",
            row["sizes_are"]: int(point["size"]),
            "seconds": point["wall_s"],
            "CPU seconds": point["cpu_s"],
            f"x {row['beside']}": point["ratio"],
            **{name: point["figures"].get(name) for name in names},
        }
        for point in row["points"]
    ]
    return [{title: line[title] for title in line if any(one[title] is not None for one in lines)} for line in lines]


# Reading logs, at the largest size: how many times as fast as librdkafka the fold has to be, by the shape of the data.
TARGETS = {"1 MB batches": 8.0, "one-record batches": 20.0}
LARGE_QUEUE = "librdkafka, large queue"
# Each way of reading has the step of its place and all steps before it. The bare socket exists without TLS only.
WAYS = ("bare socket", "bare Fetch", "header walk", "fold", "fold to Arrow", "txnwatch's source in Spark")
OTHERS = (
    *(LARGE_QUEUE, "librdkafka, default queue"),
    *("kafka-consumer-perf-test", "kafka-python", "Spark's Kafka source"),
)
Shapes = dict[str, dict[str, Any]]


def by_shape(rows: list[Row], cost: str) -> Shapes:
    """What each way of reading costs, for each shape of the data; None if it was not measured."""
    found: Shapes = {}
    for row in rows:
        shape, _, way = row["name"].rpartition(": ")
        found.setdefault(shape, dict.fromkeys((*WAYS, *OTHERS)))[way] = row["points"][-1][cost]
    return dict(sorted(found.items()))


def costs_of_ways(shapes: Shapes) -> str:
    """A column for each way that was measured."""
    ways = [way for way in (*WAYS, *OTHERS) if any(costs[way] is not None for costs in shapes.values())]
    return table({"": 0, **{way: f"1.{way}" for way in ways}}, shapes.items())


def shares_of_steps(wall: Shapes) -> list[Row]:
    """The share of each step in the time of a whole Spark query."""
    rows = []
    for shape, costs in wall.items():
        whole_s, shares, before_s = costs[WAYS[-1]], dict[str, str | None].fromkeys(WAYS), 0.0
        for way in WAYS:
            if costs[way] is not None:
                share = round((costs[way] - before_s) / whole_s, 2)
                shares[way], before_s = f"{share + 0.0:.0%}", costs[way]  # -0.0 becomes 0.0
        rows.append({"shape": shape, "seconds": whole_s, "shares": shares})
    return rows


def speeds(wall: Shapes, cpu: Shapes) -> list[Row]:
    """How many times as fast as librdkafka the fold is, and what no reader here can exceed."""

    def times(costs: dict[str, float], target: float) -> dict[str, str]:
        found = {way: costs[way] / costs["fold"] for way in OTHERS[:2]}
        return {way: f"{one:.1f}, {'reached' if one >= target else 'missed'}" for way, one in found.items()}

    return [
        {
            "shape": shape,
            "target": f"{target:.0f}",
            "time": times(wall[shape], target),
            "cpu": times(cpu[shape], target),
            "limit": wall[shape][LARGE_QUEUE] / wall[shape]["bare Fetch"],
            "share": wall[shape]["bare Fetch"] / wall[shape]["fold"],
        }
        for shape, target in TARGETS.items()
    ]


def _scan(made: Callable[..., Content], *costs: str) -> Content:
    return made(*(by_shape(_benchmark_rows("scan"), cost) for cost in costs))


# The ten figures


def _ten_figures() -> Row:
    found, soak, stops = results("benchmarks"), results("soak"), rows_of(results("stop-times"))
    latency = found["latency/the demo's load, trigger 500 ms"]
    changing = found["changing/each transaction ends and the next one begins in every round, trigger 500 ms"]
    takeover = results("cluster-times")["5. start of another driver after `kill -9` of the driver, until `ready`"]
    wall, cpu = (by_shape(_benchmark_rows("scan"), cost) for cost in ("wall_s", "cpu_s"))
    times = {
        shape: tuple(costs[shape][LARGE_QUEUE] / costs[shape]["fold"] for costs in (wall, cpu)) for shape in TARGETS
    }
    return {
        "latency": latency,
        "changing": changing,
        "takeover": takeover,
        "soak": soak,
        "idle": found["idle/nothing is written"],
        "million": found["million/start to first verdict"],
        "verdicts": _verdicts(rows_of(results("faults")) + rows_of(results("disturbances"))),
        "memory": "".join(f", memory {_change(row)}" for name, row in soak["growth"].items() if name == "memory"),
        "stop": {"s": max(row["s"] for row in stops), "situations": stops, "date": stops[0]["date"]},
        "scan": {**times, "date": _benchmark_rows("scan")[0]["date"]},
    }


def _costs() -> capacity.Costs:
    return capacity.costs_of(results("benchmarks"))


BLOCKS: dict[str, Callable[[], Content]] = {
    "ten figures": _ten_figures,
    "faults": _faults,
    "disturbances": _disturbances,
    "soak": _soak,
    "growth in the soak": _growth,
    "fuzzing": _fuzz,
    "authentication": lambda: _listed("long", [{**_NOT_TRIED, **row} for row in rows_of(results("ways-in"))]),
    "times of a stop": lambda: _listed("stop-times", results("stop-times"), lambda row: -row["s"]),
    "times on a Spark cluster": lambda: _listed("cluster-times", results("cluster-times")),
    "bad inputs": _bad_inputs,
    "cost of single operations": lambda: capacity.shown_costs(_costs()),
    "resources for a cluster": lambda: {name: capacity.needs(of, _costs()) for name, of in capacity.LOADS.items()},
    **{f"benchmark: {bench}": partial(_benchmark, bench) for bench in grouped(results("benchmarks").values(), "bench")},
    "benchmark: scan": lambda: {
        "measured": _measured("bench ARGS=scan", _benchmark_rows("scan")),
        "rows": _scan(speeds, "wall_s", "cpu_s"),
    },
    "scan: share of each step": partial(_scan, shares_of_steps, "wall_s"),
    "scan: seconds": partial(_scan, costs_of_ways, "wall_s"),
    "scan: CPU seconds": partial(_scan, costs_of_ways, "cpu_s"),
}
