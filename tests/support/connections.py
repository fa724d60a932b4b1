"""Which servers a process is connected to."""

from __future__ import annotations

import time

import psutil

from support.process_memory import descendants
from support.waiting import eventually
from support.watch import RunningWatch


def is_connected(pid: int, port: int) -> bool:
    """Whether a process has a TCP connection to a port."""
    return any(one.raddr and one.raddr.port == port for one in psutil.Process(pid).net_connections("tcp"))


def until_spark_reaches(running: RunningWatch, port: int) -> None:
    """Waits until Spark is connected to a server, and two seconds more."""

    def uses() -> bool:
        jvms = [pid for pid, name in descendants(running.pid).items() if name == "java"]
        return any(is_connected(jvm, port) for jvm in jvms)

    eventually(uses, 120.0, lambda: f"Spark to use the server: {running.lines[-3:]}")
    time.sleep(2.0)
