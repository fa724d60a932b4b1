"""The tables that come from results: docs/*.json, which targets of the Makefile write. Most are in docs/measured.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from statistics import linear_regression
from typing import Any

import capacity
import scan_tables
from tables import Key, code, code_of, grouped, table, tables

DOCS = Path(__file__).resolve().parent.parent / "docs"
Row = dict[str, Any]


@cache
def results(name: str) -> Any:  # noqa: ANN401 - what a file has
    """The content of one file of results."""
    return json.loads((DOCS / f"{name}.json").read_text())


def _date(row: Row) -> str:
    return str(row["date"] if "date" in row else row["measured"])


def _measured(command: str, rows: Iterable[Row], *parts: str) -> str:
    """What was found, below how, when and where it was measured; each date and machine once."""
    places = sorted({f"{_date(row)}, {row['machine']}" for row in rows})
    return "\n\n".join([f"`{command}`: {'; '.join(places)}.", *parts])


# The faults and the disturbances


def _false_verdicts(rows: list[Row]) -> str:
    wrong = [text for row in rows for text in row["false_verdicts"]]
    versions = " and ".join(sorted({row["version"] for row in rows}, reverse=True))
    found = f"{len(wrong)}: {'; '.join(wrong)}" if wrong else "none"
    return f"Kafka {versions}; {len(rows)} runs. False verdicts: {found}."


def _faults() -> str:
    newest_first = sorted(results("faults").values(), key=lambda row: row["version"], reverse=True)
    rows = sorted(newest_first, key=lambda row: (row["row"], row["name"]))
    same = grouped(rows, lambda row: (row["row"], row["name"], row["truth"]))
    columns: dict[str, Key] = {
        "": lambda runs: runs[0]["row"],
        "fault": lambda runs: runs[0]["fault"],
        "Kafka": lambda runs: ", ".join(run["version"] for run in runs),
        "what happened": lambda runs: runs[0]["truth"],
        "txnwatch": lambda runs: _each(runs, _verdict),
        "after": lambda runs: _each(runs, lambda run: run["verdict"] and f"{run['seconds']:.1f} s"),
        "Kafka's find-hanging": lambda runs: _each(runs, lambda run: _answers(run, "find_hanging")),
        "kafka-python": lambda runs: _each(runs, lambda run: _answers(run, "kafka_python")),
        "gauge": lambda runs: _each(runs, lambda run: run["others"].get("gauge")),
    }
    return _measured("make faults", rows, _false_verdicts(rows), table(columns, same.values()))


def _verdict(run: Row) -> str:
    if run["verdict"] is None:
        return "no verdict, as expected"
    reason = f" / {code(run['reason'])}" if run["reason"] else ""
    outcome = f", expected: {run['expected_outcome']}" if run["expected_outcome"] in {"commit", "abort"} else ""
    return f"{code(run['verdict'])}{reason}{outcome}{'' if run['is_named'] else ', not named'}"


def _answers(run: Row, tool: str) -> str:
    at_default, at_0 = (run["others"].get(name, {"answer": "not run"})["answer"] for name in (tool, f"{tool}_at_0"))
    return f"{at_default}; at 0: {at_0}".replace("found", "**found**")


def _each(runs: list[Row], cell: Callable[[Row], object]) -> object:
    """The value of each version of Kafka; only once if it is the same for all."""
    values = {run["version"]: cell(run) for run in runs}
    if len(set(values.values())) == 1:
        return cell(runs[0])
    return "; ".join(f"{value} ({version})" for version, value in values.items())


def _disturbances() -> str:
    rows = results("disturbances")
    columns: dict[str, Key] = {
        "disturbance": "fault",
        "for": "{lasts_s:.0f} s",
        "what you see": "shown",
        "the hang": lambda row: (
            f"found meanwhile, after {row['found_s']:.1f} s" if row["is_found_meanwhile"] else "found afterwards"
        ),
        "right again": "{right_after_s:.1f} s",
        "next hang": "{found_afterwards_s:.1f} s",
    }
    return _measured("make faults", rows, _false_verdicts(rows), table(columns, rows))


# The soak, the fuzzer and the other runs


def _soak() -> str:
    found = results("soak")
    figures: dict[str, object] = {
        "duration": "{minutes:.0f} minutes, Kafka {kafka}",
        "applications": "{applications}, with {steps:,} steps (a transaction, or a record without one) "
        "and {application_restarts} restarts after an error",
        **found["trouble"],
        "false verdicts": len(found["false_verdicts"]),
        "hangs that were not found within a minute": "{hangs[missed]} of {hangs[made]}",
        "time until a hang was found": _times_of(found["hangs"]),
        "outages of Redis after which it was empty": "{redis[flushed]} of {redis[outages]}",
        "time until Redis agreed with the topic after an outage": _times_of(found["redis"]),
        "events": ", ".join(f"{count} {name}" for name, count in found["events"].items()),
        "micro-batches": "{metrics[batches_total]:,.0f}",
        "starts of the query": "{metrics[query_starts_total]:.0f}",
        "batches or records that could not be decoded": "{metrics[decode_failures_total]:.0f}",
    }
    rows = [(name, figure.format_map(found) if isinstance(figure, str) else figure) for name, figure in figures.items()]
    failed = "\n".join(["The run has **failed**:", "", *(f"- {problem}" for problem in found["problems"])])
    verdict = failed if found["problems"] else "The run has passed."
    return _measured("make soak", [found], verdict, table({"": 0, "result": 1}, rows))


def _times_of(found: Row) -> str | None:
    return None if found["median_s"] is None else "median {median_s:.1f} s, slowest {slowest_s:.1f} s".format_map(found)


def _growth() -> str:
    rows = results("soak")["growth"].items()
    if not rows:
        return "The run was too short to compare its beginning with its end."

    def size(key: str) -> Key:
        return lambda row: f"{row[1][key] / 1e6:,.1f} MB" if row[0] in {"memory", "disk"} else f"{row[1][key]:,.0f}"

    return table(
        {
            "": 0,
            "second sixth": size("begin"),
            "last sixth": size("end"),
            "change": lambda row: _change(row[1]),
            "allowed at the end": size("most"),
        },
        rows,
    )


def _change(found: Row) -> str:
    return f"{found['end'] / found['begin'] - 1:+.0%}"


def _fuzz() -> str:
    found = results("fuzz")
    rows = found["targets"]
    runs, minutes = sum(row["runs"] for row in rows), sum(row["seconds"] for row in rows) / 60
    failed = sum(row["failure"] is not None for row in rows)
    summary = (
        f"Atheris {found['atheris']}, {minutes:.0f} minutes (the sum over all decoders), {runs:,} inputs: "
        f"{failed} of {len(rows)} decoders failed."
    )
    columns: dict[str, Key] = {
        "bytes": "reads",
        "typed errors": lambda row: ", ".join(map(code, row["typed"])) or "none: errors are part of the result",
        "inputs tried": "runs",
        "failure": lambda row: code(row["failure"].splitlines()[0][:80]) if row["failure"] else "none",
    }
    return _measured("make fuzz", rows, summary, table(columns, rows))


def _times(name: str, what: str, rows: Iterable[tuple[str, float]]) -> str:
    columns: dict[str, Key] = {what: 0, "time": lambda row: f"{row[1]:.1f} s"}
    return _measured(f"make {name}", results(name).values(), table(columns, rows))


def _stop_times() -> str:
    times = {situation: row["s"] for situation, row in results("stop-times").items()}
    return _times("stop-times", "situation", sorted(times.items(), key=lambda one: -one[1]))


def _cluster_times() -> str:
    rows = sorted(results("cluster-times").items())
    return _times("cluster-times", "step", [(step.partition(". ")[2], row["s"]) for step, row in rows])


def _ways() -> str:
    found = results("ways-in")
    names = ("doctor", "find-hanging", "run", "abort", "secrets")
    rows = [{"method": way, **dict.fromkeys(names, "no result"), **row} for way, row in found.items()]
    columns = {"method": "method", **{code(name): name for name in names[:-1]}, "secrets": "secrets"}
    return _measured("make long", found.values(), table(columns, rows))


def _bad_inputs() -> str:
    rows = list(results("bad-inputs").values())
    columns: dict[str, Key] = {"input": "given", "message": code_of("said"), "exit code": "code"}
    parts = grouped(sorted(rows, key=lambda row: row["part"]), "part")
    return _measured("make bad-inputs", rows, f"{len(rows)} inputs.", tables(columns, parts))


# The benchmarks

COSTS = {"wall_s": "seconds", "cpu_s": "CPU seconds"}


def _rows_of(bench: str) -> list[Row]:
    return [row for _, row in sorted(results("benchmarks").items()) if row["bench"] == bench]


def benchmark(rows: list[Row]) -> str:
    """The rows of a benchmark, a line for each size. Rows with the same columns are one table."""
    points = [line for row in rows for line in _lines(row)]
    same = grouped(points, tuple)
    return "\n\n".join(
        [*(table({title: title for title in titles}, lines) for titles, lines in same.items()), *_growths(rows)]
    )


def _lines(row: Row) -> Iterable[Row]:
    """A line for each size; a column is shown if one size has a value."""
    slope = "" if row["slope"] is None else f" (slope {row['slope']:.2f})"
    lines = [
        {
            **{title: point[cost] for cost, title in COSTS.items()},
            f"x {row['beside']}": point["ratio"],
            **{
                name: point["figures"].get(name)
                for name in sorted({name for one in row["points"] for name in one["figures"]})
            },
        }
        for point in row["points"]
    ]
    shown = [title for title in lines[0] if any(line[title] is not None for line in lines)]
    for point, line in zip(row["points"], lines, strict=True):
        yield {
            "": f"{row['name']}{slope}",
            row["sizes_are"]: int(point["size"]),
            **{title: line[title] for title in shown},
        }


def _growths(rows: list[Row]) -> Iterable[str]:
    """How fast memory grew, if the sizes are minutes."""
    for row in rows:
        points = row["points"]
        names = [
            name for name in points[0]["figures"] if "MB" in name and all(name in one["figures"] for one in points)
        ]
        hours = [point["size"] / 60 for point in points]
        if row["sizes_are"] == "minutes" and len(hours) > 1 and names:
            grown = {name: linear_regression(hours, [one["figures"][name] for one in points]).slope for name in names}
            listed = ", ".join(f"{name} {an_hour:+.0f}" for name, an_hour in grown.items())
            yield f"Growth an hour, by least squares over all lines: {listed}."


def _benchmark(bench: str, made: Callable[[list[Row]], str] = benchmark) -> str:
    rows = _rows_of(bench)
    return _measured(f"make bench ARGS={bench}", rows, made(rows))


# The ten figures at the top: of benchmarks, with their row and a text about its points, and of other runs.

_OF_BENCHMARKS = (
    (
        "time from a hang to its event, trigger 500 ms",
        "latency/the demo's load, trigger 500 ms",
        "{0[wall_s]:.2f} s (median), {0[figures][99 % within s]:.2f} s (99 %)",
    ),
    (
        "the same, while each of many producers commits a transaction every second",
        "changing/each transaction ends and the next one begins in every round, trigger 500 ms",
        "{1[wall_s]:.1f} s with {1[size]:,} producers, {2[wall_s]:.1f} s with {2[size]:,}",
    ),
    (
        "CPU on an idle cluster",
        "idle/nothing is written",
        "{0[figures][cores]:.2f} cores with {0[size]:,} partitions, {2[figures][cores]:.2f} with {2[size]:,}",
    ),
    (
        "memory on an idle cluster, all processes (PSS)",
        "idle/nothing is written",
        "{0[figures][PSS MB]:,.0f} MB with {0[size]:,} partitions, {2[figures][PSS MB]:,.0f} MB with {2[size]:,}",
    ),
    (
        "first start with a million transactional ids, until the first verdict",
        "million/start to first verdict",
        "{2[wall_s]:.1f} s, at most {2[figures][peak PSS MB]:,.0f} MB",
    ),
)
_TAKEOVER = "5. start of another driver after `kill -9` of the driver, until `ready`"


def _headlines() -> str:
    soak, stops, takeover = results("soak"), results("stop-times").values(), results("cluster-times")[_TAKEOVER]
    faults = (*results("faults").values(), *results("disturbances"))
    wrong, longest = sum(len(row["false_verdicts"]) for row in faults), max(row["s"] for row in stops)
    soaked = "{minutes:.0f} minutes: {hangs[missed]} of {hangs[made]} hangs missed".format_map(soak)
    grown = "".join(f", memory {_change(one)}" for name, one in soak["growth"].items() if name == "memory")
    rows: list[tuple[str, str, str, Row]] = [
        *(
            (what, text.format(*row["points"]), f"make bench ARGS={row['bench']}", row)
            for what, name, text in _OF_BENCHMARKS
            for row in [results("benchmarks")[name]]
        ),
        ("false verdicts under faults and disturbances", f"{wrong} in {len(faults)} runs", "make faults", faults[0]),
        (
            "healthy applications under constant disturbances",
            f"{soaked}, {len(soak['false_verdicts'])} false verdicts{grown}",
            "make soak",
            soak,
        ),
        (
            "a stop, from SIGTERM to the end of the process",
            f"at most {longest:.1f} s, in {len(stops)} situations",
            "make stop-times",
            next(iter(stops)),
        ),
        (
            "takeover by another driver after `kill -9` of the driver of a Spark cluster, until `ready`",
            f"{takeover['s']:.0f} s",
            "make cluster-times",
            takeover,
        ),
        (
            "reading logs, beside librdkafka with a large queue",
            scan_tables.in_short(_rows_of("scan")),
            "make bench ARGS=scan",
            _rows_of("scan")[0],
        ),
    ]
    columns: dict[str, Key] = {"": 0, "result": 1, "command": code_of(2), "measured": lambda row: _date(row[3])}
    return table(columns, rows)


BLOCKS: dict[str, Callable[[], str]] = {
    "ten figures": _headlines,
    "faults": _faults,
    "disturbances": _disturbances,
    "soak": _soak,
    "growth in the soak": _growth,
    "fuzzing": _fuzz,
    "authentication": _ways,
    "times of a stop": _stop_times,
    "times on a Spark cluster": _cluster_times,
    "bad inputs": _bad_inputs,
    "cost of single operations": lambda: capacity.cost_table(results("benchmarks")),
    "resources for a cluster": lambda: capacity.resource_table(results("benchmarks")),
    **{f"benchmark: {bench}": partial(_benchmark, bench) for bench in grouped(results("benchmarks").values(), "bench")},
    "benchmark: scan": partial(_benchmark, "scan", scan_tables.targets),
    "scan: share of each step": lambda: scan_tables.shares(_rows_of("scan")),
    "scan: seconds": lambda: scan_tables.costs(_rows_of("scan"), "wall_s"),
    "scan: CPU seconds": lambda: scan_tables.costs(_rows_of("scan"), "cpu_s"),
}
