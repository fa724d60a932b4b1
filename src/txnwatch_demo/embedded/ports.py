"""Free ports on the loopback interface, below the range from which the system takes ports for outgoing connections."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Sequence

# A server that is stopped and started again keeps its port. No outgoing connection may get that port in between.
PORTS: Sequence[int] = range(20_000, 32_000)


def free_ports(count: int, among: Sequence[int] | None = None) -> list[int]:
    """`count` different ports that are free now, by default among `PORTS`.

    Raises:
        OSError: fewer ports are free.
    """
    among = PORTS if among is None else among
    with contextlib.ExitStack() as bound:
        found: list[int] = []
        for port in random.sample(among, len(among)):
            if _binds(bound.enter_context(socket.socket()), port):
                found.append(port)
            if len(found) == count:
                return found
    raise OSError(f"expected {count} free ports from {min(among)} to {max(among)}, found {len(found)}")


def is_free(port: int) -> bool:
    """Whether the port is free now."""
    with socket.socket() as found:
        return _binds(found, port)


def _binds(found: socket.socket, port: int) -> bool:
    try:
        found.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True
