"""A query whose tasks fail by plan and whose executors are killed, and the same batches without Spark.

The facts come from the synthetic source. The query runs in a process of its own, because the JVM of a process is
started once. A task fails in its first attempt, once per batch at most: before the operator works on a bucket, after
it, by the end of the worker process, or behind the operator, when the worker has kept its buckets and the state of the
attempt is replaced.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row

from support.process_memory import descendants
from support.state_variables import Handle
from support.synthetic_source import BUCKETS, FORMAT, Shape, a_session, facts_of
from txnwatch.state.detection.open_transactions import LastOpenLists
from txnwatch.state.model.findings import Finding
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.streaming.job import operator
from txnwatch.streaming.job.bucket_step import FINDINGS
from txnwatch.streaming.job.operator import OUTPUT_DDL, BucketProcessor
from txnwatch.streaming.source.rows import pack_facts

POLICY = DetectionPolicy(listed_after_ms=1_000)
CHANGING, SHAPE = 100, Shape(times_known=4, stray_every=7)
STATE_PARTITIONS = 2
LIMIT_S = 240.0
WAYS = ("before", "after", "exit", "behind")
EXIT_CODE = 3


class TaskFailure(NamedTuple):
    """Where the first attempt of a batch fails, and how; a failure behind the operator has no bucket."""

    bucket: int
    way: str


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of the query.

    Attributes:
        batches: the run ends after the batch with this number; the first is 1.
        seed: which batches fail, where and how; None: none fails.
        kills: after these batches an executor is killed.
    """

    directory: str
    master: str
    batches: int
    seed: int | None = None
    kills: tuple[int, ...] = ()

    def failure_of(self, batch: int) -> TaskFailure | None:
        """The failure in this batch: every second batch after the first has one, and each way has its turn."""
        if self.seed is None or batch == 1 or batch % 2 == 0:
            return None
        return TaskFailure(random.Random(f"{self.seed}-{batch}").randrange(BUCKETS), WAYS[batch // 2 % len(WAYS)])


class Handled(NamedTuple):
    """One bucket in one attempt at a batch, with the executor that ran it: its working directory."""

    batch: int
    bucket: int
    attempt: int
    executor: str


class FailingProcessor(BucketProcessor):
    """The operator, with the failures of the plan; it writes down what it handles."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(POLICY)
        self._plan = plan

    def handleInputRows(self, key: tuple[int], rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        batch, attempt = _batch(), _attempt()
        _note(self._plan, "handled", Handled(batch, key[0], attempt, Path.cwd().name))
        failure = self._plan.failure_of(batch) if attempt == 0 else None
        way = failure.way if failure is not None and failure.bucket == key[0] else ""
        if way == "before":
            _fail(self._plan, batch, way)
        found = list(super().handleInputRows(key, rows, timerValues))
        if way == "after":
            _fail(self._plan, batch, way)
        if way == "exit":
            _note(self._plan, "failed", (batch, way))
            os._exit(EXIT_CODE)
        return iter(found)


def executed(plan: Plan, tests: Path) -> dict[int, list[str]]:
    """Runs the plan in a process of its own. The findings of each batch, encoded and sorted, by its number."""
    import pyspark

    directory = Path(plan.directory)
    directory.mkdir(parents=True, exist_ok=True)
    # A cluster authenticates, so it needs a secret; executors have working directories of their own. Without a wait
    # for the executor that has the state, a task takes the first free one, so state moves often.
    conf = "--conf spark.authenticate.secret=of-a-test --conf spark.locality.wait=0"
    environ = {
        **os.environ,
        "PYTHONPATH": str(tests),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_WORKER_DIR": str(directory / "work"),
        "PYSPARK_SUBMIT_ARGS": f"{conf} pyspark-shell",
    }
    command = [sys.executable, "-W", "ignore", "-m", "support.failing_tasks", json.dumps(asdict(plan))]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=LIMIT_S + 60)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-3000:]}"
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return {int(batch): findings for batch, findings in found.items()}


def plain(batches: int) -> dict[int, list[str]]:
    """The same batches in this process; nothing fails, and each batch reads all of its state."""
    handles = [Handle() for _ in range(BUCKETS)]
    processors = [BucketProcessor(POLICY) for _ in range(BUCKETS)]
    for processor, handle in zip(processors, handles, strict=True):
        processor.init(handle)  # type: ignore[arg-type]
    found, last = {}, LastOpenLists()
    for number in range(1, batches + 1):
        rows: list[Row] = []
        for packed in pack_facts(facts_of(number, CHANGING, SHAPE), BUCKETS):
            operator.kept_buckets.clear()
            rows.extend(processors[packed[0]].handleInputRows((packed[0],), iter([packed]), None))
        found[number] = _texts(last, rows)
    operator.kept_buckets.clear()
    return found


def handled(directory: Path) -> list[Handled]:
    """What the operator has handled in all runs with this directory."""
    return [Handled(*row) for row in _noted(directory, "handled")]


def failed(directory: Path) -> set[tuple[int, str]]:
    """The batches that have failed, and how."""
    return {(batch, way) for batch, way in _noted(directory, "failed")}


def _texts(last: LastOpenLists, rows: list[Row]) -> list[str]:
    """Findings of one batch as sorted text: Spark does not order the buckets."""
    emitted: list[Finding] = [FINDINGS.decode(row["finding"]) for row in rows]
    return sorted(repr(finding) for finding in last.whole(emitted))


def _batch() -> int:
    """The number of the batch of this task; the batches of Spark begin with 0."""
    context = TaskContext.get()
    assert context is not None
    return int(context.getLocalProperty("streaming.sql.batchId") or 0) + 1


def _attempt() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.attemptNumber()


def _note(plan: Plan, name: str, row: tuple[object, ...]) -> None:
    with (Path(plan.directory) / f"{name}-{os.getpid()}-{time.time_ns()}.json").open("w") as file:
        file.write(json.dumps(row))


def _noted(directory: Path, name: str) -> list[list[Any]]:
    return [json.loads(path.read_text()) for path in directory.glob(f"{name}-*.json")]


def _fail(plan: Plan, batch: int, way: str) -> None:
    _note(plan, "failed", (batch, way))
    raise RuntimeError(f"batch {batch} was made to fail")


def run_query(plan: Plan) -> dict[int, list[str]]:
    """The query, in this process."""
    directory = Path(plan.directory)
    session = a_session(directory, plan.master, state_partitions=STATE_PARTITIONS)
    found: dict[int, list[str]] = {}
    last = LastOpenLists()

    def behind(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        batch = _batch()
        failure = plan.failure_of(batch) if _attempt() == 0 else None
        if failure is not None and failure.way == "behind":
            _fail(plan, batch, failure.way)

    def take(frame: Any, batch_id: int) -> None:
        found[batch_id + 1] = _texts(last, frame.mapInArrow(behind, OUTPUT_DDL).collect())

    source = session.readStream.format(FORMAT).option("changing", str(CHANGING)).option("only_first", "false")
    facts = source.option("tasks", "2").options(**{name: str(value) for name, value in SHAPE._asdict().items()}).load()
    query = (
        facts.groupBy("bucket")
        .transformWithState(FailingProcessor(plan), outputStructType=OUTPUT_DDL, outputMode="Update", timeMode="None")
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(processingTime="50 milliseconds")
        .foreachBatch(take)
        .start()
    )
    kills, until = list(plan.kills), time.monotonic() + LIMIT_S
    while max(found, default=0) < plan.batches and query.isActive and time.monotonic() < until:
        if kills and max(found, default=0) >= kills[0] and _kill_an_executor():
            kills.pop(0)
        time.sleep(0.02)
    assert query.isActive, query.exception()
    assert not kills, "an executor was not killed"
    query.stop()
    session.stop()
    return {batch: findings for batch, findings in found.items() if batch <= plan.batches}


def _kill_an_executor() -> bool:
    """Kills the oldest executor process of this cluster."""
    for pid in sorted(descendants(os.getpid())):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            continue
        if "CoarseGrainedExecutorBackend" in command:
            os.kill(pid, signal.SIGKILL)
            return True
    return False


if __name__ == "__main__":
    # Under its own name: the workers import this module.
    from support.failing_tasks import run_query as run

    sys.stdout.write(json.dumps(run(Plan(**json.loads(sys.argv[1])))))
