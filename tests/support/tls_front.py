"""TLS in front of a server that has none: it asks each client for a certificate, as a server with TLS does."""

from __future__ import annotations

import contextlib
import selectors
import socket
import socketserver
import ssl
import threading
from typing import Self

from support.certificates import Authority

_CHUNK = 1 << 16


class TlsFront:
    """Listens on loopback and passes on what clients send that have a certificate of the authority; a context manager.

    Attributes:
        port: where it listens.
        connections: how many connections had such a certificate.
    """

    def __init__(self, port: int, authority: Authority) -> None:
        self._target = port
        self._authority = authority
        self._server: _TlsServer | None = None
        self.port = 0
        self.connections = 0

    @property
    def url(self) -> str:
        """Where it listens, for an HTTP client."""
        return f"https://127.0.0.1:{self.port}"

    def use(self, authority: Authority) -> None:
        """From here on it has a certificate of this authority, and accepts its clients alone; all connections end."""
        self._end()
        self._authority = authority
        self._listen()

    def __enter__(self) -> Self:
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _listen(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._authority.issue(f"front-{self._target}", "IP:127.0.0.1"))
        context.load_verify_locations(self._authority.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        self._server = _TlsServer(self, context, self._target)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def _end(self) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.end_connections()
        self._server.server_close()


class _TlsServer(socketserver.ThreadingTCPServer):
    """One thread a connection. `server_close` waits for all of them, so no socket outlives the server."""

    allow_reuse_address = True

    def __init__(self, front: TlsFront, context: ssl.SSLContext, target: int) -> None:
        super().__init__(("127.0.0.1", front.port), _Connection)
        self.front = front
        self.target = target
        self._context = context
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()

    def get_request(self) -> tuple[socket.socket, object]:
        accepted, address = super().get_request()
        # The handshake is for the thread of the connection: here it would stop all the others.
        connection = self._context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
        with self._lock:
            self._open.add(connection)
        return connection, address

    def close_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        assert isinstance(request, socket.socket)
        with self._lock:
            self._open.discard(request)
        super().close_request(request)

    def end_connections(self) -> None:
        """Both directions of each connection are shut down, which wakes its thread."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _Connection(socketserver.BaseRequestHandler):
    """Passes on in both directions, in one thread: a TLS connection is not for two threads."""

    server: _TlsServer

    def handle(self) -> None:
        here: ssl.SSLSocket = self.request
        with contextlib.suppress(OSError):
            here.do_handshake()
            self.server.front.connections += 1
            with socket.create_connection(("127.0.0.1", self.server.target)) as there:
                _pass_on(here, there)


def _pass_on(here: ssl.SSLSocket, there: socket.socket) -> None:
    with selectors.DefaultSelector() as ready:
        ready.register(here, selectors.EVENT_READ)
        ready.register(there, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                source, sink = (here, there) if key.fileobj is here else (there, here)
                data = source.recv(_CHUNK)
                if not data:
                    return
                # What TLS has decrypted already is not seen by a selector.
                while left := here.pending() if source is here else 0:
                    data += here.recv(left)
                sink.sendall(data)
