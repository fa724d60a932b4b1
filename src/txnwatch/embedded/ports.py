"""Free ports on the loopback interface."""

from __future__ import annotations

import socket


def free_ports(count: int) -> list[int]:
    """`count` different ports that are free now; all are bound at the same time, so that none repeats."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for found in sockets:
            found.bind(("127.0.0.1", 0))
        return [found.getsockname()[1] for found in sockets]
    finally:
        for found in sockets:
            found.close()
