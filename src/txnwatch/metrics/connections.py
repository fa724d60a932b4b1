"""The limits of the metrics server's connections: their number, their time, and the size of a request.

Law: whatever its clients do, the server has at most `MOST` connections, and so as many descriptors and threads. One
address has at most `MOST_OF_ONE` of them, so that one client cannot keep the kubelet or Prometheus away. A further
connection is closed at once. A connection ends `DEADLINE_S` after its start at the latest: TLS handshake, request and
answer together.
"""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

MOST: Final = 64
MOST_OF_ONE: Final = 16
DEADLINE_S: Final = 10.0  # the default scrape timeout of Prometheus
_LONGEST_REQUEST: Final = 1 << 16


@dataclass(slots=True)
class _Open:
    """An open connection; `socket` is the one that is in use: with TLS, it replaces the accepted one."""

    address: str
    until_s: float
    socket: socket.socket


@dataclass
class Connections:
    """The open connections, each known by the socket that was accepted.

    Attributes:
        on_refused: is called for each refused connection.
    """

    on_refused: Callable[[], None]
    _open: dict[socket.socket, _Open] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def admit(self, accepted: socket.socket, address: str) -> bool:
        """Takes a new connection; False if there are too many."""
        with self._lock:
            of_this_address = Counter(one.address for one in self._open.values())[address]
            is_admitted = len(self._open) < MOST and of_this_address < MOST_OF_ONE
            if is_admitted:
                self._open[accepted] = _Open(address, time.monotonic() + DEADLINE_S, accepted)
        if not is_admitted:
            self.on_refused()
        return is_admitted

    def replace(self, accepted: socket.socket, secured: socket.socket) -> None:
        """Takes the socket of a TLS connection in place of the accepted one, which has no descriptor any more."""
        with self._lock:
            self._open[accepted].socket = secured

    def release(self, accepted: socket.socket) -> None:
        """Forgets a connection that has ended; a refused one is not known."""
        with self._lock:
            self._open.pop(accepted, None)

    def end_overdue(self) -> None:
        """Ends the connections whose time is over: their threads get an error from whatever they wait for."""
        now_s = time.monotonic()
        self._end(lambda one: one.until_s <= now_s)

    def end_all(self) -> None:
        """Ends all connections."""
        self._end(lambda _: True)

    def _end(self, is_over: Callable[[_Open], bool]) -> None:
        with self._lock:
            ended = [one.socket for one in self._open.values() if is_over(one)]
        for one in ended:
            with contextlib.suppress(OSError):
                # Not the method of a TLS socket: its thread would write the rest of the answer without TLS.
                socket.socket.shutdown(one, socket.SHUT_RDWR)


class _Reads(Protocol):
    """A raw stream of bytes."""

    def readinto(self, buffer: memoryview, /) -> int | None: ...
    def close(self) -> None: ...


class RequestStream(io.RawIOBase):
    """A request as a stream of bytes, which fails beyond 64 KiB: http.server accepts 6 MB of headers."""

    def __init__(self, stream: _Reads) -> None:
        self._stream = stream
        self._left = _LONGEST_REQUEST

    def readable(self) -> bool:
        """Always: a stream for reading."""
        return True

    def readinto(self, buffer: object) -> int:
        """Reads at least a byte; 0 at the end."""
        if not self._left:
            raise ConnectionAbortedError("the request is too long")
        size = self._stream.readinto(memoryview(buffer)[: self._left]) or 0  # type: ignore[arg-type]
        self._left -= size
        return size

    def close(self) -> None:
        """Closes the stream below as well."""
        self._stream.close()
        super().close()


class AnswerStream(io.BufferedIOBase):
    """An answer as a stream of bytes. Whatever ends the connection is an error that wsgiref does not log."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def writable(self) -> bool:
        """Always: a stream for writing."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Sends all."""
        try:
            self._connection.sendall(data)
        except OSError as exc:
            raise ConnectionAbortedError("the client does not read the answer") from exc
        return len(data)
