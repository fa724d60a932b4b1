"""Clients that hold connections of the HTTP port, and probes of the kubelet beside them.

`PYTHONPATH=tests python -m support.held_connections` measures how many probes are answered.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

from support.metrics_process import MetricsProcess, metrics_process

PROBES = 40
KUBELET = "127.0.9.9"
_DESCRIPTORS = 1_024
_SMALL = 1 << 10  # bytes of the buffer of a client that does not read
_LARGE_ANSWER = 512 << 10  # more than the buffers of a connection whose client does not read
_TIMEOUT_S = 5.0
_REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"

Sends = Callable[[socket.socket], None]


def silent(_: socket.socket) -> None:
    """Sends nothing."""


def half(client: socket.socket) -> None:
    """Sends the beginning of a request."""
    client.sendall(_REQUEST[:20])


def whole(client: socket.socket) -> None:
    """Sends a request, and does not read the answer."""
    client.sendall(_REQUEST)


CLIENTS: dict[str, Sends] = {"silent": silent, "half a request": half, "reads nothing": whole}


@contextlib.contextmanager
def held(process: MetricsProcess, addresses: int, of_each: int, sends: Sends) -> Iterator[None]:
    """Connections from so many addresses of this machine while the block runs."""
    with ExitStack() as stack:
        for number in range(addresses * of_each):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL)
            client.bind((f"127.0.1.{number % addresses + 1}", 0))
            client.settimeout(5.0)
            client.connect(("127.0.0.1", process.port))
            with contextlib.suppress(OSError):  # closed already
                sends(client)
        yield


def probe(port: int, address: str = KUBELET) -> bool:
    """Whether a liveness probe is answered."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, _TIMEOUT_S, (address, 0))) as connection:
        try:
            connection.request("GET", "/-/healthy")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False


def probes_answered(addresses: int, of_each: int, sends: Sends) -> int:
    """How many of PROBES probes are answered while others hold connections."""
    with (
        metrics_process(_DESCRIPTORS, None, _LARGE_ANSWER) as process,
        held(process, addresses, of_each, sends),
    ):
        return sum(probe(process.port) for _ in range(PROBES))


def main() -> None:
    """Prints the answered probes for each kind of client."""
    for addresses, of_each in ((1, 400), (4, 100), (4, 32), (100, 4)):
        for kind, sends in CLIENTS.items():
            answered = probes_answered(addresses, of_each, sends)
            line = f"{addresses} x {of_each} connections, {kind}: {answered} of {PROBES} probes answered"
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
