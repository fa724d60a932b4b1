"""A TLS server in front of an HTTP server: it asks each client for a certificate, and its own can change."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from support.certificates import Authority


class TlsFront(ThreadingHTTPServer):
    """Passes requests on to a port, one for each connection. A context manager."""

    daemon_threads = True

    def __init__(self, target_port: int, authority: Authority) -> None:
        """Prepares it; see `use` for the authority."""
        super().__init__(("127.0.0.1", 0), _Passing)
        self.target_port = target_port
        self.use(authority)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"https://127.0.0.1:{self.server_port}"

    def use(self, authority: Authority) -> None:
        """From here on it has the certificate `server` of this authority, and accepts its clients alone."""
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(authority.directory / "server.pem")
        self._context.load_verify_locations(authority.certificate)
        self._context.verify_mode = ssl.CERT_REQUIRED

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def get_request(self) -> tuple[socket.socket, Any]:
        """A connection, after its handshake; the server goes on if the handshake fails."""
        plain, address = super().get_request()
        return self._context.wrap_socket(plain, server_side=True), address


class _Passing(BaseHTTPRequestHandler):
    server: TlsFront

    def do_GET(self) -> None:
        self._pass()

    def do_POST(self) -> None:
        self._pass()

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: self.headers[name] for name in ("Accept", "Content-Type") if name in self.headers}
        target = http.client.HTTPConnection("127.0.0.1", self.server.target_port, timeout=30.0)
        with contextlib.closing(target):
            target.request(self.command, self.path, body, headers)
            answer = target.getresponse()
            content = answer.read()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.getheader("Content-Type", ""))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass
