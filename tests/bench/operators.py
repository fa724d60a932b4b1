"""Which stateful operator: changing producers in each batch through the same pure core in several shapes.

The facts come from a synthetic source, so that nothing but the operator is measured. Three shapes only apply the
facts, which reach them as rows (docs/decisions/0002). The last is the operator that txnwatch runs, which gets them
packed and also judges at the barrier (docs/decisions/0018). The last row is the same operator while nothing changes and
transactions stay open. CPU is of the driver, the JVM and all workers.
"""

from __future__ import annotations

import os
import statistics
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from bench import results
from bench.results import Point
from bench.usage import usage_of
from support.synthetic_source import BUCKETS, FACT, FORMAT, TRIGGER_MS, a_session
from txnwatch.state.detection.view import apply
from txnwatch.state.model.facts import Fact
from txnwatch.state.model.transaction import ProducerState
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.state.store.bucket_log import decode_producer, encode_producer
from txnwatch.streaming.job.operator import OUTPUT_DDL, BucketProcessor

SIZES, OF_EACH_SHAPE = (100, 1_000, 10_000), 1_000
OPEN = (1_000, 10_000, 100_000)
SECONDS, START_S = 20, 120.0
ROUNDS = 3


class KeyPerProducer(StatefulProcessor):  # type: ignore[misc]
    """The natural shape: one state key for each producer id."""

    def init(self, handle: Any) -> None:
        self._state = handle.getValueState("producer", "row BINARY")

    def handleInputRows(self, key: tuple[int], rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        del timerValues
        stored = self._state.get()
        producer = decode_producer(bytes(stored[0])) if stored is not None else ProducerState(key[0])
        self._state.update((encode_producer(_applied(producer, (FACT.decode(row[-1]) for row in rows))),))
        return iter(())

    def close(self) -> None:
        pass


class PandasBuckets(StatefulProcessor):  # type: ignore[misc]
    """Buckets in the pandas flavour."""

    def init(self, handle: Any) -> None:
        self._map = handle.getMapState("producers", "producer_id BIGINT", "row BINARY")

    def handleInputRows(
        self, key: tuple[int], rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        del key, timerValues
        _apply_to_map(self._map, (row for frame in rows for row in frame.itertuples(index=False)))
        return iter(())

    def close(self) -> None:
        pass


class RowBuckets(StatefulProcessor):  # type: ignore[misc]
    """Buckets in the Row flavour."""

    def init(self, handle: Any) -> None:
        self._map = handle.getMapState("producers", "producer_id BIGINT", "row BINARY")

    def handleInputRows(self, key: tuple[int], rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        del key, timerValues
        _apply_to_map(self._map, rows)
        return iter(())

    def close(self) -> None:
        pass


def _apply_to_map(producers: Any, rows: Iterable[Sequence[Any]]) -> None:
    facts: dict[int, list[Fact]] = {}
    for _, producer_id, fact in rows:
        facts.setdefault(producer_id, []).append(FACT.decode(fact))
    for producer_id, of_producer in facts.items():
        stored = producers.getValue((producer_id,))
        producer = decode_producer(bytes(stored[0])) if stored is not None else ProducerState(producer_id)
        producers.updateValue((producer_id,), (encode_producer(_applied(producer, of_producer)),))


def _applied(producer: ProducerState, facts: Any) -> ProducerState:
    for fact in facts:
        producer = apply(producer, fact, 1).producer
    return producer


SHAPES: dict[str, tuple[StatefulProcessor, str, bool]] = {
    "Row, a key per producer": (KeyPerProducer(), "producer_id", False),
    f"pandas, {BUCKETS} buckets": (PandasBuckets(), "bucket", True),
    f"Row, {BUCKETS} buckets": (RowBuckets(), "bucket", False),
}
OURS = f"packed, {BUCKETS} buckets, judged"


def run(directory: Path, rows: list[results.Row]) -> None:
    """Each shape once before it counts, so that the JVM is warm for all of them."""
    session = a_session(directory, "local[2,4]", state_partitions=1)
    measured = {}
    for name, (processor, key, in_pandas) in SHAPES.items():
        for _ in range(2):
            measured[name] = measure(session, directory, processor, OF_EACH_SHAPE, key=key, in_pandas=in_pandas)
    plain = measured["Row, a key per producer"]
    for name, found in measured.items():
        rows.append(results.Row("operators", name, "producers that change", "a key per producer", [found.point(plain)]))
    ours = [
        [measure(session, directory, BucketProcessor(DetectionPolicy()), size) for _ in range(2)][1] for size in SIZES
    ]
    points = [found.point(plain if found.size == OF_EACH_SHAPE else None) for found in ours]
    rows.append(results.Row("operators", OURS, "producers that change", "a key per producer", points))
    none, *idle = _nothing_changes(session, directory)
    points = [found.point(none) for found in idle]
    rows.append(results.Row("operators", "nothing changes", "open transactions", "none open", points))
    session.stop()


def _nothing_changes(session: Any, directory: Path) -> list[Measured]:
    """For no open transactions and each of `OPEN`: medians of several rounds, since most of a batch is Spark's own."""
    sizes = (0, *OPEN)
    rounds = [
        [measure(session, directory, BucketProcessor(DetectionPolicy()), size, only_first=True) for size in sizes]
        for _ in range(ROUNDS)
    ]
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
    processor: StatefulProcessor,
    changing: int,
    *,
    key: str = "bucket",
    in_pandas: bool = False,
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
    is_packed = isinstance(processor, BucketProcessor)
    frame = (source.option("packed", "true") if is_packed else source).load()
    grouped = frame.groupBy(key)
    transform = grouped.transformWithStateInPandas if in_pandas else grouped.transformWithState
    query = (
        transform(statefulProcessor=processor, outputStructType=OUTPUT_DDL, outputMode="Update", timeMode="None")
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
