"""Slow work that clients ask for, passwords to check and metrics to collect: one piece after another, and few wait.

Apart: it is a queue of any slow work, by the addresses that ask for it; server.py has the work.

Law: at most `MOST_WAITING` pieces wait, whatever clients do, so each of them has its turn within a known time. If one
more arrives, an address with the most of them gives one up: that which has waited longest. So a client takes no place
from an address with fewer pieces than its own: one that asks from one address does not keep another one away.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

MOST_WAITING: Final = 8  # a piece takes up to a second: each ends before the deadline of its request
_R = TypeVar("_R")


@dataclass(eq=False)
class _WaitingPiece:
    """A piece that waits; `turn` is True once it is its turn, and False if it gives its place up."""

    address: str
    turn: asyncio.Future[bool]


@dataclass
class SlowWork(Generic[_R]):
    """The pieces of one kind in one event loop, which run in a thread of their own."""

    thread: ThreadPoolExecutor
    _waiting: list[_WaitingPiece] = field(default_factory=list)
    _is_working: bool = False

    async def result(self, address: str, work: Callable[[], _R]) -> _R | None:
        """The result of a piece; None if too many wait and this one has given its place up."""
        if self._is_working and not await self._turn(address):
            return None
        self._is_working = True
        try:
            return await asyncio.get_running_loop().run_in_executor(self.thread, work)
        finally:
            self._next()

    async def _turn(self, address: str) -> bool:
        piece = _WaitingPiece(address, asyncio.get_running_loop().create_future())
        self._waiting.append(piece)
        if len(self._waiting) > MOST_WAITING:
            counts = Counter(other.address for other in self._waiting)
            most = max(counts.values())
            given_up = next(other for other in self._waiting if counts[other.address] == most)
            self._waiting.remove(given_up)
            given_up.turn.set_result(False)
        try:
            return await piece.turn
        except asyncio.CancelledError:  # its request has no time left, or the server ends
            if piece in self._waiting:
                self._waiting.remove(piece)
            elif not piece.turn.cancelled() and piece.turn.result():
                self._next()
            raise

    def _next(self) -> None:
        self._is_working = bool(self._waiting)
        if self._waiting:
            self._waiting.pop(0).turn.set_result(True)
