"""Which servers a process is connected to."""

from __future__ import annotations

import psutil


def is_connected(pid: int, port: int) -> bool:
    """Whether a process has a TCP connection to a port."""
    return any(one.raddr and one.raddr.port == port for one in psutil.Process(pid).net_connections("tcp"))
