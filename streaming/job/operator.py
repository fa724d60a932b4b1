"""Spark's stateful operator: one key is one bucket, and its state is a log (state/store/bucket_log.py).

Law: this module imports only what creates the operator and declares its state, for which Spark starts a Python process
when it plans the query. What processes a batch is in bucket_step.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)

from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.streaming.source.worker_memory import freeze_what_stays

if TYPE_CHECKING:
    from txnwatch.state.store.bucket_log import KeptBucket

# The names and the columns of the state in Spark's state store.
_HEAD = ("head", "bytes BINARY")
_LOG = ("log", "sequence BIGINT", "bytes BINARY")
STATE_VARIABLES = (_HEAD, _LOG)

_OF_TASKS = ("txnwatch.streaming.job.bucket_step", "txnwatch.streaming.source.tasks")
OUTPUT_DDL = "finding BINARY"  # a row for the driver: one finding, encoded as all of the model is
_FINDING_ROW = Row("finding")
RUN_ID = "spark.jobGroup.id"  # Spark runs the jobs of a streaming query in a job group named after the run
kept_buckets: dict[tuple[str, int], KeptBucket] = {}
_kept_of = ""


class BucketProcessor(StatefulProcessor):  # type: ignore[misc]
    """Runs `bucket_step.step` for one bucket and batch."""

    def __init__(self, policy: DetectionPolicy) -> None:
        self._policy = policy

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declares the state variables."""
        freeze_what_stays(sum(kept.decoded for kept in kept_buckets.values()))
        self._head: ValueState = handle.getValueState(*_HEAD)
        self._log: MapState = handle.getMapState(*_LOG)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: ARG002, N803 - passed by keyword
    ) -> Iterator[Row]:
        """Processes one batch of one bucket completely before it returns."""
        from txnwatch.streaming.job.bucket_step import step  # noqa: PLC0415 - as the docstring says

        (number,) = key
        store = SparkLogStore(self._head, self._log)
        findings = step(kept_buckets, (_run_id(), number), (row[1] for row in rows), store, self._policy)
        return iter([_FINDING_ROW(finding) for finding in findings])

    def close(self) -> None:
        """Nothing to release."""


def no_rows(rows: Iterator[object]) -> Iterator[object]:
    """A task after which its worker imports what the tasks of a query need, while it waits for one.

    It reads its rows to the end, because Spark does not use a worker again that has left some.
    """
    threading.Thread(target=_import_what_tasks_need, daemon=True).start()
    return filter(None, (None for _ in rows))


def _import_what_tasks_need() -> None:
    for name in _OF_TASKS:
        import_module(name)


class SparkLogStore:
    """A LogStore over two of Spark's state variables."""

    def __init__(self, head: ValueState, log: MapState) -> None:
        self._head = head
        self._log = log

    def head(self) -> bytes | None:
        """The head, None if there is none yet."""
        stored = self._head.get()
        return bytes(stored[0]) if stored is not None else None

    def put_head(self, head: bytes) -> None:
        """Replaces the head."""
        self._head.update((head,))

    def entry(self, sequence: int) -> bytes | None:
        """One entry, None if it is missing."""
        row = self._log.getValue((sequence,))
        return bytes(row[0]) if row is not None else None

    def put_entry(self, sequence: int, entry: bytes) -> None:
        """Adds an entry."""
        self._log.updateValue((sequence,), (entry,))

    def clear(self) -> None:
        """Removes all entries."""
        self._log.clear()


def _run_id() -> str:
    """The run of the query that this task belongs to. A new run clears the cached buckets.

    A driver that restarts its query has lost the open transactions that buckets emitted before. Buckets that are not
    cached emit them again.
    """
    global _kept_of  # noqa: PLW0603 - a worker process outlives the runs of a query
    context = TaskContext.get()
    run_id = (context.getLocalProperty(RUN_ID) if context is not None else None) or ""
    if run_id != _kept_of:
        kept_buckets.clear()
        _kept_of = run_id
    return run_id
