"""Ends the JVM of a Spark session, so that no process writes to the checkpoint any more.

The JVM has its own session, so a signal to the process group reaches only the driver. After the signal no micro-batch
begins. The driver waits for the current one for a short time, then interrupts it; the next start repeats a micro-batch
that is not committed.
"""

from __future__ import annotations

import contextlib
import subprocess

from pyspark.sql import SparkSession


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
