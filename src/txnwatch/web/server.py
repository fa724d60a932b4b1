"""The HTTP server of a watch: the page and its JSON, `/metrics` for Prometheus, `/-/healthy` and `/-/ready` as probes.

Healthy means that the process answers: an unreachable cluster is no reason to restart it. Ready means that barriers are
evaluated. One thread of the driver has an event loop for all connections; `connections.py` has their limits. If the
loop ends with an error, the watch goes on, and the loop is started again. If only the work of the page ends, the
metrics and the probes go on as well, `txnwatch_page_up` is 0, and the work is started again after a minute. Meanwhile
the streams have no new picture, so every browser says that nothing is known.

Law:
    * Only one thread, always the same, collects the metrics and reads the query's progress: both go through Spark's
      gateway, and the gateway keeps a connection for each thread.
    * Passwords are checked in a thread of their own, one after another: bcrypt is slow by design, and the loop has to
      answer the others. A client with wrong passwords keeps one core busy, not all. If too many wait, some are answered
      with 503 (password_checks.py). A request without a password, or with one that was accepted before, never waits.
    * A request with Content-Length and Transfer-Encoding is answered, and its connection is closed (RFC 9112, 6.1): a
      proxy may have found another end of it.
    * Nothing that a client sends is written to the log.
    * On a loopback address every path is only for a request with a name of this server. On another address the metrics
      and the probes answer any name, because Prometheus and load balancers have names of their own for this server.
      The page checks the name on every address.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry, make_wsgi_app
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from txnwatch.config import RunSettings
from txnwatch.metrics.collector import Metrics
from txnwatch.page.site_files import OwnHosts, Serve
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.model.pauses import GrowingPause
from txnwatch.state.model.ports import Log
from txnwatch.web.connections import Connections
from txnwatch.web.slow_work import SlowWork
from txnwatch.web.web_config import Users, WebConfig, read_web_config

COLLECTING_S: Final = 8  # less than the deadline of a request, so that the answer can be sent
_END_S: Final = 0.5
_RETRY_S: Final = 5  # after an answer that too much slow work waits
_WAITING: Final = 1024  # connections that the kernel keeps until they are accepted, or closed at once
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
SITE_PAUSE_S = 60.0
# Every answer has these; the web configuration file may replace some of them.
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types lit-html",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Site(Protocol):
    """What the server has beside the metrics and the probes.

    Attributes:
        hosts: the names of this server.
        routes: the paths.
    """

    @property
    def hosts(self) -> OwnHosts:
        """The names of this server."""

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """The paths."""

    async def work(self, collect: Callable[[Callable[[], Any]], Any]) -> None:
        """Runs in the loop until it is cancelled; `collect` calls a function in the thread of the metrics."""

    def end(self) -> None:
        """Ends the streams, in the loop."""


class WebServer:
    """Serves a site, a registry and the probes until it is closed.

    Attributes:
        url: the address it listens on.
        is_site_up: whether the work of the site goes on.

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
        site: Site | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._metrics = make_wsgi_app(registry)
        self._is_ready, self._on_refused, self._site, self._report = is_ready, on_refused, site, report
        self._collector = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metrics-collector")
        self._passwords = ThreadPoolExecutor(max_workers=1, thread_name_prefix="web-passwords")
        self._web = WebConfig() if web is None else web
        self._closing = threading.Event()
        self.is_site_up = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connections: Connections | None = None
        self._is_local = _is_loopback(host)
        self._listening = _listening(host, port)
        shown = f"[{host}]" if ":" in host else host
        scheme = "http" if self._web.tls is None else "https"
        self.url = f"{scheme}://{shown}:{self._listening.getsockname()[1]}"
        silence = logging.getLogger("uvicorn")
        silence.setLevel(logging.CRITICAL + 1)
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)
        self._thread.start()

    def protect(self, web: WebConfig) -> None:
        """Replaces TLS from the next connection on, users and headers from the next answer on.

        If other clients are admitted now, the present connections end; a page makes a new one and is asked again.
        """
        before, self._web = self._web, web
        connections, loop = self._connections, self._loop
        if connections is None or loop is None:
            return
        connections.tls = web.tls
        if not web.admits_as(before):
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(connections.end_present)

    def close(self) -> None:
        """Stops listening, and ends all connections."""
        self._closing.set()
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_END_S * 3)
        self._listening.close()
        for pool in (self._collector, self._passwords):
            pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        pauses = GrowingPause(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while not self._closing.is_set():
            try:
                asyncio.run(self._serve())
            except Exception as exc:  # noqa: BLE001 - the watch goes on without its page
                pause_s = pauses.next()
                self._report(f"the HTTP server has ended, and starts again in {pause_s:.0f} s: {exc!r}")
                self._closing.wait(pause_s)

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        loop = self._loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)  # what a client causes
        if self._closing.is_set():
            return
        connections = self._connections = Connections(self._application(), self._web.tls, self._on_refused)
        jobs = [asyncio.ensure_future(connections.accept(self._listening))]
        if self._site is not None:
            jobs.append(asyncio.ensure_future(self._work(self._site)))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([*jobs, stopping], return_when=asyncio.FIRST_COMPLETED)
            for job in jobs:
                if job.done():
                    job.result()
        finally:
            for job in jobs:
                job.cancel()
            if self._site is not None:
                self._site.end()
            await connections.end(_END_S)

    async def _work(self, site: Site) -> None:
        """The work of the site, until it is cancelled; after an error it is started again."""
        while True:
            self.is_site_up = True
            try:
                await site.work(self._collect)
            except Exception as exc:  # noqa: BLE001 - the metrics and the probes go on
                self._report(f"the page has ended, and starts again in {SITE_PAUSE_S:.0f} s: {exc!r}")
            finally:
                self.is_site_up = False
            await asyncio.sleep(SITE_PAUSE_S)

    async def _collect(self, read: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the function returns
        return await asyncio.get_running_loop().run_in_executor(self._collector, read)

    def _application(self) -> ASGIApp:
        hosts = self._site.hosts if self._site is not None else OwnHosts()
        answers: dict[str, Serve] = {
            "/metrics": self._metrics_answer,
            "/-/healthy": _healthy,
            "/-/ready": self._ready_answer,
        }
        routes = [
            *(Route(path, hosts.guarded(serve) if self._is_local else serve) for path, serve in answers.items()),
            *(self._site.routes if self._site is not None else ()),
        ]
        app = Starlette(routes=routes, exception_handlers={HTTPException: _problem})
        self._scrapes = SlowWork[Response](self._collector)
        return _Guard(app, lambda: self._web, SlowWork[bool](self._passwords), self._report)

    async def _ready_answer(self, _: Request) -> Response:
        is_ready = self._is_ready()
        return PlainTextResponse("ready\n" if is_ready else "not ready\n", 200 if is_ready else 503)

    async def _metrics_answer(self, request: Request) -> Response:
        environ = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": "/metrics",
            "QUERY_STRING": request.url.query,
            "HTTP_ACCEPT": request.headers.get("accept", ""),
            "HTTP_ACCEPT_ENCODING": request.headers.get("accept-encoding", ""),
        }
        collecting = self._scrapes.result(_address_of(request.scope), lambda: _of_wsgi(self._metrics, environ))
        try:
            answer = await asyncio.wait_for(collecting, COLLECTING_S)
        except TimeoutError:
            return PlainTextResponse(f"the metrics took more than {COLLECTING_S} s\n", 503)
        return _too_many("scrapes wait for the metrics") if answer is None else answer


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_WAITING)
    except OSError as exc:
        raise ConfigError(f"http_port: expected a free address, found {host}:{port}: {exc.strerror}") from exc
    listening.setblocking(False)
    return listening


def _of_wsgi(app: Callable[..., Any], environ: dict[str, str]) -> Response:
    """The answer of prometheus_client's application, which is one of WSGI."""
    begun: list[tuple[str, list[tuple[str, str]]]] = []
    body = b"".join(app(environ, lambda status, headers: begun.append((status, headers))))
    ((status, headers),) = begun
    return Response(body, int(status.partition(" ")[0]), dict(headers))


async def _healthy(_: Request) -> Response:
    return PlainTextResponse("healthy\n")


async def _problem(request: Request, error: Exception) -> Response:
    """What cannot be answered, and what was expected; as JSON to who asks for JSON."""
    assert isinstance(error, HTTPException)
    is_api = "/api/v1/" in request.url.path
    paths = "a resource that /api/v1/schema has" if is_api else "/, /api/v1/status, /metrics, /-/healthy or /-/ready"
    texts = {404: f"expected {paths}, found another path", 405: f"expected GET, found {request.method}"}
    text = texts.get(error.status_code, error.detail)
    if is_api:
        return JSONResponse({"error": text}, error.status_code, error.headers)
    return PlainTextResponse(f"{text}\n", error.status_code, error.headers)


_LENGTHS: Final = {b"content-length", b"transfer-encoding"}
_ASKED: Final = PlainTextResponse(
    "expected a user and a password\n", 401, {"WWW-Authenticate": 'Basic realm="txnwatch"'}
)


def _too_many(wait: str) -> Response:
    return PlainTextResponse(f"too many {wait}\n", 503, {"Retry-After": str(_RETRY_S)})


def _address_of(scope: Scope) -> str:
    return scope["client"][0] if scope["client"] else ""


class _Guard:
    """Asks for a user, if the web configuration has users, and gives every answer its headers."""

    def __init__(
        self,
        app: ASGIApp,
        web: Callable[[], WebConfig],
        passwords: SlowWork[bool],
        report: Callable[[str], None],
    ) -> None:
        self._app, self._web, self._passwords, self._report = app, web, passwords, report

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        web = self._web()
        closing = [(b"connection", b"close")] if {name for name, _ in scope["headers"]} >= _LENGTHS else []

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*_completed(message["headers"], web.headers), *closing]
            await send(message)

        is_known = await self._is_known(web.users, scope) if web.users is not None else True
        if not is_known:
            answer = _ASKED if is_known is not None else _too_many("passwords wait for their check")
            await answer(scope, receive, with_headers)
            return
        try:
            await self._app(scope, receive, with_headers)
        except Exception as exc:  # noqa: BLE001 - one answer fails, which Starlette says, and the others do not
            self._report(f"an answer of the HTTP server has failed: {type(exc).__name__}")

    async def _is_known(self, users: Users, scope: Scope) -> bool | None:
        """Whether the request has the password of a user; None if too many wait for their check."""
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"").decode("latin-1")
        login = credentials(header)
        if login is None:
            return False
        if users.has_accepted(*login):
            return True
        return await self._passwords.result(_address_of(scope), lambda: users.accept(*login))


def credentials(header: str) -> tuple[str, str] | None:
    """The user and the password in the Authorization header of a request; None if it has none."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, has_password, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:  # neither ASCII, base64 nor UTF-8
        return None
    return (user, password) if has_password else None


def _completed(headers: Sequence[tuple[bytes, bytes]], chosen: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """The headers of an answer with those of every answer; its own come first, then those of the file."""
    wanted = {name.lower().encode(): value.encode("latin-1") for name, value in {**HEADERS, **chosen}.items()}
    own = {name.lower() for name, _ in headers}
    return [*headers, *((name, value) for name, value in wanted.items() if name not in own)]


# Serves a site at the place that the settings name.

_PUBLIC: Final = " (without users: whoever reaches it reads the names of topics, ids and groups; see docs/hardening.md)"


class HttpPlace(Protocol):
    """Where the server listens, and how it is protected: the settings of `run` and the flags of `page`."""

    @property
    def http_host(self) -> str:
        """The address."""

    @property
    def http_web_config_file(self) -> Path | None:
        """The file with TLS, users and headers."""


@dataclass(frozen=True, slots=True)
class Served:
    """What the server has beside a site.

    Attributes:
        is_ready: what the probe `/-/ready` answers.
        on_refused: is called for each refused connection.
    """

    registry: CollectorRegistry
    is_ready: Callable[[], bool]
    on_refused: Callable[[], None] = lambda: None


def is_private(place: HttpPlace, web: WebConfig) -> bool:
    """Whether only this machine, or somebody with a password or a certificate, reaches the page."""
    has_certificates = web.tls is not None and web.tls.context.verify_mode is ssl.CERT_REQUIRED
    return _is_loopback(place.http_host) or web.users is not None or has_certificates


@contextlib.contextmanager
def serving(place: HttpPlace, port: int, served: Served, log: Log, site: Site | None = None) -> Iterator[WebServer]:
    """Serves the site and the metrics while the block runs; yields the server.

    Raises:
        ConfigError: the port is in use, or the web configuration file is invalid.
    """
    web = read_web_config(place.http_web_config_file)
    server = WebServer(
        served.registry, place.http_host, port, served.is_ready, web, served.on_refused, site, log.warning
    )
    if site is not None:
        log.info(f"the page is at {server.url}/{'' if is_private(place, web) else _PUBLIC}")
    log.info(f"metrics at {server.url}/metrics")
    try:
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def served(settings: RunSettings, metrics: Metrics, log: Log, site: Site | None = None) -> Iterator[WebServer | None]:
    """Serves a watch while the block runs, if `http_port` is set; yields the server.

    Raises:
        ConfigError: see `serving`.
    """
    if settings.http_port is None:
        yield None
        return
    of_watch = Served(metrics.registry, lambda: metrics.is_judging, metrics.count_refused_connection)
    with serving(settings, settings.http_port, of_watch, log, site) as server:
        metrics.is_page_up = lambda: server.is_site_up
        yield server
