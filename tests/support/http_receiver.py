"""A real HTTP server for tests of deliveries: it keeps every request, and answers as the test says."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """One request; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Says:
    """One answer."""

    status: int = 204
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class Receiver:
    """The server.

    Attributes:
        received: all requests, in order.
        taken: those that were answered with 2xx.
        answers: the next answers; then `usually`.
        gate: while it is closed, no request is answered.
    """

    def __init__(self, certificate: Path | None = None, key: Path | None = None) -> None:
        self.received: list[ReceivedRequest] = []
        self.taken: list[ReceivedRequest] = []
        self.answers: list[Says] = []
        self.usually: Callable[[ReceivedRequest], Says] = lambda _: Says()
        self.gate = threading.Event()
        self.gate.set()
        self.port = 0
        self._certificate = certificate
        self._key = key
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """Where it is reached."""
        scheme = "http" if self._certificate is None else "https"
        return f"{scheme}://localhost:{self.port}" if self._certificate else f"{scheme}://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listens; after a stop, on the same port."""
        receiver = self

        class ReceiverHandler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.serve(self)

            def do_GET(self) -> None:
                receiver.serve(self)

            def do_OPTIONS(self) -> None:
                receiver.serve(self)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", self.port), ReceiverHandler)
        server.daemon_threads = True
        if self._certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self._certificate, self._key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        self.port = server.server_address[1]
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Refuses connections."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        """Takes one request, and answers it."""
        body = handler.rfile.read(int(handler.headers.get("content-length", "0")))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        request = ReceivedRequest(handler.command, handler.path, headers, body)
        with self._lock:
            self.received.append(request)
            says = self.answers.pop(0) if self.answers else self.usually(request)
            if 200 <= says.status < 300:
                self.taken.append(request)
        assert self.gate.wait(60.0)
        try:
            handler.send_response(says.status)
            for name, value in says.headers.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(says.body)))
            handler.end_headers()
            handler.wfile.write(says.body)
        except OSError:  # the sender has not waited
            return


@contextmanager
def receiving(certificate: Path | None = None, key: Path | None = None) -> Iterator[Receiver]:
    """A server while the block runs."""
    receiver = Receiver(certificate, key)
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.gate.set()
        receiver.stop()
