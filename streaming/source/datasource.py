"""The Spark data source `kafka-transactions`: activity of producers and of the coordinator as facts, with barriers.

One reader lives in the driver's source process for the whole query and plans the batches. Tasks get pickled plans.
Reading a plan twice gives the same facts, unless the log has changed in between; then the facts report the change.

Apart: a process that plans the query imports it, and nothing of the job.

Law: this module imports only what creates the source and its readers. Spark starts a Python process for each of these,
one after the other, and a start waits for all of them. What plans and reads is in tasks.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from txnwatch.streaming.source.worker_memory import freeze_loaded_modules

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from txnwatch.streaming.source.options import SourceOptions
    from txnwatch.streaming.source.tasks import StreamPlans, TaskPlan

FORMAT = "kafka-transactions"
PACKED_DDL: Final = "bucket INT, facts BINARY"


class TransactionsPartition(InputPartition):  # type: ignore[misc]
    """One task's share of a batch; its options are those of the driver, whatever the environment of an executor is."""

    def __init__(self, plan: TaskPlan, options: SourceOptions) -> None:
        super().__init__(0)
        self.plan = plan
        self.options = options


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
        if self.options.get("packed") == "true":  # `txnwatch run`, which has checked its options
            return PACKED_DDL
        from txnwatch.streaming.source.options import parse_options  # noqa: PLC0415 - as the docstring says
        from txnwatch.streaming.source.rows import FACTS, HISTORY  # noqa: PLC0415

        options = parse_options(self.options)
        if options.episodes:
            return HISTORY.ddl
        return PACKED_DDL if options.packed else FACTS.ddl

    def streamReader(self, schema: object) -> TransactionsStreamReader:  # noqa: N802 - Spark's name
        """A reader for a streaming query."""
        del schema
        return TransactionsStreamReader(self.options)

    def reader(self, schema: object) -> TransactionsReader:
        """A reader for a batch query over earlier transactions."""
        del schema
        return TransactionsReader(self.options)


class TransactionsStreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """Plans batches in the driver and reads them in tasks. It connects only when it plans, so it can be pickled."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    @cached_property
    def plans(self) -> StreamPlans:
        """Made when Spark plans the first batch."""
        from txnwatch.streaming.source.options import parse_options  # noqa: PLC0415 - as the docstring says
        from txnwatch.streaming.source.tasks import StreamPlans  # noqa: PLC0415

        return StreamPlans(parse_options(self._options))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The read limit of one batch; all available data if no limit is set."""
        limit = self.plans.options.max_offsets_per_trigger
        return ReadMaxRows(limit) if limit is not None else ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query starts: nothing listed, nothing read. Start offsets are chosen when leaders answer."""
        return self.plans.beginning()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Lists all ends once. Returns `start` unchanged if nothing is new; Spark then runs no batch."""
        return self.plans.after(start, limited=isinstance(limit, ReadMaxRows))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The offset of the last listing, for the query's progress."""
        return self.plans.latest

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """The plans of one batch."""
        return [TransactionsPartition(plan, self.plans.options) for plan in self.plans.of_batch(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs one plan."""
        assert isinstance(partition, TransactionsPartition)
        freeze_loaded_modules()
        return _run(partition)


class TransactionsReader(DataSourceReader):  # type: ignore[misc]
    """A batch reader: reads from `startingOffsets` to `endingOffsets`, both resolved when the query is planned."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def partitions(self) -> Sequence[InputPartition]:
        """The plans of the whole range.

        Raises:
            BrokerError: no broker, or no leader, answers. A batch query does not retry.
        """
        from txnwatch.streaming.source.options import parse_options  # noqa: PLC0415 - as the docstring says
        from txnwatch.streaming.source.tasks import whole_range  # noqa: PLC0415

        options = parse_options(self._options)
        return [TransactionsPartition(plan, options) for plan in whole_range(options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs one plan."""
        assert isinstance(partition, TransactionsPartition)
        return _run(partition)


def _run(part: TransactionsPartition) -> Iterator[pa.RecordBatch]:
    from txnwatch.streaming.source.tasks import run_here  # noqa: PLC0415 - as the docstring says

    return run_here(part.plan, part.options)
