"""A TCP forwarder: the address of a server that is away until it is started, or that is behind a slow link."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Self

_ANY_PORT = 0
_CHUNK, _SMALL_CHUNK = 1 << 16, 1 << 13


class Forwarder:
    """Passes bytes between its port and a server. A context manager; nobody listens until `start`.

    Attributes:
        is_stalled: while it is set, nothing that the server sends is passed on (only with `bytes_per_s`).
        is_cut: while it is set, nothing is passed on in either direction, not even the end of a connection.
    """

    def __init__(self, target: tuple[str, int], *, bytes_per_s: int | None = None, cut_at: bytes | None = None) -> None:
        """Prepares a forwarder; all that the server sends is passed on at `bytes_per_s`, if that is given.

        It cuts itself before it passes on bytes that have the text `cut_at`, and only the first time.
        """
        self._cut_at = cut_at
        self.is_stalled = threading.Event()
        self.is_cut = threading.Event()
        self._target = target
        self._bytes_per_s = bytes_per_s
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", _ANY_PORT))  # bound, so that no other process gets it, and not listening
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> str:
        """host:port."""
        return "{}:{}".format(*self._listener.getsockname())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_cut.clear()
        for ending in (self._listener, *(end for pair in self._pairs for end in pair)):
            with contextlib.suppress(OSError):
                ending.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10.0)
        for ending in (self._listener, *(end for pair in self._pairs for end in pair)):
            ending.close()

    def start(self) -> None:
        """From here on connections are taken."""
        self._listener.listen()
        self._run(self._accept)

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        """Nothing is passed on while the block runs."""
        self.is_cut.set()
        try:
            yield
        finally:
            self.is_cut.clear()

    def _run(self, work: object, *arguments: socket.socket) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._target, timeout=10.0)
                except OSError:
                    client.close()
                    continue
                server.settimeout(None)
                self._pairs.append((client, server))
                self._run(self._pass_on, client, server)
                self._run(self._pass_back, server, client)

    def _pass_back(self, server: socket.socket, client: socket.socket) -> None:
        """The way of the answers: at the rate of the link, and not at all while it is stalled."""
        if self._bytes_per_s is None:
            self._pass_on(server, client)
            return
        with contextlib.suppress(OSError):
            while data := server.recv(_SMALL_CHUNK):
                while self.is_stalled.is_set():
                    time.sleep(0.01)
                time.sleep(len(data) / self._bytes_per_s)
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                data = source.recv(_CHUNK)
                if self._cut_at is not None and self._cut_at in data:
                    self._cut_at = None
                    self.is_cut.set()
                while self.is_cut.is_set():
                    time.sleep(0.01)
                if not data:
                    break
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
