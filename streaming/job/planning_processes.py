"""Makes the Python processes with which Spark plans a query exit after their answer.

Planning calls Python three times: to list the data sources, to create ours, and to create its reader. For each call
Spark starts a daemon and a worker, and keeps them as long as the JVM runs: six idle processes and 280 MB. Without
daemons, a call is one process that exits after its answer. Tasks need the daemon: it keeps their workers, and so their
connections and the decoded state.

Spark reads the setting whenever it starts a process, so it is changed between planning and the first task. Only local
mode does so. On a cluster an executor copies the driver's settings when it registers, and keeps them. An executor that
registers during planning would start a new worker for every task.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

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
