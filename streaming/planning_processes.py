"""Ends the Python processes that Spark keeps for planning a query, once it is planned.

Spark starts one daemon for each question that planning asks (which sources are there, how one is made, how it is
read), and keeps it for as long as the JVM lives: three processes and 100 MB that do nothing. A daemon that has ended is
started again when it is needed. Its worker must have ended before it, which Spark sees to after a minute: a worker that
Spark believes to be there and that is not makes the next plan fail. Only on Linux, and only below our own JVM.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

_DAEMON, _PLANNING = b"pyspark.daemon", b"pyspark.sql.worker."


def end_planning_processes(session: SparkSession) -> int:
    """Sends a SIGTERM to every planning daemon that has no worker left; how many those are."""
    jvm = getattr(session.sparkContext._gateway, "proc", None)  # noqa: SLF001 - where Spark's launcher keeps it
    if jvm is None:  # spark-submit has started it
        return 0
    parents = _parents()
    daemons = [pid for pid, parent in parents.items() if parent == jvm.pid and _is_planning(pid)]
    found = set(daemons) - set(parents.values())
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    return len(found)


def _parents() -> dict[int, int]:
    """The parent of every process."""
    found: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may end meanwhile
            found[int(entry.name)] = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
    return found


def _is_planning(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return _DAEMON in command and any(word.startswith(_PLANNING) for word in command)
