"""What a micro-batch of the stateful operator costs in Spark, by how many producers change and how many are open.

The facts come from a synthetic source, so that nothing but the operator is measured (docs/decisions/0002, 0018). The
last row is the operator while nothing changes and transactions stay open. CPU is of the driver, the JVM and workers.
"""

from __future__ import annotations

import os
import statistics
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench import results
from bench.results import Point
from bench.usage import usage_of
from support.synthetic_source import BUCKETS, FORMAT, TRIGGER_MS, a_session
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.streaming.job.operator import OUTPUT_DDL, BucketProcessor

SIZES = (100, 1_000, 10_000)
OPEN = (1_000, 10_000, 100_000)
SECONDS, START_S = 20, 120.0
ROUNDS = 3


OURS = f"packed, {BUCKETS} buckets, judged"


def run(directory: Path, rows: list[results.Row]) -> None:
    """Each size once before it counts, so that the JVM is warm for it."""
    session = a_session(directory, "local[2,4]", state_partitions=1)
    points = [[measure(session, directory, size) for _ in range(2)][1].point() for size in SIZES]
    rows.append(results.Row("operators", OURS, "producers that change", points=points))
    none, *idle = _nothing_changes(session, directory)
    points = [found.point(none) for found in idle]
    rows.append(results.Row("operators", "nothing changes", "open transactions", "none open", points))
    session.stop()


def _nothing_changes(session: Any, directory: Path) -> list[Measured]:
    """For no open transactions and each of `OPEN`: medians of several rounds, since most of a batch is Spark's own."""
    sizes = (0, *OPEN)
    rounds = [[measure(session, directory, size, only_first=True) for size in sizes] for _ in range(ROUNDS)]
    return [_median(of_a_size) for of_a_size in zip(*rounds, strict=True)]


def _median(measured: Sequence[Measured]) -> Measured:
    return Measured(*(statistics.median(column) for column in zip(*measured, strict=True)))


class Measured(NamedTuple):
    """Of a micro-batch: medians of all of it and of source, state and sink together, and the CPU of all processes."""

    size: int
    total_s: float
    add_s: float
    cpu_s: float

    def point(self, beside: Measured | None = None) -> Point:
        ratio = self.cpu_s / beside.cpu_s if beside is not None else None
        return Point(self.size, self.total_s, self.cpu_s, ratio, {"s of source, state and sink": self.add_s})


def measure(
    session: Any,
    directory: Path,
    changing: int,
    *,
    tasks: int = 1,
    only_first: bool = False,
    root: int | None = None,
) -> Measured:
    """One query for a while; the second half of it counts. CPU is of a process (this one) and its descendants."""
    root = os.getpid() if root is None else root
    # A directory of its own: Spark's maintenance may still write to that of the query before.
    checkpoint = directory / f"checkpoint-{uuid.uuid4()}"
    source = session.readStream.format(FORMAT).option("changing", str(changing)).option("tasks", str(tasks))
    source = source.option("only_first", str(only_first).lower())
    processor = BucketProcessor(DetectionPolicy())
    query = (
        source.load()
        .groupBy("bucket")
        .transformWithState(
            statefulProcessor=processor, outputStructType=OUTPUT_DDL, outputMode="Update", timeMode="None"
        )
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=f"{TRIGGER_MS} milliseconds")
        .foreachBatch(lambda batch, _: batch.collect())
        .start()
    )
    begin = time.monotonic()
    while query.lastProgress is None:  # executors take their time to start
        assert query.isActive, query.exception()
        assert time.monotonic() < begin + START_S, "no micro-batch has gone through"
        time.sleep(0.1)
    time.sleep(SECONDS / 2)
    first = query.lastProgress["batchId"]
    with usage_of(root) as usage:
        time.sleep(SECONDS / 2)
    assert query.isActive, query.exception()
    batches = query.lastProgress["batchId"] - first
    durations = [progress["durationMs"] for progress in query.recentProgress if progress["batchId"] > 0]
    durations = durations[-max(1, batches) :]
    until = time.monotonic() + SECONDS
    while query.status["isTriggerActive"] and time.monotonic() < until:
        time.sleep(0.01)
    query.stop()
    return Measured(
        changing,
        statistics.median(found["triggerExecution"] for found in durations) / 1000,
        statistics.median(found["addBatch"] for found in durations) / 1000,
        usage.cpu_s / max(1, batches),
    )
