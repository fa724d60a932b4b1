"""A real schema registry behind a front that asks for a login, as a reverse proxy does."""

from __future__ import annotations

import http.client
import json
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from support.registry import SchemaRegistry

_PASSED_ON = ("Content-Type", "Accept")
_TIMEOUT_S = 30.0


def basic(user: str, password: str) -> str:
    """The header of Basic authentication."""
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


class GuardedRegistry:
    """The front; a context manager.

    Attributes:
        accepted: the values of the Authorization header that are let in.
        answered: how many requests the registry answered, by their Authorization header.
        refused: how many requests were refused.
    """

    def __init__(self, registry: SchemaRegistry, *accepted: str) -> None:
        self.accepted = set(accepted)
        self.answered: dict[str, int] = {}
        self.refused = 0
        self._registry = registry
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())

    @property
    def port(self) -> int:
        """Where it listens, without TLS."""
        return self._server.server_port

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """The status and the body of an answer."""
        authorization = headers.get("Authorization", "")
        if authorization not in self.accepted:
            self.refused += 1
            # Some proxies show what they have refused.
            return 401, json.dumps({"error_code": 401, "message": f"refused: {authorization}"}).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self._registry.port, timeout=_TIMEOUT_S)
        given = {name: headers[name] for name in _PASSED_ON if name in headers}
        try:
            connection.request(method, path, body or None, given)
            found = connection.getresponse()
            status, answer = found.status, found.read()
        finally:
            connection.close()
        self.answered[authorization] = self.answered.get(authorization, 0) + 1
        return status, answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        guard = self

        class GuardedHandler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                status, answer = guard.answer(self.command, self.path, dict(self.headers), self.rfile.read(length))
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_POST = do_GET  # noqa: N815 - the name that the base class calls

            def log_message(self, *_: object) -> None:
                pass

        return GuardedHandler
