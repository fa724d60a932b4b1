"""The page of the soak, from docs/soak.json: the result of the last `make soak`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_ABOUT = """\
An hour of healthy applications under constant disturbances, with real hangs among them. `make soak` runs it and writes
this page. A disturbance follows eight seconds after the beginning of the one before, or when that one is complete, if
this takes longer. It is one of these:

- a broker is restarted, with a clean shutdown or with `kill -9`; the controller (there is only one) is always killed;
- the preferred leaders are elected, so coordinators move;
- a client dies with a transaction open, and its coordinator aborts the transaction after five seconds;
- Redis is killed and comes back three disturbances later, so after at least 24 seconds; after each second outage it is
  empty;
- a stray write makes a hang; it is ended by hand after 45 seconds.

Transactional ids and producer ids expire after two minutes, in Kafka and in the state of txnwatch (by default the state
of txnwatch keeps them for an hour). Retention deletes data after ten minutes, and the coordinators' log is compacted.

The run fails if a verdict is false. `hanging` is true for the hangs above. `stuck_prepare` and `late` are true if the
coordinators' log shows that the transaction was in that state for longer than the threshold: the test reads that log
with a consumer and a decoder that are not part of txnwatch. A true `stuck_prepare` is possible because markers wait
while the only controller restarts: no partition gets a new leader then. No other verdict is true. The run also fails if
a hang is not found within a minute, if an incident is still open at the end, if Redis does not agree with the events
topic within a minute after it came back, or if memory, disk or open descriptors grow by more than their bounds.
"""
_LOAD = """\
All servers, the applications and txnwatch shared the machine with other work, which makes every time longer."""


def soak_page(docs: Path, generated: str) -> str:
    """docs/soak.md."""
    found: dict[str, Any] = json.loads((docs / "soak.json").read_text())
    return "\n".join(
        [
            "# Soak",
            "",
            generated,
            _ABOUT,
            "## Result",
            "",
            f"{found['date']}, {found['minutes']:.0f} minutes, Kafka {found['kafka']}, {found['machine']}. {_LOAD}",
            "",
            *_problems(found["problems"]),
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in _figures(found).items()),
            "",
            "## Memory, disk and descriptors",
            "",
            *_growth(found),
            "![Memory, disk, descriptors and unproven partitions over time](soak.svg)",
            "",
            "Memory is the proportional set size (PSS) of the driver (Python), the JVM and the workers of Spark. Disk",
            "is the checkpoint and the local directories of Spark. A partition is unproven while its leader restarts.",
            "",
        ]
    )


def _problems(problems: list[str]) -> list[str]:
    if not problems:
        return ["The run has passed.", ""]
    return ["The run has **failed**:", "", *(f"- {problem}" for problem in problems), ""]


def _figures(found: dict[str, Any]) -> dict[str, str]:
    hangs, redis = found["hangs"], found["redis"]
    return {
        "applications": f"{found['applications']}, with {found['steps']:,} steps (a transaction, or a record without "
        f"one) and {found['application_restarts']} restarts after an error",
        **{name: str(count) for name, count in found["trouble"].items()},
        "false verdicts": str(len(found["false_verdicts"])),
        "hangs found within a minute": f"{hangs['made'] - hangs['missed']} of {hangs['made']}, "
        f"median {_seconds(hangs['median_s'])}, slowest {_seconds(hangs['slowest_s'])}",
        "Redis agrees with the topic after an outage": f"median {_seconds(redis['median_s'])}, slowest "
        f"{_seconds(redis['slowest_s'])} ({redis['flushed']} of {redis['outages']} times it came back empty)",
        "events": ", ".join(f"{count} {name}" for name, count in found["events"].items()),
        "micro-batches": f"{found['metrics']['batches_total']:,.0f}",
        "starts of the query": f"{found['metrics']['query_starts_total']:.0f}",
        "batches or records that could not be decoded": f"{found['metrics']['decode_failures_total']:.0f}",
    }


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _growth(found: dict[str, Any]) -> list[str]:
    if not found["growth"]:
        return ["The run was too short to compare its beginning with its end.", ""]
    units = {"memory": (1e6, " MB"), "disk": (1e6, " MB"), "descriptors": (1.0, "")}
    rows = []
    for name, one in found["growth"].items():
        size, unit = units[name]
        begin, end, most = (f"{one[key] / size:,.{0 if size == 1 else 1}f}{unit}" for key in ("begin", "end", "most"))
        change = one["end"] / one["begin"] - 1
        rows.append(f"| {name} | {begin} | {end} | {change:+.0%} | {most} |")
    return [
        "Medians of the second sixth and of the last sixth of the run; the first sixth warms up. A change within the",
        "bound does not prove that the values stay the same in a longer run. The plot shows all values over time.",
        "",
        "| | second sixth | last sixth | change | allowed at the end |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]
