"""The connections of the HTTP server: their number, their time, and the size of a request.

Apart: it limits the connections of any HTTP server; what is served, and to whom, is in server.py.

Law: whatever its clients do, the server has at most `MOST` connections, and so as many descriptors. A request arrives
within `REQUEST_S`, and its answer is read within `DEADLINE_S`. Both times begin when the connection is accepted, so
they include the TLS handshake; for a later request on the same connection they begin with its first byte. A stream has
no end, but each of its messages has `DEADLINE_S`.

Law: a client takes no place from an address that has fewer places than its own, whatever either of them does. So no
address can keep a probe of the kubelet away: neither with connections that send nothing, nor with whole requests, nor
while the probe itself has not been read yet. If all places are taken, a connection that has waited for its request for
longer than `SILENT_S` gives its place up, so silent clients take no answer away, however many addresses they have. Only
then an address with the most places gives one up: first the connection that has waited longest for its request, then
the one that has left its answer unread for longest. All these cost nobody an answer. A connection that is being
answered goes only if its address keeps at least as many places as that of the new one gets; else the new connection is
closed. Streams keep their places and are not counted: the page has fewer of them than there are places.

No law: many addresses. As many of them as there are places, each with a whole request, leave no place for anybody else.

Each connection is accepted here and not by asyncio's own server, because TLS is chosen for each one: a context that
asyncio's server was started with can be replaced later, but its `verify_mode` stays (a client without a certificate
would be served after a reload that requires one).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Protocol, TypeVar, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from txnwatch.web.web_config import TlsFiles

MOST: Final = 128
REQUEST_S: Final = 5.0
SILENT_S: Final = 1.0  # a client that has connected sends its request at once
DEADLINE_S: Final = 10.0  # the default scrape timeout of Prometheus
_IDLE_S: Final = 10  # between two requests on one connection
_LONGEST_HEADERS: Final = 1 << 14
_NO_DESCRIPTOR_S: Final = 0.1
_TLS_END_S: Final = 1.0


class ConnectionStage(IntEnum):
    """What a connection does. The first ones give their place up first."""

    SILENT = 0  # it has waited for longer than SILENT_S
    WAITING = 1  # for a request, or for the rest of one
    UNREAD = 2  # its client does not read the answer
    ANSWERING = 3
    STREAM = 4


class PlaceHolder(Protocol):
    """A connection that has a place."""

    @property
    def address(self) -> str:
        """The address of its client."""

    @property
    def stage(self) -> ConnectionStage:
        """What it does."""

    @property
    def since_s(self) -> float:
        """When it began to do so."""


H = TypeVar("H", bound=PlaceHolder)


def to_close(held: Iterable[H], address: str) -> H | None:
    """The connection that gives its place to a new one of this address; None if the new one gets none."""
    candidates = [connection for connection in held if connection.stage is not ConnectionStage.STREAM]
    counts = Counter(connection.address for connection in candidates)
    silent = [
        connection
        for connection in candidates
        if connection.stage is ConnectionStage.SILENT and counts[connection.address] >= counts[address]
    ]
    choice = min(
        silent or candidates,
        key=lambda connection: (-counts[connection.address], connection.stage, connection.since_s),
        default=None,
    )
    if choice is None or (choice.stage is ConnectionStage.ANSWERING and counts[choice.address] <= counts[address] + 1):
        return None
    return choice


class HttpConnection(H11Protocol):
    """One connection: the protocol of uvicorn with a deadline for each request.

    A request finds it as `connection` in the state of its ASGI scope.

    Attributes:
        address: of its client.
        since_s: when its present stage began, by the clock of the loop.
        opening: the task that accepts it.
    """

    def __init__(
        self, config: uvicorn.Config, state: ServerState, address: str, on_end: Callable[[HttpConnection], None]
    ) -> None:
        super().__init__(config, state, {"connection": self})
        self.address = address
        self.opening: asyncio.Task[None] | None = None
        self._on_end = on_end
        self._is_made = self._is_ending = self._is_stream = False
        self._since_s: float | None = self.loop.time()
        self.since_s = self._since_s
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def stage(self) -> ConnectionStage:
        """What it does; before its handshake is over it waits."""
        if self._is_made:
            if self._is_stream:
                return ConnectionStage.STREAM
            if self.transport.get_write_buffer_size():
                return ConnectionStage.UNREAD
            if self._has_whole_request:
                return ConnectionStage.ANSWERING
        is_silent = self.loop.time() - self.since_s > SILENT_S
        return ConnectionStage.SILENT if is_silent else ConnectionStage.WAITING

    @property
    def _has_whole_request(self) -> bool:
        return self._since_s is not None and self.conn.their_state in {h11.DONE, h11.MUST_CLOSE}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The TLS handshake is over, or there is none."""
        super().connection_made(transport)
        self._is_made = True
        self._end_at((self._since_s or self.loop.time()) + REQUEST_S)

    def data_received(self, data: bytes) -> None:
        """Gives the first byte of a request a deadline, and a longer one to the answer."""
        if self._since_s is None:
            self._since_s = self.since_s = self.loop.time()
            self._end_at(self._since_s + REQUEST_S)
        super().data_received(data)
        if self._since_s is not None and self._has_whole_request:
            self.since_s = self.loop.time()
            self._end_at(self._since_s + DEADLINE_S)

    def on_response_complete(self) -> None:
        """The answer is written; the deadline stays until the client has read it."""
        self._since_s, self._is_stream = None, False
        self.since_s = self.loop.time()
        if not self.transport.get_write_buffer_size():
            self._has_no_deadline()
        super().on_response_complete()

    def continues(self) -> None:
        """A stream is about to send its next message: the client has to read it within `DEADLINE_S`."""
        if self._is_ending:
            self.transport.abort()
            return
        self._is_stream = True
        self._end_at(self.loop.time() + DEADLINE_S)

    def timeout_keep_alive_handler(self) -> None:
        """Ends an idle connection; what its client has not read by now is not sent any more."""
        self.transport.abort()

    def end_soon(self) -> None:
        """Ends an idle connection now, one with a request after its answer, and a stream before its next message."""
        self._is_ending = True
        self.shutdown()

    def end_now(self) -> None:
        """Ends it, whatever it does."""
        if self._is_made:
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    def connection_was_not_made(self) -> None:
        """Frees the place of a connection whose handshake has failed."""
        self._on_end(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the deadline and frees the place of the connection."""
        self._has_no_deadline()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._on_end(self)

    def _end_at(self, when_s: float) -> None:
        self._has_no_deadline()
        self._deadline = self.loop.call_at(when_s, self._is_overdue)

    def _has_no_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _is_overdue(self) -> None:
        if self._since_s is not None or self.transport.get_write_buffer_size():
            self.transport.abort()


@dataclass
class Connections:
    """Accepts connections and serves an application on them.

    Attributes:
        app: the application.
        tls: the certificates of the next connection; None without TLS.
        on_refused: is called for each connection that gets no place, or gives its place up.
    """

    app: ASGIApp
    tls: TlsFiles | None
    on_refused: Callable[[], None]
    _state: ServerState = field(default_factory=ServerState)
    _held: dict[HttpConnection, None] = field(default_factory=dict)
    _opening: set[asyncio.Task[None]] = field(default_factory=set)
    _no_more: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._config = uvicorn.Config(
            self.app,
            http=HttpConnection,
            loop="asyncio",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_IDLE_S,
            h11_max_incomplete_event_size=_LONGEST_HEADERS,
        )
        self._config.load()

    async def accept(self, listening: socket.socket) -> None:
        """Accepts connections until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError:  # no descriptor is left, or the client has gone
                await asyncio.sleep(_NO_DESCRIPTOR_S)
                continue
            self._take(accepted, str(address[0]))
            await asyncio.sleep(0)  # the next one may wait already: the others have their turn first

    def _take(self, accepted: socket.socket, address: str) -> None:
        if len(self._held) >= MOST:
            self.on_refused()
            closed = to_close(self._held, address)
            if closed is None:
                accepted.close()
                return
            self._release(closed)
            closed.end_now()
        connection = HttpConnection(self._config, self._state, address, self._release)
        self._held[connection] = None
        connection.opening = asyncio.get_running_loop().create_task(self._open(accepted, connection))
        self._opening.add(connection.opening)
        connection.opening.add_done_callback(self._opening.discard)

    def _release(self, connection: HttpConnection) -> None:
        self._held.pop(connection, None)
        if not self._held:
            self._no_more.set()

    async def _open(self, accepted: socket.socket, connection: HttpConnection) -> None:
        """Makes the TLS handshake, if there is one, with the certificates as they are on the disk now."""
        loop = asyncio.get_running_loop()
        times: dict[str, float] = {}
        context = None
        if self.tls is not None:
            self.tls.refresh()
            context = self.tls.context
            times = {"ssl_handshake_timeout": REQUEST_S, "ssl_shutdown_timeout": _TLS_END_S}
        try:
            await loop.connect_accepted_socket(lambda: connection, accepted, ssl=context, **times)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - whatever ends a handshake frees its place
            connection.connection_was_not_made()

    def end_present(self) -> None:
        """Ends the connections that are open, each as soon as its answer is complete."""
        for connection in list(self._state.connections):
            cast("HttpConnection", connection).end_soon()

    async def end(self, within_s: float) -> None:
        """Ends all connections: idle ones at once, the others when they are answered, within a time in seconds."""
        for connection in list(self._state.connections):
            connection.shutdown()
        self._no_more = asyncio.Event()
        if self._state.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._no_more.wait(), within_s)
        for connection in list(self._state.connections):
            connection.transport.abort()
        for task in (*self._opening, *self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._opening, *self._state.tasks, return_exceptions=True)
