"""The heap of a watch's JVM, read with the tools of its JDK.

The JVM keeps memory that it does not use at the moment, so its memory can grow while nothing leaks. Only what is live
after a full collection tells the two apart.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.idle import pss_of
from support.process_memory import descendants
from txnwatch.streaming.job.jvm import java

_POOLS = ("S0", "S1", "E", "O")  # survivors, Eden, old generation; a column ends in C for its capacity, U for its use

_NAME = 3  # the column of a class histogram


def jvm_of(pid: int) -> int:
    """The largest JVM that a process has started."""
    return max((one for one, name in descendants(pid).items() if name == "java"), key=pss_of)


def committed_mb(jvm: int) -> float:
    """The heap that the JVM has from the operating system."""
    return _sum_mb(_counters(jvm), "C")


def live_mb(jvm: int) -> float:
    """The heap that is in use right after a full collection, which this starts."""
    _tool("jcmd", str(jvm), "GC.run")
    return _sum_mb(_counters(jvm), "U")


def live_instances(jvm: int, class_name: str) -> int:
    """The objects of a class that are left after a full collection, which this starts."""
    lines = (line.split() for line in _tool("jcmd", str(jvm), "GC.class_histogram").splitlines())
    return sum(int(line[1]) for line in lines if len(line) > _NAME and line[_NAME] == class_name)


def _counters(jvm: int) -> dict[str, float]:
    names, values = _tool("jstat", "-gc", str(jvm)).splitlines()
    return {name: float(value) for name, value in zip(names.split(), values.split(), strict=True) if value != "-"}


def _sum_mb(kib: dict[str, float], column: str) -> float:
    return sum(kib[f"{pool}{column}"] for pool in _POOLS) * 1024 / 1e6


def _tool(name: str, *arguments: str) -> str:
    command = [str(Path(java()).resolve().with_name(name)), *arguments]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=60.0).stdout
