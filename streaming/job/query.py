"""A session of Spark, and what runs in it: the query of a watch, and the short run that trains its JVM.

The graph of the query is one source, one stateful operator and one `foreachBatch`. `foreachBatch` must consume the
whole frame exactly once: two actions would run source and state twice, and without an action the query fails. The
output of the state is small, so it is collected and passed on as values.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import INPUT_CONVERTER, Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

from txnwatch.state.detection.open_transactions import LastOpenLists
from txnwatch.state.model.errors import QueryError, TxnwatchError
from txnwatch.state.model.facts import Barrier
from txnwatch.state.model.findings import Finding
from txnwatch.state.model.serializer import Serializer
from txnwatch.state.model.values import BarrierNumber, DurationMs, TimestampMs
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.streaming.job.failures import end_jvm
from txnwatch.streaming.job.jvm import StartingJvm, fits, search_path
from txnwatch.streaming.job.operator import OUTPUT_DDL, BucketProcessor, no_rows
from txnwatch.streaming.job.spark_conf import (
    check_checkpoint_place,
    file_system_settings,
    is_local,
    network_settings,
)
from txnwatch.streaming.source.datasource import FORMAT, PACKED_DDL, TransactionsDataSource

if TYPE_CHECKING:
    import pyarrow as pa

# The query.

QUERY_NAME = "txnwatch"
_FINDINGS = Serializer[Finding](Finding)  # as in bucket_step.py, which has what only tasks need


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Settings of the query.

    Attributes:
        checkpoint: directory or URI.
        trigger_ms: time between the starts of two micro-batches.
    """

    source_options: Mapping[str, str]
    checkpoint: str
    trigger_ms: DurationMs
    policy: DetectionPolicy


def start(
    session: SparkSession,
    settings: JobSettings,
    on_batch: Callable[[int, list[Finding]], None],
    is_stopping: Callable[[], bool] = lambda: False,
    errors: BatchErrors | None = None,
) -> StreamingQuery:
    """Starts the query; `on_batch(batch_id, emitted)` runs in the driver once for every micro-batch.

    While `is_stopping`, no micro-batch begins: the query fails before the first task of the next one. A micro-batch
    that runs at that moment is completed and committed. `errors` keeps what txnwatch raises in the driver.
    """
    kept_errors = BatchErrors() if errors is None else errors
    kept_errors.last = None
    remembered = LastOpenLists()
    plan_without_daemons(session)

    def collect(frame: DataFrame, batch_id: int) -> None:
        with kept_errors.kept():
            try:
                if is_stopping():
                    raise QueryError(f"txnwatch stops: micro-batch {batch_id} is left to the next start")
                run_tasks_with_daemons(session)  # the batch is planned, and none of its tasks has started
                emitted = [_FINDINGS.decode(row["finding"]) for row in frame.collect()]
            finally:
                release(frame)
            on_batch(batch_id, remembered.whole(emitted))

    facts = session.readStream.format(FORMAT).options(**settings.source_options, packed="true").load()
    query: StreamingQuery = (
        findings_of(facts, settings.policy)
        .writeStream.queryName(QUERY_NAME)
        .outputMode("update")
        .option("checkpointLocation", settings.checkpoint)
        .trigger(processingTime=f"{settings.trigger_ms} milliseconds")
        .foreachBatch(collect)
        .start()
    )
    return query


def findings_of(facts: DataFrame, policy: DetectionPolicy) -> DataFrame:
    """The findings of packed facts: one stateful operator, and a bucket for each key."""
    return facts.groupBy("bucket").transformWithState(
        statefulProcessor=BucketProcessor(policy),
        outputStructType=OUTPUT_DDL,
        outputMode="Update",
        timeMode="None",
    )


# The error with which txnwatch itself has ended a micro-batch, as an object.
#
# Spark reports an error of `foreachBatch` as the text of a Java exception. The code that decides about a restart runs
# in the same process, so it gets the error itself.


class BatchErrors:
    """Keeps the last error of a query.

    Attributes:
        last: None if txnwatch has raised none since the query was started.
    """

    def __init__(self) -> None:
        self.last: TxnwatchError | None = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keeps the error that leaves the block."""
        try:
            yield
        except TxnwatchError as exc:
            self.last = exc
            raise


# Lets the JVM forget a frame that is no longer used.
#
# Py4J keeps an object of the JVM until Python collects its proxy. A proxy with a called method is a reference cycle,
# and a full collection of a driver with many long-lived objects is rare. Until then the JVM keeps the plan of each
# frame and the broadcasts of its tasks, about 150 KB a micro-batch (docs/decisions/0023).


def release(frame: DataFrame) -> None:
    """Removes the JVM's reference to the frame, which cannot be used afterwards."""
    gateway: Any = frame.sparkSession.sparkContext._gateway  # noqa: SLF001 - Spark has no public API for it
    gateway.detach(frame._jdf)  # noqa: SLF001 - as above


# Makes the Python processes with which Spark plans a query exit after their answer.
#
# Planning calls Python, for example to create the data source and its reader. For each call Spark starts a daemon and a
# worker, and keeps them as long as the JVM runs: two idle processes and 90 MB. Without daemons, a call is one process
# that exits after its answer. Tasks need the daemon: it keeps their workers, and so their connections and the decoded
# state.
#
# Spark reads the setting whenever it starts a process, so it is changed between planning and the first task. Only local
# mode does so. On a cluster an executor copies the driver's settings when it registers, and keeps them. An executor
# that registers during planning would start a new worker for every task.

_USE_DAEMON = "spark.python.use.daemon"


def plan_without_daemons(session: SparkSession) -> None:
    """Disables daemons. Call it before a query is planned, while no task of this session runs."""
    _set(session, "false")


def run_tasks_with_daemons(session: SparkSession) -> None:
    """Enables daemons. Call it when a query is planned, before its first task."""
    _set(session, "true")


def _set(session: SparkSession, value: str) -> None:
    context = session.sparkContext._jsc.sc()  # noqa: SLF001 - the public conf is a copy
    if context.isLocal():
        context.conf().set(_USE_DAEMON, value)


# The session. What its start does beside the JVM is below.


def spark_session(jvm: StartingJvm) -> SparkSession:
    """The session in a JVM that starts, as soon as it answers.

    Raises:
        ConfigError: the master of Spark's own configuration has hosts that do not reach the checkpoint.
        PySparkRuntimeError: the JVM has ended.
    """
    pass_no_numpy()
    own, gateway = jvm.settings, jvm.gateway()
    whole = SparkConf(_jvm=gateway.jvm)  # also has spark-defaults.conf and the flags of spark-submit
    whole.setAll(list(own.values().items()))
    master = whole.get("spark.master", "") or ""
    check_checkpoint_place(own.checkpoint, master, is_shared=own.is_checkpoint_shared)
    for key, value in {**network_settings(master), **file_system_settings(own.checkpoint)}.items():
        if not whole.contains(key):
            whole.set(key, value)
    context = SparkContext(gateway=gateway, conf=whole, environment=search_path())
    context.setLogLevel("ERROR")
    with warming(context):
        session = SparkSession(context)
        if is_local(master):
            load_classes(session, own.scratch)
        import_module("pandas")  # PySpark needs it to plan the query; now Spark waits for the worker
    _look_for_no_sources(context)
    plan_without_daemons(session)
    TransactionsDataSource.register(session)  # starts Python if Spark looks for sources nevertheless
    run_tasks_with_daemons(session)
    return session


# Keeps PySpark from importing pandas and NumPy at its first call of the JVM.
#
# Before each call, two converters look whether an argument is a value of NumPy, and import both for that: half a second
# in which nothing else happens. txnwatch passes no such value. The converters are those of the whole process, so only
# the process of `txnwatch run` may remove them.


def pass_no_numpy() -> None:
    """Removes the two converters."""
    unused = NumpyScalarConverter | NumpyArrayConverter
    INPUT_CONVERTER[:] = [converter for converter in INPUT_CONVERTER if not isinstance(converter, unused)]


# Keeps Spark from looking for the data sources of other packages.
#
# When the first source is registered, Spark starts two Python processes, one after the other. The second one imports
# every module of the search path whose name begins with `pyspark_`, because it may have a source. The query uses only
# that of txnwatch.


def _look_for_no_sources(context: SparkContext) -> None:
    """Tells the JVM that it has looked and found none; another version of Spark that does not know this looks."""
    jvm: Any = context._jvm  # noqa: SLF001 - Spark has no public API for it
    with suppress(Py4JError, TypeError):  # Py4J takes a name that it does not know for a package
        manager = getattr(getattr(jvm.org.apache.spark.sql.execution.datasources, "DataSourceManager$"), "MODULE$")
        getattr(manager, "dataSourceBuilders_$eq")(jvm.scala.Option.apply(jvm.PythonUtils.toScalaMap({})))


# Starts the Python worker of the tasks while the JVM prepares the session.
#
# The first task would start Spark's daemon and a worker, and the worker would import the source and the operator. That
# takes a second of one core, and Spark waits for it. The tasks of the query get the same worker, because it has the
# same environment.


@contextmanager
def warming(context: SparkContext) -> Iterator[None]:
    """Runs a task that only imports, beside the block; an error of it is left to the first task of the query.

    Only in local mode: on a cluster, executors may register later.
    """
    if not is_local(context.master):
        yield
        return

    def work() -> None:
        with suppress(Exception):
            context.parallelize([0], 1).mapPartitions(no_rows).count()

    thread = threading.Thread(target=work, name="warm-up", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()  # before the daemons are disabled


# Loads the classes of a stateful streaming query while the start waits for Python processes.
#
# Until its first micro-batch a query loads thousands of classes of Spark, one after the other. A small query without
# Python loads most of them in another thread, on the core that would be idle.


def load_classes(session: SparkSession, scratch: Path) -> None:
    """Runs one micro-batch of a small stateful query in a thread; an error of it has no consequence."""

    def work() -> None:
        with suppress(Exception):
            rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
            counts = rows.groupBy("value").count()
            writer = counts.writeStream.format("noop").outputMode("update").trigger(once=True)
            writer.option("checkpointLocation", str(scratch / "warm-up")).start().awaitTermination()

    threading.Thread(target=work, name="warm-up", daemon=True).start()


# The cores that run tasks. Executors of a cluster register some seconds after the session has started.

_PATIENCE_S, _SETTLED_S, _POLL_S = 20.0, 2.0, 0.2


def cores_of(session: SparkSession) -> int:
    """The number of cores of the driver (local) or of the executors; waits until no further executor registers."""
    context: Any = session.sparkContext
    if is_local(context.master):
        return int(context.defaultParallelism)
    jvm_context: Any = context._jsc.sc()  # noqa: SLF001 - Spark has no public API for it
    begin = changed = time.monotonic()
    registered = 0
    while (now := time.monotonic()) - begin < _PATIENCE_S and (registered == 0 or now - changed < _SETTLED_S):
        executors = jvm_context.getExecutorMemoryStatus().size() - 1  # without the driver
        if executors != registered:
            registered, changed = executors, now
        time.sleep(_POLL_S)
    return int(context.defaultParallelism)


# The training: a short run whose JVM loads what a watch needs at its start, and then writes the archive of its classes.
#
# It needs no Kafka: its source has one barrier, and the operator is that of the watch.

_TRAINING_FORMAT: Final = "txnwatch-training"
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
        from txnwatch.streaming.source.rows import packed_batch  # noqa: PLC0415 - only a task needs Arrow

        number = BarrierNumber(partition.value)
        yield packed_batch([Barrier(number, TimestampMs(number), TimestampMs(number))], range(_BUCKETS))


class TrainingSource(DataSource):  # type: ignore[misc]
    """The source as Spark finds it; its rows are those of the source of a watch."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return _TRAINING_FORMAT

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
        _train(session, jvm.settings.checkpoint)
    finally:
        end_jvm(session)
    is_written = fits(archive, f"{java_home}/bin/java", class_path)
    if not is_written:
        archive.unlink(missing_ok=True)
    return is_written


def _train(session: SparkSession, checkpoint: str) -> None:
    session.dataSource.register(TrainingSource)
    plan_without_daemons(session)

    def collect(frame: DataFrame, number: int) -> None:
        del number
        run_tasks_with_daemons(session)
        frame.collect()
        release(frame)

    facts = session.readStream.format(_TRAINING_FORMAT).load()
    query = (
        findings_of(facts, DetectionPolicy())
        .writeStream.outputMode("update")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(collect)
        .start()
    )
    query.processAllAvailable()
    query.stop()
