"""The Spark data source `kafka-transactions`: activity of producers and of the coordinator as facts, with barriers.

One reader lives in the driver's source process for the whole query and plans the batches. Tasks get pickled plans. They
keep their connections in a module-level cache, because a Python worker outlives its tasks. Reading a plan twice gives
the same facts, unless the log has changed in between; then the facts report the change.
"""

from __future__ import annotations

import gc
import os
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from txnwatch.state.model.errors import BrokerError
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.source.lister import Lister, check_access
from txnwatch.streaming.source.offsets import SourceOffset
from txnwatch.streaming.source.options import SourceOptions, parse_options
from txnwatch.streaming.source.rows import FACTS, HISTORY, PACKED_DDL, unlisted
from txnwatch.streaming.source.tasks import ReadPlan, plan_reads, run_plan

# Excludes the long-lived objects of a Spark Python worker from garbage collection.
#
# PySpark's daemon runs a full collection after every task. A worker holds about 100,000 objects of loaded modules, and
# one collection of them takes about 50 ms. With 10,000 cached decoded producers it takes 50 ms more. The collector
# skips objects that `gc.freeze` has moved aside. The collector is off during a task, because its garbage is collected
# at its end.
#
# A freeze also moves aside what the running task uses. What of it is in a cycle is garbage when the task ends, and no
# collection finds it. So the objects are unfrozen at intervals: the daemon's next collection finds the garbage of all
# tasks since the last time, and the next task freezes the rest again.

_TASKS_THAT_LOAD = 5  # the first tasks import the modules that later tasks use
_WORTH_FREEZING = 1_000  # cached decoded producers, about six objects each, none in a cycle
UNFROZEN_EVERY = 100  # tasks
tasks_begun = 0


def freeze_loaded_modules() -> None:
    """Freezes the objects of a worker, in a few tasks only. Call it at the start of a task."""
    freeze_what_stays(0)


def freeze_what_stays(kept: int) -> None:
    """The same, and in nearly every task of a worker that caches many decoded producers (`kept`)."""
    global tasks_begun  # noqa: PLW0603 - a worker process has one collector and outlives its tasks
    gc.disable()  # the daemon collects between the tasks
    place = tasks_begun % UNFROZEN_EVERY
    tasks_begun += 1
    if place == UNFROZEN_EVERY - 1:
        gc.unfreeze()
    elif place < _TASKS_THAT_LOAD or kept >= _WORTH_FREEZING:
        gc.freeze()


FORMAT = "kafka-transactions"


class TransactionsPartition(InputPartition):  # type: ignore[misc]
    """One task's share of a batch."""

    def __init__(self, plan: ReadPlan) -> None:
        super().__init__(0)
        self.plan = plan


class TransactionsDataSource(DataSource):  # type: ignore[misc]
    """The data source; options are listed in txnwatch.streaming.source.options."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    @classmethod
    def register(cls, session: SparkSession) -> None:
        """Registers the source in a session. With a local master, it runs in the Python of this program.

        Spark's own default is the `python3` of the search path. If the environment of the program is not activated,
        that is another Python, which has no txnwatch. The variable `PYSPARK_PYTHON` decides if it is set. On a cluster
        it has to be set, because only an operator knows the Python of the other hosts.
        """
        context = session.sparkContext
        if context.master.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
            context.pythonExec = sys.executable
        session.dataSource.register(cls)

    def schema(self) -> str:
        """The schema of facts, or of finished transactions, as DDL."""
        options = parse_options(self.options)
        if options.episodes:
            return HISTORY.ddl
        return PACKED_DDL if options.packed else FACTS.ddl

    def streamReader(self, schema: object) -> TransactionsStreamReader:  # noqa: N802 - Spark's name
        """A reader for a streaming query."""
        del schema
        return TransactionsStreamReader(parse_options(self.options))

    def reader(self, schema: object) -> TransactionsReader:
        """A reader for a batch query over earlier transactions."""
        del schema
        return TransactionsReader(parse_options(self.options))


class TransactionsStreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """Plans batches in the driver and reads them in tasks. It connects only when it plans, so it can be pickled."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._lister: Lister | None = None
        self._latest: dict[str, Any] | None = None
        self._decoded: deque[tuple[dict[str, Any], SourceOffset]] = deque(maxlen=2)  # a batch has a start and an end

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The read limit of one batch; all available data if no limit is set."""
        limit = self._options.max_offsets_per_trigger
        return ReadMaxRows(limit) if limit is not None else ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query starts: nothing listed, nothing read. Start offsets are chosen when leaders answer."""
        return SourceOffset.beginning().to_json()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Lists all ends once. Returns `start` unchanged if nothing is new; Spark then runs no batch."""
        lister = self._lister = self._lister or Lister(self._options, new_cluster(self._options))
        following = lister.next_offset(self._offset(start), limited=isinstance(limit, ReadMaxRows))
        self._latest = dict(start)
        if following is not None:
            self._latest = following.to_json()
            self._decoded.append((self._latest, following))
        return self._latest

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The offset of the last listing, for the query's progress."""
        return self._latest

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """The plans of one batch."""
        if start == end:
            return []
        following = self._offset(end)
        census = self._lister.census_of(following.barrier) if self._lister is not None else None
        plans = plan_reads(self._offset(start), following, self._options, census)
        if self._lister is not None:
            plans[0] = replace(plans[0], throttled_ms=self._lister.take_throttled())
        return [TransactionsPartition(plan) for plan in plans]

    def _offset(self, raw: Mapping[str, Any]) -> SourceOffset:
        """The decoded offset. Spark returns each offset several times, and decoding costs time for each partition."""
        for known, offset in self._decoded:
            if known == raw:
                return offset
        offset = SourceOffset.from_json(raw)
        check_access(offset, self._options)  # also of a batch that was not committed: it is planned without a listing
        self._decoded.append((dict(raw), offset))
        return offset

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs one plan."""
        assert isinstance(partition, TransactionsPartition)
        freeze_loaded_modules()
        return _run(partition.plan, self._options)


class TransactionsReader(DataSourceReader):  # type: ignore[misc]
    """A batch reader: reads from `startingOffsets` to `endingOffsets`, both resolved when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """The plans of the whole range.

        Raises:
            BrokerError: no broker, or no leader, answers. A batch query does not retry.
        """
        cluster = new_cluster(self._options)
        cluster.refresh()
        start = SourceOffset.beginning()
        end = Lister(self._options, cluster).next_offset(start, limited=False)
        cluster.close()
        if end is None:
            raise BrokerError("no leader returned the ends of its partitions: there is nothing to read")
        plans = plan_reads(start, end.bounded(self._options.ending_offsets), self._options)
        plans[0] = replace(plans[0], unlisted=unlisted(end))
        return [TransactionsPartition(plan) for plan in plans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs one plan."""
        assert isinstance(partition, TransactionsPartition)
        return _run(partition.plan, self._options)


def new_cluster(options: SourceOptions) -> Cluster:
    """A cluster client with its own connections."""
    return Cluster(options.bootstrap, options.security, timeout_s=options.list_timeout_s)


def _run(plan: ReadPlan, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    return run_plan(plan, options, shared_cluster(options, "reading"), shared_cluster(options, "asking"))


_SHARED: dict[tuple[object, ...], Cluster] = {}


def shared_cluster(options: SourceOptions, purpose: str) -> Cluster:
    """This worker's connections for one purpose.

    Later tasks use them again, because a new connection costs several round trips.
    """
    key = (options.bootstrap, options.security, purpose)
    if key not in _SHARED:
        _SHARED[key] = Cluster(options.bootstrap, options.security)
    return _SHARED[key]
