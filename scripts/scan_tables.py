"""The tables of the benchmark of reading logs, at the largest size: beside librdkafka and its targets, and by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tables import table

# How many times as fast as librdkafka the fold has to be, by the shape of the data.
TARGETS = {"1 MB batches": 8.0, "one-record batches": 20.0}
LARGE_QUEUE = "librdkafka, large queue"
BESIDE = (LARGE_QUEUE, "librdkafka, default queue")
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
COSTS = {"time": "wall_s", "CPU time": "cpu_s"}
OTHERS = (*BESIDE, "kafka-consumer-perf-test", "kafka-python", "Spark's Kafka source")
Points = Mapping[str, Mapping[str, Any]]


def largest(rows: list[dict[str, Any]]) -> Points:
    """The figures of each row at its largest size, by `shape: way`."""
    return {row["name"]: row["points"][-1] for row in rows}


def times_as_fast(points: Points, shape: str, way: str, cost: str) -> float:
    """How many times as fast as another way the fold is."""
    return float(points[f"{shape}: {way}"][cost] / points[f"{shape}: {FOLD}"][cost])


def in_short(rows: list[dict[str, Any]]) -> str:
    """The fold beside librdkafka with a large queue, which never pauses."""
    points = largest(rows)
    found = {shape: [times_as_fast(points, shape, LARGE_QUEUE, cost) for cost in COSTS.values()] for shape in TARGETS}
    return "; ".join(
        f"{shape}: {time:.1f} times as fast, {cpu:.1f} times by CPU time" for shape, (time, cpu) in found.items()
    )


def targets(rows: list[dict[str, Any]]) -> str:
    """The fold beside librdkafka, and what limits it."""
    points = largest(rows)

    def compared(way: str, cost: str) -> Any:  # noqa: ANN401 - a column
        def cell(shape: str) -> str:
            times = times_as_fast(points, shape, way, cost)
            return f"{times:.1f}, {'reached' if times >= TARGETS[shape] else 'missed'}"

        return cell

    columns = {f"{way}: {of}": compared(way, cost) for way in BESIDE for of, cost in COSTS.items()}
    limits = "\n".join(_limit(shape, points) for shape in TARGETS)
    return f"{table({'': str, 'target': lambda shape: f'{TARGETS[shape]:.0f}', **columns}, TARGETS)}\n\n{limits}"


def _limit(shape: str, points: Points) -> str:
    """Whether the broker or the walk in Python takes most of the time, and what the broker allows at most."""
    fold_s, limit_s, theirs_s = (points[f"{shape}: {way}"]["wall_s"] for way in (FOLD, LIMIT, LARGE_QUEUE))
    share, allowed = limit_s / fold_s, theirs_s / limit_s
    what = "the broker over the loopback interface" if share >= 0.5 else "the walk and the fold in Python"
    bound = f"so a time of 1/{TARGETS[shape]:.0f} is {'possible' if allowed >= TARGETS[shape] else 'impossible'} here"
    return (
        f"On {shape} the limit is {what}: the bare Fetch takes {share:.0%} of the time of the fold. The bare "
        f"Fetch is {allowed:.1f} times as fast as librdkafka with a large queue, {bound}."
    )


def shares(rows: list[dict[str, Any]]) -> str:
    """The share of each step in the time of a whole Spark query."""
    points = largest(rows)
    shapes = sorted({name.rpartition(": ")[0] for name in points if name.endswith(f": {IN_SPARK}")})
    return table(
        {"": 0, "seconds": 1, **{step: place for place, step in enumerate(STEPS, 2)}}, map(_shares(points), shapes)
    )


def _shares(points: Points) -> Any:  # noqa: ANN401 - what makes the row of a shape
    def row(shape: str) -> list[object]:
        whole_s, before_s, cells = points[f"{shape}: {IN_SPARK}"]["wall_s"], 0.0, list[object]()
        for way in STEPS.values():
            point = points.get(f"{shape}: {way}")
            share = None if point is None else round((point["wall_s"] - before_s) / whole_s, 2)
            cells.append(None if share is None else f"{share + 0.0:.0%}")  # -0.0 becomes 0.0
            before_s = before_s if point is None else point["wall_s"]
        return [shape, whole_s, *cells]

    return row


def costs(rows: list[dict[str, Any]], cost: str) -> str:
    """The cost of every way that has it, for every shape."""
    points = largest(rows)
    shapes = sorted({name.rpartition(": ")[0] for name in points})

    def of(way: str) -> Any:  # noqa: ANN401 - a column
        return lambda shape: points.get(f"{shape}: {way}", {}).get(cost)

    columns = {way: of(way) for way in (*STEPS.values(), *OTHERS)}
    measured = {way: cell for way, cell in columns.items() if any(cell(shape) is not None for shape in shapes)}
    return table({"": str, **measured}, shapes)
