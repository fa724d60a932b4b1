"""Metrics over HTTP: `/metrics` for Prometheus, `/-/healthy` and `/-/ready` as probes.

Healthy means that the process answers: an unreachable cluster is no reason to restart it. Ready means that barriers are
judged. One thread serves all requests, because a scrape reads the query's progress through Spark's gateway, and the
gateway keeps a connection for each thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from txnwatch.state.model.errors import ConfigError

_PATIENCE_S = 5


class MetricsServer:
    """Serves a registry until it is closed.

    Attributes:
        url: the address it listens on.

    Raises:
        ConfigError: the server cannot listen on the address.
    """

    def __init__(self, registry: CollectorRegistry, host: str, port: int, is_ready: Callable[[], bool]) -> None:
        self._metrics = make_wsgi_app(registry)
        self._is_ready = is_ready
        try:
            self._server = make_server(host, port, self._serve, WSGIServer, _Handler)
        except OSError as exc:
            raise ConfigError(f"metrics_port: expected a free address, found {host}:{port}: {exc.strerror}") from exc
        self.url = f"http://{host}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        match environ["PATH_INFO"]:
            case "/metrics":
                found: Iterable[bytes] = self._metrics(environ, respond)
                return found
            case "/-/healthy":
                return _answer(respond, "200 OK", "healthy")
            case "/-/ready":
                is_ready = self._is_ready()
                return _answer(
                    respond, *(("200 OK", "ready") if is_ready else ("503 Service Unavailable", "not ready"))
                )
            case _:
                return _answer(respond, "404 Not Found", "expected /metrics, /-/healthy or /-/ready")


def _answer(respond: Callable[..., Any], status: str, text: str) -> list[bytes]:
    respond(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{text}\n".encode()]


class _Handler(WSGIRequestHandler):
    """Logs nothing, and waits at most 5 s for a client that sends nothing."""

    timeout = _PATIENCE_S

    def log_message(self, *_: object) -> None:
        """Logs no requests: scrapes are regular."""
