"""A source that needs no Kafka: the facts of a batch follow from its number, so every attempt reads the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from txnwatch.spark_start import SparkStart
from txnwatch.state.model.facts import Barrier, Fact, ProducerSeen, TransactionSeen
from txnwatch.state.model.transaction import CoordinatorView, Marker, TransactionState
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.job.spark_conf import SessionSettings
from txnwatch.streaming.source.datasource import PACKED_DDL
from txnwatch.streaming.source.rows import packed_batch

FORMAT = "synthetic-facts"
TIMEOUT_MS = 900_000
BUCKETS = 16
TRIGGER_MS = 500


class Shape(NamedTuple):
    """Which producers a batch has.

    Attributes:
        times_known: how many batches it takes until the same producers change again.
        stray_every: each producer id that this divides writes without a transaction; 0: none does.
    """

    times_known: int = 20
    stray_every: int = 0


class SyntheticReader(DataSourceStreamReader):  # type: ignore[misc]
    """One batch for each trigger, without an end."""

    def __init__(self, options: dict[str, str]) -> None:
        self._changing, self._tasks = int(options["changing"]), int(options["tasks"])
        self._shape = Shape(*(int(options.get(name, usual)) for name, usual in Shape._field_defaults.items()))
        self._only_first = options["only_first"] == "true"

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        del limit
        return {"batch": start["batch"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        del start
        return [InputPartition((end["batch"], task)) for task in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        number, task = partition.value
        changing = self._changing if number == 1 or not self._only_first else 0
        facts = facts_of(number, changing, self._shape, task, self._tasks)
        yield packed_batch(facts, range(BUCKETS))


class SyntheticSource(DataSource):  # type: ignore[misc]
    """Options: `changing` producers, `tasks`, `only_first` batch, and those of `Shape`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return PACKED_DDL

    def streamReader(self, schema: object) -> SyntheticReader:
        del schema
        return SyntheticReader({name.lower(): value for name, value in self.options.items()})


def facts_of(number: int, changing: int, shape: Shape, task: int = 0, tasks: int = 1) -> list[Fact]:
    """The facts that one task reads in one batch."""
    facts: list[Fact] = [Barrier(number, number * TRIGGER_MS, number * TRIGGER_MS)] if task == 0 else []
    for step in range(task, changing, tasks):
        producer_id = (number * changing + step) % (shape.times_known * changing)
        transaction, seen = _facts_of_one(number, producer_id)
        is_stray = shape.stray_every > 0 and producer_id % shape.stray_every == 0
        facts.extend([seen] if is_stray else [transaction, seen])
    return facts


def _facts_of_one(number: int, producer_id: int) -> tuple[Fact, Fact]:
    """One producer in one batch: a transaction that ended and the next that began."""
    partition = TopicPartition("orders", producer_id % 12)
    start = number * 1000
    marker = Marker(start + 5, 0, commit=True, coordinator_epoch=0, timestamp_ms=number)
    state, held = TransactionState.ONGOING, frozenset({partition})
    view = CoordinatorView(f"id-{producer_id}", 0, number, state, 0, TIMEOUT_MS, number * TRIGGER_MS, 0, 0, held)
    seen = ProducerSeen(
        partition, "id", producer_id, start, start + 1000, start, 0, marker, marker, start + 9, 0, 0, start + 9, 0, 0
    )
    return TransactionSeen(producer_id, view), seen


def a_session(directory: Path, master: str, *, state_partitions: int) -> Any:
    """A Spark session that knows the synthetic source."""
    settings = SessionSettings(
        str(directory),
        master,
        directory,
        state_partitions=state_partitions,
        is_checkpoint_shared=True,  # the workers of a cluster are on this host
    )
    session = SparkStart(settings).session(directory / "spark.log")
    session.dataSource.register(SyntheticSource)
    return session
