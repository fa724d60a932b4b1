"""The query graph: one source, one stateful operator, one foreachBatch.

`foreachBatch` must consume the whole frame exactly once: two actions would run source and state twice, and without an
action the query fails. The output of the state is small, so it is collected and passed on as values.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from txnwatch.state.detection.open_transactions import LastOpenLists
from txnwatch.state.model.errors import QueryError, TxnwatchError
from txnwatch.state.model.findings import Finding
from txnwatch.state.model.values import DurationMs
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.streaming.job.checkpoint import local_directory
from txnwatch.streaming.job.operator import BucketProcessor, no_rows
from txnwatch.streaming.job.output_rows import FINDINGS, OUTPUT_DDL
from txnwatch.streaming.job.prepared_home import installed_spark, prepared_for, with_archive
from txnwatch.streaming.job.scratch import has_room_for_sockets
from txnwatch.streaming.job.search_paths import class_path, home_is, make_home, search_path, why_not_quick
from txnwatch.streaming.job.spark_conf import (
    JAVA_OPTIONS,
    LOOPBACK,
    arguments_of_the_jvm,
    check_checkpoint_place,
    file_system_settings,
    is_local,
    network_settings,
    with_conf,
)
from txnwatch.streaming.source.datasource import FORMAT, TransactionsDataSource

# Lets the JVM forget a frame that is no longer used.
#
# Py4J keeps an object of the JVM until Python collects its proxy. A proxy with a called method is a reference cycle,
# and a full collection of a driver with many long-lived objects is rare. Until then the JVM keeps the plan of each
# frame and the broadcasts of its tasks, about 150 KB a micro-batch (docs/decisions/0023).


def release(frame: DataFrame) -> None:
    """Removes the JVM's reference to the frame, which cannot be used afterwards."""
    gateway: Any = frame.sparkSession.sparkContext._gateway  # noqa: SLF001 - Spark has no public API for it
    gateway.detach(frame._jdf)  # noqa: SLF001 - as above


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


# Makes the Python processes with which Spark plans a query exit after their answer.
#
# Planning calls Python three times: to list the data sources, to create ours, and to create its reader. For each call
# Spark starts a daemon and a worker, and keeps them as long as the JVM runs: six idle processes and 280 MB. Without
# daemons, a call is one process that exits after its answer. Tasks need the daemon: it keeps their workers, and so
# their connections and the decoded state.
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


QUERY_NAME = "txnwatch"

_RETAINED = "20"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_LOCAL_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_JAVA_OPTIONS = (
    # Spark parses a worker's traceback with a recursive regular expression. With a long traceback the default stack
    # overflows, which ends the query's thread without ending the query.
    "-Xss16m",
    # The JVM plans small batches and moves few bytes. The second compiler and the parallel collectors used most of its
    # CPU in the first minutes, without a benefit.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    # The default first heap is 1/64 of the machine's memory. The JVM fills and keeps all of it before a collection.
    "-Xms64m",
    "-XX:MinHeapFreeRatio=20",
    "-XX:MaxHeapFreeRatio=40",
)


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


def spark_session(
    checkpoint: str,
    *,
    master: str,
    state_partitions: int,
    output: int | None = None,
    is_checkpoint_shared: bool = False,
    conf: Mapping[str, str] | None = None,
    scratch: Path | None = None,
) -> SparkSession:
    """A Spark session with all settings for a latency of milliseconds (docs/decisions/0002).

    An empty `master` leaves it to Spark's own configuration; `state_partitions` is fixed by the checkpoint; `output` is
    a descriptor for the output of the JVM; `conf` has settings of the operator; `scratch` is the directory for
    temporary files, unless `conf` has another. A local checkpoint uses a faster file manager. It does not stop a second
    driver from writing to the same checkpoint, so the caller must lock it.

    Raises:
        ConfigError: the master of Spark's own configuration has hosts that do not reach the checkpoint.
    """
    settings = with_conf(_settings(checkpoint, state_partitions, scratch), conf or {})
    gateway = _gateway(_conf(arguments_of_the_jvm(settings), master), master, scratch, output)
    whole = _conf(settings, master, gateway.jvm)  # also has spark-defaults.conf and the flags of spark-submit
    master = whole.get("spark.master", "") or ""
    check_checkpoint_place(checkpoint, master, is_shared=is_checkpoint_shared)
    for key, value in {**network_settings(master), **file_system_settings(checkpoint)}.items():
        if not whole.contains(key):
            whole.set(key, value)
    context = SparkContext(gateway=gateway, conf=whole, environment=search_path())
    context.setLogLevel("ERROR")
    with warming(context):
        session = SparkSession(context)
        if scratch is not None and is_local(master):
            load_classes(session, scratch)
    plan_without_daemons(session)
    TransactionsDataSource.register(session)  # starts Python to list the data sources
    run_tasks_with_daemons(session)
    return session


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


def _gateway(conf: SparkConf, master: str, scratch: Path | None, output: int | None) -> Any:  # noqa: ANN401 - untyped
    """Starts the JVM."""
    # glibc gives the JVM's many threads separate heaps, which do not shrink.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    # Workers start with `python -m`: a file in the current directory with the name of a module would break them.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    if is_local(master):  # without it Spark looks for an address of this host, and may ask its DNS
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    # In a process session of its own, the JVM and its workers get no Ctrl-C and no SIGTERM of our process group, so
    # the query can be stopped between batches. The JVM still ends with this process: it watches its standard input.
    popen = {"start_new_session": True, "stdout": output, "stderr": output}
    real = installed_spark()
    if scratch is None or not is_local(master) or why_not_quick(real) is not None:
        return launch_gateway(conf, popen_kwargs=popen)
    conf.setAll(list(class_path(real).items()))
    with home_is(_home(real, scratch, conf), real):
        return launch_gateway(conf, popen_kwargs=popen)


def _home(real: Path, scratch: Path, conf: SparkConf) -> Path:
    """The home of the JVM: that of the archive of classes, which the JVM uses then, or a new one."""
    prepared = prepared_for(real)
    if prepared is None:
        home = scratch / "spark-home"
        make_home(real, home)
        return home
    if prepared.archive is not None:
        conf.set(JAVA_OPTIONS, with_archive(conf.get(JAVA_OPTIONS) or "", prepared.archive))
    return prepared.home


def _settings(checkpoint: str, state_partitions: int, scratch: Path | None) -> dict[str, str]:
    """The settings of the session; each has its reason in docs/decisions/0002, or beside it."""
    # Spark's own directories (spark.local.dir) are below that of the JVM unless an operator sets them.
    java_options = [*_JAVA_OPTIONS, *([f'-Djava.io.tmpdir="{scratch}"'] if scratch is not None else [])]
    settings = {
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.python.unix.domain.socket.enabled": str(scratch is None or has_room_for_sockets(scratch)).lower(),
        # Spark starts a daemon for each set of environment variables. This setting is a variable of the operator's
        # workers only. Without it the source and the operator share the workers: 150 MB less (docs/decisions/0023).
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        "spark.sql.shuffle.partitions": str(state_partitions),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        # Spark keeps the last 1,000 of each for its UI, also without a UI: 60 MB after ten minutes.
        "spark.ui.retainedJobs": _RETAINED,
        "spark.ui.retainedStages": _RETAINED,
        "spark.ui.retainedTasks": _RETAINED,
        "spark.sql.ui.retainedExecutions": _RETAINED,
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.ui.showConsoleProgress": "false",
    }
    if local_directory(checkpoint) is not None:
        settings["spark.sql.streaming.checkpointFileManagerClass"] = _LOCAL_FILES
    return settings


def _conf(settings: Mapping[str, str], master: str, jvm: Any = None) -> SparkConf:  # noqa: ANN401 - untyped
    conf = SparkConf(_jvm=jvm).setAppName("txnwatch")
    if master:
        conf.setMaster(master)
    return conf.setAll(list(settings.items()))


def is_executing(session: SparkSession) -> bool:
    """Whether the query's thread is alive. If an Error of the JVM ends it, the query stays active forever."""
    assert session.sparkContext._jvm is not None  # noqa: SLF001 - Spark has no public API for it
    threads = session.sparkContext._jvm.java.lang.Thread.getAllStackTraces().keySet()  # noqa: SLF001
    return any(thread.getName().startswith(f"stream execution thread for {QUERY_NAME}") for thread in threads)


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
                emitted = [FINDINGS.decode(row["finding"]) for row in frame.collect()]
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


# The cores that run tasks. Executors of a cluster register some seconds after the session has started.

_PATIENCE_S, _SETTLED_S, _POLL_S = 20.0, 2.0, 0.2


def cores_of(session: SparkSession) -> int:
    """The number of cores of the driver (local) or of the executors; waits until no further executor registers."""
    context: Any = session.sparkContext
    if is_local(context.master):
        return int(context.defaultParallelism)
    jvm_context: Any = context._jsc.sc()  # noqa: SLF001 - Spark has no public API for it
    begin = changed = time.monotonic()
    known = 0
    while (now := time.monotonic()) - begin < _PATIENCE_S and (known == 0 or now - changed < _SETTLED_S):
        executors = jvm_context.getExecutorMemoryStatus().size() - 1  # without the driver
        if executors != known:
            known, changed = executors, now
        time.sleep(_POLL_S)
    return int(context.defaultParallelism)
