"""Spark's stateful operator: unpacks facts, runs the pure bucket, writes changes to the state store.

One key is one bucket. Its state is a log (state/store/bucket_log.py). A worker process caches decoded buckets. It takes
a bucket out of the cache before it works on it, and puts it back after all writes, so a failed attempt leaves no bucket
in the cache. A cached bucket may be from an attempt whose writes were not committed; `load` detects that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)

from txnwatch.state.detection.bucket import process
from txnwatch.state.model.facts import Barrier
from txnwatch.state.model.findings import Finding
from txnwatch.state.model.serializer import Serializer
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.state.store.bucket_log import TOKEN_BYTES, KeptBucket, load
from txnwatch.streaming.source.datasource import freeze_what_stays
from txnwatch.streaming.source.rows import PARTITION_BUCKET, unpack_facts

# Rows from the stateful operator to the driver: one finding each, encoded as all of the model is.

OUTPUT_DDL = "finding BINARY"
FINDINGS = Serializer[Finding](Finding)

# The names and the columns of the state in Spark's state store.
_HEAD = ("head", "bytes BINARY")
_LOG = ("log", "sequence BIGINT", "bytes BINARY")
STATE_VARIABLES = (_HEAD, _LOG)

_FINDING_ROW = Row("finding")
RUN_ID = "spark.jobGroup.id"  # Spark runs the jobs of a streaming query in a job group named after the run
kept_buckets: dict[tuple[str, int], KeptBucket] = {}
_kept_of = ""


class BucketProcessor(StatefulProcessor):  # type: ignore[misc]
    """Runs `bucket.process` for one bucket and batch."""

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
        (number,) = key
        facts = [fact for row in rows for fact in unpack_facts(row[1])]
        barrier = next(fact for fact in facts if isinstance(fact, Barrier))
        store = SparkLogStore(self._head, self._log)
        place = (_run_id(), number)
        kept = load(kept_buckets.pop(place, None), store, number)
        emitted = process(kept.bucket, kept, facts, self._policy, reports_partitions=number == PARTITION_BUCKET)
        kept.write(store, os.urandom(TOKEN_BYTES), barrier.coordinator_listed_ms, self._policy.idle_retention_ms)
        kept_buckets[place] = kept
        return iter([_FINDING_ROW(FINDINGS.encode(finding)) for finding in emitted])

    def close(self) -> None:
        """Nothing to release."""


def no_rows(rows: Iterator[object]) -> Iterator[object]:
    """A task that does nothing: its worker imports this module, and so all that the tasks of a query need.

    It reads its rows to the end, because Spark does not use a worker again that has left some.
    """
    return filter(None, (None for _ in rows))


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

    def entry(self, sequence: int) -> bytes:
        """One entry that the head names."""
        return bytes(self._log.getValue((sequence,))[0])

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
