"""Ends the JVM of a Spark session, so that no process writes to the checkpoint any more; reports a JVM that has ended.

The JVM has its own session, so a signal to the process group reaches only the driver. After the signal no micro-batch
begins. The driver waits for the current one for a short time, then interrupts it; the next start repeats a micro-batch
that is not committed.
"""

from __future__ import annotations

import contextlib
import logging
import subprocess
from pathlib import Path

from py4j.protocol import Py4JNetworkError
from pyspark import accumulators
from pyspark.sql import SparkSession

from txnwatch.state.model.errors import SparkError

_ENDS_S = 2.0  # its connections are closed before its process has ended


def report_its_end_once() -> None:
    """Keeps Py4J and PySpark from writing tracebacks when the JVM ends, because `check_jvm` reports it in one line.

    An error in a callback from the JVM is not lost: Spark gets it as the answer and reports it as the query's error.
    """
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)  # a part of it uses the root logger
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = _ignored


def _ignored(*_: object) -> None:
    pass


def check_jvm(session: SparkSession, output: Path, *, wait_s: float = _ENDS_S) -> None:
    """Checks that the JVM runs; `output` is the file with the output of Spark.

    Raises:
        SparkError: it has ended, and only a new process can start another one.
    """
    process = _process(session)
    if process is not None:
        how, where = _end_of(process, wait_s), f"Spark's output: {output}"
    else:
        how, where = None if _answers(session) else "has ended", "the output of spark-submit"
    if how is not None:
        raise SparkError(
            f"the JVM of Spark {how}; start txnwatch again, and check whether the machine or the container has enough "
            f"memory; more details may be in {where}"
        )


def _end_of(process: subprocess.Popen[bytes], wait_s: float) -> str | None:
    """How the process has ended; None if it still runs after some seconds."""
    try:
        code = process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return None
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _answers(session: SparkSession) -> bool:
    """Whether the JVM answers, when another program has started it."""
    try:
        session.sparkContext._jvm.System.nanoTime()  # noqa: SLF001
    except (Py4JNetworkError, OSError):
        return False
    return True


def end_jvm(session: SparkSession) -> None:
    """Stops the session and waits for the end of the JVM, which ends when its standard input is closed."""
    process = _process(session)
    with contextlib.suppress(Exception):  # Spark may be gone already
        session.stop()
    if process is not None:
        if process.stdin is not None:
            process.stdin.close()
        process.wait()


def kill_jvm(session: SparkSession) -> None:
    """Kills the JVM at once."""
    process = _process(session)
    if process is not None:
        process.kill()
        process.wait()


def _process(session: SparkSession) -> subprocess.Popen[bytes] | None:
    """The JVM's process; None if another program has started it, as spark-submit does in cluster mode."""
    found: subprocess.Popen[bytes] | None = getattr(session.sparkContext._gateway, "proc", None)  # noqa: SLF001
    return found
