"""Which stateful operator: 1,000 changing producers a batch through the same pure core in several shapes.

The facts come from a synthetic source, so that nothing but the operator is measured. Three shapes only apply the
facts, which reach them as rows (docs/decisions/0002). The last is the operator that txnwatch runs, which gets them
packed and also judges at the barrier (docs/decisions/0018). CPU is of the driver, the JVM and all workers.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from bench.idle import cpu_seconds
from support.row_facts import fact_of
from txnwatch.quiet import output_to
from txnwatch.state.codec import decode_producer, encode_producer
from txnwatch.state.facts import Barrier, Fact, ProducerSeen, TransactionSeen
from txnwatch.state.ids import TopicPartition
from txnwatch.state.machine import apply
from txnwatch.state.policy import DetectionPolicy
from txnwatch.state.transaction import CoordinatorView, Marker, ProducerState, TransactionState
from txnwatch.streaming.emitted_rows import OUTPUT_DDL
from txnwatch.streaming.job import spark_session
from txnwatch.streaming.operator import BucketProcessor
from txnwatch.streaming.packed_facts import PACKED_DDL, packed_batch
from txnwatch.streaming.rows import DDL, SCHEMA, fact_rows, record_batch

CHANGING = int(os.environ.get("TXNWATCH_CHANGING", "1000"))
KNOWN, BUCKETS = 20 * CHANGING, 16
SECONDS = 40
TRIGGER_MS = 500
_PRODUCER_ID = SCHEMA.get_field_index("producer_id")


class SyntheticReader(DataSourceStreamReader):  # type: ignore[misc]
    def __init__(self, *, is_packed: bool) -> None:
        self._is_packed = is_packed

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        del limit
        return {"batch": start["batch"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        del start
        return [InputPartition(end["batch"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        number = partition.value
        facts: list[Fact] = [Barrier(number, number * TRIGGER_MS, number * TRIGGER_MS)]
        for step in range(CHANGING):
            facts.extend(_facts(number, (number * CHANGING + step) % KNOWN))
        yield packed_batch(facts, BUCKETS) if self._is_packed else record_batch(fact_rows(facts, BUCKETS))


class SyntheticSource(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return "synthetic-facts"

    def schema(self) -> str:
        return PACKED_DDL if "packed" in self.options else DDL

    def streamReader(self, schema: object) -> SyntheticReader:
        del schema
        return SyntheticReader(is_packed="packed" in self.options)


def _facts(number: int, producer_id: int) -> list[Fact]:
    """One producer in one batch: a transaction that ended and the next that began."""
    partition = TopicPartition("orders", producer_id % 12)
    start = number * 1000
    marker = Marker(start + 5, 0, commit=True, coordinator_epoch=0, timestamp_ms=number)
    state, held = TransactionState.ONGOING, frozenset({partition})
    view = CoordinatorView(f"id-{producer_id}", 0, number, state, 0, 60_000, number * TRIGGER_MS, 0, 0, held)
    seen = ProducerSeen(
        partition, "id", producer_id, start, start + 1000, start, 0, marker, marker, start + 9, 0, 0, start + 9, 0, 0
    )
    return [TransactionSeen(producer_id, view), seen]


class KeyPerProducer(StatefulProcessor):  # type: ignore[misc]
    """The natural shape: one state key for each producer id."""

    def init(self, handle: Any) -> None:
        self._state = handle.getValueState("producer", "row STRING")

    def handleInputRows(self, key: tuple[int], rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        del timerValues
        stored = self._state.get()
        producer = decode_producer(key[0], stored[0]) if stored is not None else ProducerState(key[0])
        self._state.update((encode_producer(_applied(producer, (fact_of(row) for row in rows))),))
        return iter(())

    def close(self) -> None:
        pass


class PandasBuckets(StatefulProcessor):  # type: ignore[misc]
    """Buckets in the pandas flavour."""

    def init(self, handle: Any) -> None:
        self._map = handle.getMapState("producers", "producer_id BIGINT", "row STRING")

    def handleInputRows(
        self, key: tuple[int], rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        del key, timerValues
        _apply_to_map(
            self._map,
            (
                list(row.values())
                for frame in rows
                for row in pa.Table.from_pandas(frame, SCHEMA, preserve_index=False).to_pylist()
            ),
        )
        return iter(())

    def close(self) -> None:
        pass


class RowBuckets(StatefulProcessor):  # type: ignore[misc]
    """Buckets in the Row flavour."""

    def init(self, handle: Any) -> None:
        self._map = handle.getMapState("producers", "producer_id BIGINT", "row STRING")

    def handleInputRows(self, key: tuple[int], rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        del key, timerValues
        _apply_to_map(self._map, rows)
        return iter(())

    def close(self) -> None:
        pass


def _apply_to_map(producers: Any, rows: Iterable[Sequence[Any]]) -> None:
    facts: dict[int, list[Fact]] = {}
    for row in rows:
        if row[_PRODUCER_ID] is not None:
            facts.setdefault(row[_PRODUCER_ID], []).append(fact_of(row))
    for producer_id, told in facts.items():
        stored = producers.getValue((producer_id,))
        producer = decode_producer(producer_id, stored[0]) if stored is not None else ProducerState(producer_id)
        producers.updateValue((producer_id,), (encode_producer(_applied(producer, told)),))


def _applied(producer: ProducerState, facts: Any) -> ProducerState:
    for fact in facts:
        producer = apply(producer, fact, 1).producer
    return producer


def run(directory: Path) -> None:
    """Each shape twice, so that the JVM is warm for all of them."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with output_to(directory / "spark.log"):
        session = spark_session(str(directory), master="local[2,4]", state_partitions=1)
    session.dataSource.register(SyntheticSource)
    shapes = {
        "Row, a key per producer": (KeyPerProducer(), "producer_id", False),
        f"pandas, {BUCKETS} buckets": (PandasBuckets(), "bucket", True),
        f"Row, {BUCKETS} buckets": (RowBuckets(), "bucket", False),
        f"packed, {BUCKETS} buckets, judged": (BucketProcessor(DetectionPolicy()), "bucket", False),
    }
    print(f"{CHANGING} changing producers a batch, {KNOWN} known, trigger {TRIGGER_MS} ms")
    for warm in (False, True):
        for name, (processor, key, in_pandas) in shapes.items():
            checkpoint = directory / "checkpoint"
            shutil.rmtree(checkpoint, ignore_errors=True)
            total, add, cpu = _median_ms(session, processor, key, checkpoint, in_pandas=in_pandas)
            if warm:
                print(
                    f"  {name:27} micro-batch {total:4.0f} ms, of it source, state and sink {add:4.0f} ms; "
                    f"CPU {cpu:4.0f} ms",
                    flush=True,
                )
    session.stop()


def _median_ms(
    session: Any, processor: Any, key: str, checkpoint: Path, *, in_pandas: bool
) -> tuple[float, float, float]:
    source = session.readStream.format("synthetic-facts")
    is_packed = isinstance(processor, BucketProcessor)
    frame = (source.option("packed", "true") if is_packed else source).load()
    if key == "producer_id":
        frame = frame.filter("producer_id IS NOT NULL")
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
    time.sleep(SECONDS / 2)
    batches, spent_s = query.lastProgress["batchId"], sum(cpu_seconds(os.getpid()).values())
    time.sleep(SECONDS / 2)
    assert query.isActive, query.exception()
    batches, spent_s = query.lastProgress["batchId"] - batches, sum(cpu_seconds(os.getpid()).values()) - spent_s
    durations = [progress["durationMs"] for progress in query.recentProgress[-40:]]
    while query.status["isTriggerActive"]:
        time.sleep(0.01)
    query.stop()
    return (
        statistics.median(found["triggerExecution"] for found in durations),
        statistics.median(found["addBatch"] for found in durations),
        1000 * spent_s / max(1, batches),
    )
