"""A short run of Spark whose JVM loads what a watch needs at its start, and then writes the archive of these classes.

Apart: it imports Spark, and spark_start.py must not do so before the JVM begins (decision 0032).

It needs no Kafka: its source has one barrier, and the operator is that of the watch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from txnwatch.state.model.facts import Barrier
from txnwatch.state.model.values import BarrierNumber, TimestampMs
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.streaming.job.failures import end_jvm
from txnwatch.streaming.job.jvm import StartingJvm, fits
from txnwatch.streaming.job.query import (
    findings_of,
    plan_without_daemons,
    release,
    run_tasks_with_daemons,
    spark_session,
)
from txnwatch.streaming.source.datasource import PACKED_DDL
from txnwatch.streaming.source.rows import packed_batch

_FORMAT: Final = "txnwatch-training"
_BUCKETS: Final = 2
_BATCHES: Final = 2


class TrainingReader(DataSourceStreamReader):  # type: ignore[misc]
    """One barrier for each micro-batch."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Before the first batch."""
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: N802 - Spark's name
        """One batch more, until all have run."""
        del limit
        return {"batch": min(start["batch"] + 1, _BATCHES)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One task."""
        del start
        return [InputPartition(end["batch"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The barrier, for every bucket."""
        number = BarrierNumber(partition.value)
        yield packed_batch([Barrier(number, TimestampMs(number), TimestampMs(number))], _BUCKETS)


class TrainingSource(DataSource):  # type: ignore[misc]
    """The source as Spark finds it; its rows are those of the source of a watch."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return _FORMAT

    def schema(self) -> str:
        """The columns, as DDL."""
        return PACKED_DDL

    def streamReader(self, schema: object) -> TrainingReader:  # noqa: N802 - Spark's name
        """The only reader."""
        del schema
        return TrainingReader()


def write_archive(jvm: StartingJvm, archive: Path) -> bool:
    """Runs a session in a JVM that writes the archive at its end; whether the archive is written and fits."""
    session = spark_session(jvm)
    try:
        properties = session.sparkContext._jvm.java.lang.System  # noqa: SLF001 - Spark has no public API for it
        java_home, class_path = (properties.getProperty(name) for name in ("java.home", "java.class.path"))
        _run(session, jvm.settings.checkpoint)
    finally:
        end_jvm(session)
    is_written = fits(archive, f"{java_home}/bin/java", class_path)
    if not is_written:
        archive.unlink(missing_ok=True)
    return is_written


def _run(session: SparkSession, checkpoint: str) -> None:
    session.dataSource.register(TrainingSource)
    plan_without_daemons(session)

    def collect(frame: DataFrame, number: int) -> None:
        del number
        run_tasks_with_daemons(session)
        frame.collect()
        release(frame)

    facts = session.readStream.format(_FORMAT).load()
    query = (
        findings_of(facts, DetectionPolicy())
        .writeStream.outputMode("update")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(collect)
        .start()
    )
    query.processAllAvailable()
    query.stop()
