"""A picture that is kept up to date while somebody looks, and its viewers.

Each viewer gets the snapshot first, then the changes, as server-sent events. There is no resume: a viewer that comes
again gets a snapshot, so no bug can come from a missed change. A viewer has one place for a message. If it has not
taken the last one, both are dropped and its next message is a snapshot, so the memory for a viewer is constant. What
all viewers get is compressed once (packed.py). The page of one cluster and that of several use it.

Law: the picture is made at most twice a second for all viewers together. Its messages have the time of the picture, so
that an old picture gets old.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from txnwatch import __version__
from txnwatch.page.packed import Piece, Pieces, packed
from txnwatch.page.picture import Picture, changes
from txnwatch.page.site_files import Assets, InParts, Serve, answer
from txnwatch.state.model.values import TimestampMs

JSON: Final = "application/json"
encode: Final = msgspec.json.Encoder().encode
_LESS: Final = rb"\u003c"  # as JSON escapes it: no text ends the script of the page that has the first picture
_PAUSE_S: Final = 0.5
_QUIET_S: Final = 1.0  # time alone changes the picture, too
_NO_MORE: Final = (Piece(b": ended\n\n"),)  # a comment: the browser connects again
_NEW_S: Final = 0.4  # less than a pause, so that each pause ends with a new picture


class Freshness:
    """When a picture has to be made anew: if it does not show the last change, or has become old."""

    def __init__(self) -> None:
        self._made_s = -1.0
        self._shown: object = None

    def is_due(self, shows: object) -> bool:
        """Whether to make it anew; `shows` is what it would be made of."""
        return self._shown is not shows or asyncio.get_running_loop().time() - self._made_s >= _NEW_S

    def made(self, shows: object) -> None:
        """It is made."""
        self._made_s, self._shown = asyncio.get_running_loop().time(), shows


class LivePicture:
    """The last picture, its number, and everybody who looks at it; used in one event loop.

    `make` makes a picture, and returns None if the last one still shows everything. `describe` returns what every
    message has beside the time and the number.
    """

    def __init__(
        self,
        make: Callable[[], Awaitable[Picture | None]],
        describe: Callable[[], Mapping[str, Any]],
        now_ms: Callable[[], TimestampMs],
    ) -> None:
        self._make, self._describe, self.now_ms = make, describe, now_ms
        self._boot = secrets.token_hex(4)
        self._number = 0
        self._published: Picture = {}
        self._encoded: tuple[Picture, Piece] | None = None
        self._viewers = self._nobody()
        self.picture: Picture = {}

    def _nobody(self) -> Viewers:
        return Viewers(self._snapshot_message, self._beat_message)

    async def work(self, begin: Callable[[Callable[[], None], Callable[[], None]], None]) -> None:
        """Publishes the changes while somebody looks, until it is cancelled; its streams end with it.

        `begin` gets two functions that any thread may call: when something has changed, and when it cannot wait for the
        end of the pause.
        """
        loop, self._viewers = asyncio.get_running_loop(), self._nobody()
        changed, urgent = asyncio.Event(), asyncio.Event()

        def wake() -> None:
            if len(self._viewers):
                loop.call_soon_threadsafe(changed.set)

        def hurry() -> None:
            if len(self._viewers):
                loop.call_soon_threadsafe(urgent.set)

        begin(wake, hurry)
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), _QUIET_S)
                changed.clear()
                urgent.clear()
                if len(self._viewers):
                    await self._publish()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(urgent.wait(), _PAUSE_S)
        finally:
            self._viewers.end(_NO_MORE)  # or a stream would get beats and no changes

    def end(self, why: str = "shutdown") -> None:
        """Ends the streams."""
        self._viewers.end(message("bye", self.event_id, Piece(encode({"why": why}))))

    async def _publish(self) -> None:
        await self.refresh()
        before, self._published = self._published, self.picture
        if before is not self._published:
            difference = {**self.head(self._published), **changes(before, self._published)}
            self._viewers.publish(message("delta", self.event_id, Piece(encode(difference))))

    async def refresh(self) -> None:
        """Makes the picture anew, if anything may have changed."""
        picture = await self._make()
        if picture is not None and picture != self.picture:
            self._number += 1
            self.picture = picture

    @property
    def event_id(self) -> str:
        """The number of the picture, and of the process."""
        return f"{self._boot}-{self._number}"

    def head(self, picture: Picture) -> dict[str, Any]:
        """What every message with a picture has."""
        return {
            "boot": self._boot,
            "seq": self._number,
            **self._times(picture),
            "version": __version__,
            **self._describe(),
        }

    def _times(self, picture: Picture) -> dict[str, TimestampMs | None]:
        """What every message has; `judged_ms` is that of the picture, so that an old picture gets old."""
        judged_ms = picture["status"]["judged_ms"] if picture else None
        return {"server_ms": self.now_ms(), "judged_ms": judged_ms}

    def whole(self, picture: Picture) -> Pieces:
        """A picture with its head, as JSON. The picture is encoded once for all viewers, the head has the time."""
        if self._encoded is None or self._encoded[0] is not picture:
            self._encoded = picture, Piece(encode(picture).replace(b"<", _LESS))
        head = encode(self.head(picture)).replace(b"<", _LESS)
        return Piece(head[:-1] + b',"picture":'), self._encoded[1], _CLOSED

    def _snapshot_message(self) -> Pieces:
        return message("snapshot", self.event_id, *self.whole(self._published))

    def _beat_message(self) -> Pieces:
        """Each second of each viewer: only what gets old without it."""
        return message("beat", None, Piece(encode(self._times(self._published))))

    # What is answered.

    def resources(self) -> Iterable[tuple[str, Serve]]:
        """The paths under `/api/v1` that each picture has."""
        yield "stream", self._stream
        yield "snapshot", self._snapshot
        yield "status", self.with_picture(lambda picture, _: picture["status"])

    def shell(self, request: Request, assets: Assets) -> Response:
        """The page for a browser, with the picture of now: it is drawn before the stream begins."""

        async def first() -> Pieces:
            await self.refresh()
            return self.whole(self.picture)

        return assets.shell_with(request, first)

    async def _snapshot(self, request: Request) -> Response:
        await self.refresh()
        tag = f'"{self.event_id}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        whole = self.whole(self.picture)
        return answer(request, b"".join(piece.plain for piece in whole), JSON, lambda: packed(whole), ETag=tag)

    def with_picture(self, part: Callable[[Picture, Request], Any]) -> Serve:
        """Serves a part of the picture."""

        async def serve(request: Request) -> Response:
            await self.refresh()
            return answer(request, encode(part(self.picture, request)), JSON)

        return serve

    async def _stream(self, request: Request) -> Response:
        await self.refresh()
        is_first = not len(self._viewers)
        viewer = self._viewers.admit(request.client.host if request.client is not None else "")
        if viewer is None:
            raise HTTPException(503, "expected fewer viewers, found too many", headers={"Retry-After": "10"})
        if is_first:
            self._published = self.picture
        connection = request.scope.get("state", {}).get("connection")
        before_each = connection.continues if connection is not None else lambda: None
        return StreamOfOne(request, self._viewers, viewer, before_each)


class StreamOfOne(InParts):
    """The stream of one viewer. It gives the place back also if the viewer goes before the first byte."""

    def __init__(self, request: Request, viewers: Viewers, viewer: Viewer, before_each: Callable[[], None]) -> None:
        super().__init__(request, viewers.messages(viewer, before_each), "text/event-stream", X_Accel_Buffering="no")
        self._leave = partial(viewers.leave, viewer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, and gives the place back."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


# The viewers: who gets a message, and when.

# All places may be those of one address, which is that of an ingress or a proxy. When there is none left, an address
# that has more than another gives one up for it.

MOST: Final = 64  # fewer than the connections of the server (web/connections.py)
RETRY_MS: Final = 2_000
BEAT_S: Final = 1.0


def message(kind: str, number: str | None, *data: Piece) -> Pieces:
    """A server-sent event; `data` is one line. Without a number, that of the last event holds."""
    identity = b"id: %s\n" % number.encode() if number is not None else b""
    return Piece(b"%sevent: %s\ndata: " % (identity, kind.encode())), *data, _ENDED


_CLOSED: Final = Piece(b"}")
_ENDED: Final = Piece(b"\n\n")


@dataclass(eq=False, slots=True)
class Viewer:
    """A place; the stream of its answer may not have begun."""

    address: str
    waiting: Pieces | None = None
    is_behind: bool = True
    is_over: bool = False
    has_more: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Viewers:
    """Everybody who looks; used in one event loop.

    Attributes:
        snapshot: returns the message with the whole picture, as it was last published.
        beat: returns the message that says only that the watcher is there.
    """

    snapshot: Callable[[], Pieces]
    beat: Callable[[], Pieces]
    _viewers: dict[Viewer, None] = field(default_factory=dict)
    _farewell: Pieces | None = None

    def __len__(self) -> int:
        return len(self._viewers)

    def admit(self, address: str) -> Viewer | None:
        """A place for one more viewer of an address; None if there is none. `leave` gives it back."""
        if self._farewell is not None or (len(self._viewers) >= MOST and not self._has_made_room(address)):
            return None
        viewer = Viewer(address)
        self._viewers[viewer] = None
        return viewer

    def _has_made_room(self, address: str) -> bool:
        """Whether the last viewer of the address with the most of them has given its place up for this address."""
        counts = Counter(viewer.address for viewer in self._viewers)
        largest = max(counts, key=lambda peer: counts[peer])
        if counts[largest] <= counts[address] + 1:
            return False
        last = next(viewer for viewer in reversed(self._viewers) if viewer.address == largest)
        last.is_over = True
        last.has_more.set()
        self.leave(last)
        return True

    def leave(self, viewer: Viewer) -> None:
        """Gives a place back."""
        self._viewers.pop(viewer, None)

    def publish(self, change: Pieces) -> None:
        """Gives a message to everybody; the same bytes to all."""
        for viewer in self._viewers:
            if viewer.waiting is not None:
                viewer.waiting, viewer.is_behind = None, True
            elif not viewer.is_behind:
                viewer.waiting = change
            viewer.has_more.set()

    def end(self, farewell: Pieces) -> None:
        """Ends every stream with a last message; the first one that is given."""
        if self._farewell is not None:
            return
        self._farewell = farewell
        for viewer in self._viewers:
            viewer.has_more.set()

    async def messages(self, viewer: Viewer, before_each: Callable[[], None]) -> AsyncIterator[Pieces]:
        """The messages for one viewer, until the end; `before_each` is called before each of them."""
        before_each()
        yield (Piece(b"retry: %d\n\n" % RETRY_MS),)
        while self._farewell is None and not viewer.is_over:
            before_each()
            yield self._next(viewer)
            if not viewer.is_over:
                viewer.has_more.clear()
            if not viewer.is_behind and viewer.waiting is None and self._farewell is None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(viewer.has_more.wait(), BEAT_S)
        before_each()
        yield self._farewell if self._farewell is not None else _NO_MORE

    def _next(self, viewer: Viewer) -> Pieces:
        if viewer.is_behind:
            viewer.is_behind, viewer.waiting = False, None
            return self.snapshot()
        if viewer.waiting is not None:
            change, viewer.waiting = viewer.waiting, None
            return change
        return self.beat()
