"""The query graph: one source, one stateful operator, one foreachBatch.

`foreachBatch` must consume the whole frame, once: two actions would run source and state twice, none fails the
query. What the state says is little, so it is collected and handed on as values.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from txnwatch.state.detection.open_transactions import Remembered
from txnwatch.state.model.findings import Emitted
from txnwatch.state.model.policy import DetectionPolicy
from txnwatch.streaming.job.checkpoint import local_directory
from txnwatch.streaming.job.operator import BucketProcessor
from txnwatch.streaming.job.output_rows import OUTPUT_DDL, decode_emitted
from txnwatch.streaming.job.planning_processes import plan_without_daemons, run_tasks_with_daemons
from txnwatch.streaming.source.datasource import FORMAT, TransactionsDataSource

QUERY_NAME = "txnwatch"

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_LOCAL_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_JAVA_OPTIONS = (
    # What a worker's long traceback needs: Spark takes it apart with a recursive regular expression, and a stack
    # that overflows there ends the query's thread without ending the query.
    "-Xss16m",
    # The JVM plans small batches and moves few bytes. The second compiler and the parallel collectors took most of its
    # CPU in the first minutes, and gave nothing back.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    # Its first heap is 1/64 of the machine's memory: all of that is touched before the first collection, and kept.
    "-Xms64m",
    "-XX:MinHeapFreeRatio=20",
    "-XX:MaxHeapFreeRatio=40",
)


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What the query needs to know.

    Attributes:
        checkpoint: directory or URI.
        trigger_ms: pause between the starts of two micro-batches.
    """

    source_options: Mapping[str, str]
    checkpoint: str
    trigger_ms: int
    policy: DetectionPolicy


def spark_session(checkpoint: str, *, master: str | None, state_partitions: int) -> SparkSession:
    """The session with everything set that a latency of milliseconds needs (docs/decisions/0002).

    `master` None leaves it to spark-submit; `state_partitions` is fixed by the checkpoint. On a local path a faster
    file manager is used, which does not stop a second driver from writing to the same checkpoint: lock it.
    """
    conf = SparkConf().setAppName("txnwatch")
    if master is not None:
        conf.setMaster(master)
    settings = {
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.shuffle.partitions": str(state_partitions),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": " ".join(_JAVA_OPTIONS),
        "spark.ui.showConsoleProgress": "false",
    }
    if local_directory(checkpoint) is not None:
        settings["spark.sql.streaming.checkpointFileManagerClass"] = _LOCAL_FILES
    for key, value in settings.items():
        conf.set(key, value)
    # glibc gives each of the JVM's many threads a heap of its own, which keeps what it once had.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    # Workers are started with -m: a file in the current directory that is named like a module would stop them.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    # A session of its own keeps Ctrl-C and a group's SIGTERM from the JVM and its workers, so that the query can be
    # stopped between batches. The JVM still ends with us: it watches its standard input.
    gateway = launch_gateway(conf, popen_kwargs={"start_new_session": True})
    session = SparkSession(SparkContext(gateway=gateway, conf=conf))
    session.sparkContext.setLogLevel("ERROR")
    plan_without_daemons(session)
    session.dataSource.register(TransactionsDataSource)  # looks up which other sources there are
    run_tasks_with_daemons(session)
    return session


def is_executing(session: SparkSession) -> bool:
    """Whether the query has a thread; one that was ended by an Error of the JVM's leaves the query active for ever."""
    assert session.sparkContext._jvm is not None  # noqa: SLF001 - Spark tells it nowhere else
    threads = session.sparkContext._jvm.java.lang.Thread.getAllStackTraces().keySet()  # noqa: SLF001
    return any(thread.getName().startswith(f"stream execution thread for {QUERY_NAME}") for thread in threads)


def start(
    session: SparkSession, settings: JobSettings, on_batch: Callable[[int, list[Emitted]], None]
) -> StreamingQuery:
    """Starts the query; `on_batch(batch_id, emitted)` runs in the driver once for every micro-batch."""
    remembered = Remembered()
    plan_without_daemons(session)

    def collect(frame: DataFrame, batch_id: int) -> None:
        run_tasks_with_daemons(session)  # the batch is planned here, and none of its tasks has begun
        emitted = [decode_emitted(row["kind"], row["payload"]) for row in frame.collect()]
        on_batch(batch_id, remembered.whole(emitted))

    facts = session.readStream.format(FORMAT).options(**settings.source_options, packed="true").load()
    said = facts.groupBy("bucket").transformWithState(
        statefulProcessor=BucketProcessor(settings.policy),
        outputStructType=OUTPUT_DDL,
        outputMode="Update",
        timeMode="None",
    )
    query: StreamingQuery = (
        said.writeStream.queryName(QUERY_NAME)
        .outputMode("update")
        .option("checkpointLocation", settings.checkpoint)
        .trigger(processingTime=f"{settings.trigger_ms} milliseconds")
        .foreachBatch(collect)
        .start()
    )
    return query
