"""Two tables above the rows of the benchmark of reading logs, computed from these rows.

The first compares the fold with librdkafka and with the two targets. The second has the share of each step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from page_tables import table_line


class Target(NamedTuple):
    """How many times as fast as librdkafka the fold has to be."""

    shape: str
    times: float


TARGETS = (Target("1 MB batches", 8.0), Target("one-record batches", 20.0))
BESIDE = ("librdkafka, large queue", "librdkafka, default queue")
FOLD, LIMIT, IN_SPARK = "fold", "bare Fetch", "txnwatch's source in Spark"
# Each step, and the row that has this step and all steps before it. The bare socket exists without TLS only.
STEPS = {
    "socket": "bare socket",
    "broker": LIMIT,
    "walk": "header walk",
    "fold": FOLD,
    "Arrow": "fold to Arrow",
    "Spark": IN_SPARK,
}
SHARES = """
The next table divides the time of a whole Spark query, at the largest size, into steps. The share of a step is the time
of the row that has the step, minus the time of the row before it. *Broker* includes TLS. A share of *broker* below zero
means that the broker sent faster than the plain sender of the bare socket. Another share below zero means that the
difference of two rows is smaller than the noise, or that a step of the query ran in parallel.
""".strip()


def scan_summary(rows: list[dict[str, Any]]) -> list[str]:
    """The lines of both tables."""
    points = {row["name"]: row["points"][-1] for row in rows}
    lines = ["How many times as fast as librdkafka the fold is, at the largest size:", ""]
    heads = ["", "target", *(f"{way}: {of}" for way in BESIDE for of in ("time", "CPU time"))]
    lines += [table_line(heads), table_line(["---", *["---:"] * (len(heads) - 1)])]
    lines += [_target_line(target, points) for target in TARGETS]
    lines += ["", *(_limit(target, points) for target in TARGETS), "", SHARES, ""]
    heads = ["", "seconds", *STEPS]
    lines += [table_line(heads), table_line(["---", *["---:"] * (len(heads) - 1)])]
    shapes = sorted({name.rpartition(": ")[0] for name in points if name.endswith(f": {IN_SPARK}")})
    return [*lines, *(_shares(shape, points) for shape in shapes), ""]


def _target_line(target: Target, points: dict[str, Any]) -> str:
    ours = points[f"{target.shape}: {FOLD}"]
    cells = []
    for way in BESIDE:
        theirs = points[f"{target.shape}: {way}"]
        for column in ("wall_s", "cpu_s"):
            times = theirs[column] / ours[column]
            cells.append(f"{times:.1f}, {'reached' if times >= target.times else 'missed'}")
    return table_line([target.shape, f"{target.times:.0f}", *cells])


def _limit(target: Target, points: dict[str, Any]) -> str:
    """Whether the broker or the walk in Python takes most of the time, and what the broker allows at most."""
    fold_s, limit_s, theirs_s = (
        points[f"{target.shape}: {way}"]["wall_s"] for way in (FOLD, LIMIT, "librdkafka, large queue")
    )
    share, allowed = limit_s / fold_s, theirs_s / limit_s
    what = "the broker over the loopback interface" if share >= 0.5 else "the walk and the fold in Python"
    bound = f"so a time of 1/{target.times:.0f} is {'possible' if allowed >= target.times else 'impossible'} here"
    return (
        f"On {target.shape} the limit is {what}: the bare Fetch takes {share:.0%} of the time of the fold. The bare "
        f"Fetch is {allowed:.1f} times as fast as librdkafka with a large queue, {bound}."
    )


def _shares(shape: str, points: dict[str, Any]) -> str:
    whole_s = points[f"{shape}: {IN_SPARK}"]["wall_s"]
    before_s, cells = 0.0, []
    for way in STEPS.values():
        point = points.get(f"{shape}: {way}")
        if point is None:
            cells.append("-")
            continue
        share = round((point["wall_s"] - before_s) / whole_s, 2)
        cells.append(f"{share + 0.0:.0%}")  # -0.0 becomes 0.0
        before_s = point["wall_s"]
    return table_line([shape, f"{whole_s:.3g}", *cells])
