"""Ends the Python processes that Spark keeps for planning a query, once it is planned.

Spark starts one for each question that planning asks (which sources are there, how one is made, how it is read), and
keeps them for as long as the JVM lives: four processes and 180 MB that do nothing. One that has ended is started again
when it is needed, so a query can be planned anew at any time. Only on Linux, and only below our own JVM.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

_DAEMON, _PLANNING = b"pyspark.daemon", b"pyspark.sql.worker."


def end_planning_processes(session: SparkSession) -> int:
    """Ends them by SIGTERM, which takes their workers along; how many daemons there were."""
    jvm = getattr(session.sparkContext._gateway, "proc", None)  # noqa: SLF001 - where Spark's launcher keeps it
    if jvm is None:  # spark-submit has started it
        return 0
    found = list(_planning_daemons(jvm.pid))
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    return len(found)


def _planning_daemons(jvm: int) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):  # it may end meanwhile
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes().split(b"\0")
            if parent == jvm and _DAEMON in command and any(word.startswith(_PLANNING) for word in command):
                yield int(entry.name)
