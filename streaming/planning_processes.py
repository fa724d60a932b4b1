"""Lets the Python processes with which Spark plans a query end as soon as they have answered.

Planning asks three questions of Python: which sources there are, how ours is made, how it is read. Spark starts a
daemon and a worker for each of them, and keeps the daemons for as long as the JVM lives: six processes and 280 MB that
do nothing. Without daemons a question is one process that ends with its answer. Tasks need the daemon: it keeps their
workers, and with these the connections and the decoded state.

Spark reads the setting whenever it starts a process, so it is changed between planning and the first task. That is
done in local mode only: on a cluster an executor takes the driver's settings over when it registers, for as long as it
lives, and an executor that registers while a query is planned would start a new worker for every task.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

_USE_DAEMON = "spark.python.use.daemon"


def plan_without_daemons(session: SparkSession) -> None:
    """Called before a query is planned; no task of this session may run."""
    _set(session, "false")


def run_tasks_with_daemons(session: SparkSession) -> None:
    """Called when a query is planned, before its first task."""
    _set(session, "true")


def _set(session: SparkSession, value: str) -> None:
    context = session.sparkContext._jsc.sc()  # noqa: SLF001 - the conf that the public API gives is a copy
    if context.isLocal():
        context.conf().set(_USE_DAEMON, value)
