"""The viewers of the page: each gets the snapshot first, then the changes, as server-sent events.

Apart: it decides who gets a message and when; live_picture.py makes the messages.

There is no resume: a viewer that comes again gets a snapshot, so no bug can come from a missed change. A viewer has one
place for a message. If it has not taken the last one, both are dropped and its next message is a snapshot, so the
memory for a viewer is constant.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

MOST: Final = 64
MOST_OF_ONE: Final = 8
RETRY_MS: Final = 2_000
BEAT_S: Final = 1.0


def message(kind: str, number: str | None, data: bytes) -> bytes:
    """A server-sent event; `data` is one line. Without a number, that of the last event holds."""
    identity = b"id: %s\n" % number.encode() if number is not None else b""
    return b"%sevent: %s\ndata: %s\n\n" % (identity, kind.encode(), data)


@dataclass(eq=False, slots=True)
class Viewer:
    """A place; the stream of its answer may not have begun."""

    address: str
    waiting: bytes | None = None
    is_behind: bool = True
    has_more: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Viewers:
    """Everybody who looks; used in one event loop.

    Attributes:
        snapshot: returns the message with the whole picture, as it was last published.
        beat: returns the message that says only that the watcher is there.
    """

    snapshot: Callable[[], bytes]
    beat: Callable[[], bytes]
    _viewers: set[Viewer] = field(default_factory=set)
    _farewell: bytes | None = None

    def __len__(self) -> int:
        return len(self._viewers)

    def admit(self, address: str) -> Viewer | None:
        """A place for one more viewer of an address; None if there is none. `leave` gives it back."""
        of_one = Counter(one.address for one in self._viewers)[address]
        if self._farewell is not None or len(self._viewers) >= MOST or of_one >= MOST_OF_ONE:
            return None
        viewer = Viewer(address)
        self._viewers.add(viewer)
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Gives a place back."""
        self._viewers.discard(viewer)

    def publish(self, change: bytes) -> None:
        """Gives a message to everybody; the same bytes to all."""
        for viewer in self._viewers:
            if viewer.waiting is not None:
                viewer.waiting, viewer.is_behind = None, True
            elif not viewer.is_behind:
                viewer.waiting = change
            viewer.has_more.set()

    def end(self, farewell: bytes) -> None:
        """Ends every stream with a last message; the first one that is given."""
        if self._farewell is not None:
            return
        self._farewell = farewell
        for viewer in self._viewers:
            viewer.has_more.set()

    async def messages(self, viewer: Viewer, before_each: Callable[[], None]) -> AsyncIterator[bytes]:
        """The messages for one viewer, until the end; `before_each` is called before each of them."""
        before_each()
        yield b"retry: %d\n\n" % RETRY_MS
        while self._farewell is None:
            before_each()
            yield self._next(viewer)
            viewer.has_more.clear()
            if not viewer.is_behind and viewer.waiting is None and self._farewell is None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(viewer.has_more.wait(), BEAT_S)
        before_each()
        yield self._farewell

    def _next(self, viewer: Viewer) -> bytes:
        if viewer.is_behind:
            viewer.is_behind, viewer.waiting = False, None
            return self.snapshot()
        if viewer.waiting is not None:
            change, viewer.waiting = viewer.waiting, None
            return change
        return self.beat()
