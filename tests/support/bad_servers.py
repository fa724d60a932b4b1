"""Servers that are no Kafka brokers: silent, rude, slow, or of another protocol."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from txnwatch.streaming.client.notations import Endpoint

Behaviour = Callable[[socket.socket, threading.Event], None]


def stays_silent(client: socket.socket, over: threading.Event) -> None:
    """Takes the connection and never answers."""
    del client
    over.wait()


def hangs_up(client: socket.socket, over: threading.Event) -> None:
    """Reads a request and closes."""
    del over
    client.recv(1 << 16)
    _close(client)


def answers(reply: bytes) -> Behaviour:
    """Reads a request, answers this, and waits."""

    def behave(client: socket.socket, over: threading.Event) -> None:
        client.recv(1 << 16)
        client.sendall(reply)
        over.wait()

    return behave


def answers_and_hangs_up(reply: bytes) -> Behaviour:
    """Reads a request, answers this, and closes."""

    def behave(client: socket.socket, over: threading.Event) -> None:
        del over
        client.recv(1 << 16)
        client.sendall(reply)
        _close(client)

    return behave


def _close(client: socket.socket) -> None:
    """Ends the connection without a reset.

    A request may arrive in two packets. The kernel resets a connection that is closed with bytes nobody has read, and
    the client then loses the answer.
    """
    client.shutdown(socket.SHUT_WR)
    while client.recv(1 << 16):
        pass


def trickles(client: socket.socket, over: threading.Event) -> None:
    """Announces an answer and sends it a byte at a time: there is always something to read, and never all."""
    client.sendall(b"\x00\x01\x00\x00")
    with contextlib.suppress(OSError):
        while not over.wait(0.05):
            client.sendall(b"\x00")


@contextlib.contextmanager
def bad_server(behave: Behaviour) -> Iterator[Endpoint]:
    """Where such a server listens."""
    over = threading.Event()
    threads: list[threading.Thread] = []
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)

    def serve(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            behave(client, over)

    def accept() -> None:
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                client, _ = listener.accept()
                client.settimeout(10.0)
                threads.append(threading.Thread(target=serve, args=(client,), daemon=True))
                threads[-1].start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield Endpoint("127.0.0.1", listener.getsockname()[1])
    finally:
        over.set()
        for thread in (acceptor, *threads):
            thread.join(10.0)
        listener.close()
