"""Metrics over HTTP: `/metrics` for Prometheus, `/-/healthy` and `/-/ready` as probes.

Healthy means that the process answers: an unreachable cluster is no reason to restart it. Ready means that barriers are
evaluated. Each connection has its own thread, so that a client that sends nothing delays no other. `connections.py` has
the limits of connections; beside them, a client that sends nothing for 5 s is disconnected.

Law: only one thread, always the same, collects the metrics. A scrape reads the query's progress through Spark's
gateway, and the gateway keeps a connection for each thread.
"""

from __future__ import annotations

import base64
import contextlib
import io
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from txnwatch.config import RunSettings
from txnwatch.metrics.collector import Metrics
from txnwatch.metrics.connections import AnswerStream, Connections, RequestStream
from txnwatch.metrics.web_config import TlsFiles, Users, WebConfig, read_web_config
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.model.ports import Log

_PATIENCE_S = 5
_COLLECTING_S = 8  # less than the deadline of a connection, so that the answer can be sent


class MetricsServer:
    """Serves a registry until it is closed.

    Attributes:
        url: the address it listens on.

    Raises:
        ConfigError: the server cannot listen on the address.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        host: str,
        port: int,
        is_ready: Callable[[], bool],
        web: WebConfig | None = None,
        on_refused: Callable[[], None] = lambda: None,
    ) -> None:
        self._metrics = make_wsgi_app(registry)
        self._is_ready = is_ready
        self._collector = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metrics-collector")
        web = WebConfig() if web is None else web
        self._users, self._headers = web.users, web.headers
        try:
            kind = _server_of(host, web.tls, Connections(on_refused))
            self._server = make_server(host, port, self._serve, kind, _Handler)
        except OSError as exc:
            raise ConfigError(f"metrics_port: expected a free address, found {host}:{port}: {exc.strerror}") from exc
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'http' if web.tls is None else 'https'}://{shown}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def protect(self, web: WebConfig) -> None:
        """Replaces TLS, users and headers, from the next connection on."""
        self._users, self._headers, self._server.tls = web.users, web.headers, web.tls

    def close(self) -> None:
        """Stops listening, and ends all connections."""
        self._server.shutdown()
        self._server.server_close()
        self._server.connections.end_all()
        self._collector.shutdown(wait=False, cancel_futures=True)

    def _serve(self, environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        respond = _with_headers(respond, self._headers)
        if self._users is not None and not is_known(self._users, environ.get("HTTP_AUTHORIZATION", "")):
            return _answer(respond, "401 Unauthorized", "expected a user and a password", ("WWW-Authenticate", "Basic"))
        match environ["PATH_INFO"]:
            case "/metrics":
                return self._collected(environ, respond)
            case "/-/healthy":
                return _answer(respond, "200 OK", "healthy")
            case "/-/ready":
                is_ready = self._is_ready()
                return _answer(
                    respond, *(("200 OK", "ready") if is_ready else ("503 Service Unavailable", "not ready"))
                )
            case _:
                return _answer(respond, "404 Not Found", "expected /metrics, /-/healthy or /-/ready")

    def _collected(self, environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        scrape: Future[Iterable[bytes]] = self._collector.submit(self._metrics, environ, respond)
        try:
            return scrape.result(_COLLECTING_S)
        except TimeoutError:
            scrape.cancel()
            return _answer(respond, "503 Service Unavailable", f"the metrics took more than {_COLLECTING_S} s")


def is_known(users: Users, header: str) -> bool:
    """Whether the Authorization header of a request has a user and the password; anything else is no."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return False
    try:
        user, has_password, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:  # neither ASCII, base64 nor UTF-8
        return False
    return bool(has_password) and users.accept(user, password)


def _with_headers(respond: Callable[..., Any], headers: Mapping[str, str]) -> Callable[..., Any]:
    return lambda status, own, *rest: respond(status, [*own, *headers.items()], *rest)


def _answer(respond: Callable[..., Any], status: str, text: str, *headers: tuple[str, str]) -> list[bytes]:
    respond(status, [("Content-Type", "text/plain; charset=utf-8"), *headers])
    return [f"{text}\n".encode()]


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection. The TLS handshake is made in that thread, too."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    tls: TlsFiles | None = None
    connections: Connections

    def server_bind(self) -> None:
        """Binds without the look-up of the host's name, which can take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ANN401 - as in socketserver
        """Whether there is room for the connection; if not, it is closed."""
        return self.connections.admit(request, str(client_address[0]))

    def service_actions(self) -> None:
        """Ends what takes too long; called after each new connection, and every half second."""
        self.connections.end_overdue()

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in socketserver
        """Answers one request, over TLS if it is configured."""
        request.settimeout(_PATIENCE_S)
        if self.tls is None:
            super().finish_request(request, client_address)
            return
        self.tls.refresh()
        with self.tls.context.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as secured:
            self.connections.replace(request, secured)
            secured.do_handshake()
            super().finish_request(secured, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - as in socketserver
        """Closes a connection; called once for each, whatever has happened to it."""
        super().shutdown_request(request)
        self.connections.release(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in socketserver
        """Ignores what a client causes: no handshake, a closed connection, nothing sent in time."""


def _server_of(host: str, tls: TlsFiles | None, connections: Connections) -> type[_Server]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return type("_BoundServer", (_Server,), {"address_family": family, "tls": tls, "connections": connections})


class _Handler(WSGIRequestHandler):
    """Logs nothing, looks up no names, and waits at most 5 s for a client that sends nothing."""

    timeout = _PATIENCE_S
    rbufsize = 0  # `setup` adds the buffer

    def setup(self) -> None:
        """Limits the size of the request, and replaces the stream of the answer."""
        super().setup()
        self.rfile = io.BufferedReader(RequestStream(self.rfile))
        self.wfile = AnswerStream(self.connection)

    def address_string(self) -> str:
        """The address of the client."""
        return str(self.client_address[0])

    def log_message(self, *_: object) -> None:
        """Logs no requests: scrapes are regular."""


# Serves the metrics of a watch, if its settings say so.


@contextlib.contextmanager
def served_metrics(settings: RunSettings, metrics: Metrics, log: Log) -> Iterator[MetricsServer | None]:
    """Serves the metrics while the block runs, if `metrics_port` is set; yields the server.

    Raises:
        ConfigError: the port is in use, or the web configuration file is invalid.
    """
    port = settings.metrics_port
    if port is None:
        yield None
        return
    web = read_web_config(settings.metrics_web_config_file)
    server = MetricsServer(
        metrics.registry,
        settings.metrics_host,
        port,
        lambda: metrics.is_judging,
        web,
        metrics.count_refused_connection,
    )
    log.info(f"metrics at {server.url}/metrics")
    try:
        yield server
    finally:
        server.close()
