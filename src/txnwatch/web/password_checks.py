"""The passwords that wait for their check: one is checked at a time, and only a few wait.

Apart: it is a queue of any slow work, by the addresses that ask for it; server.py has the passwords.

Law: at most `MOST_WAITING` checks wait, whatever clients do, so each of them has its turn within a known time. If one
more arrives, an address with the most of them gives one up: that which has waited longest. So a client takes no place
from an address with fewer checks than its own, and a client that sends wrong passwords from one address does not keep a
user of another one out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

MOST_WAITING: Final = 8  # a check takes up to a second: each ends before the deadline of its request


@dataclass(eq=False)
class _WaitingCheck:
    """A check that waits; `turn` is True once it is its turn, and False if it gives its place up."""

    address: str
    turn: asyncio.Future[bool]


@dataclass
class PasswordChecks:
    """The checks of one event loop, which run in a thread of their own."""

    thread: ThreadPoolExecutor
    _waiting: list[_WaitingCheck] = field(default_factory=list)
    _is_checking: bool = False

    async def result(self, address: str, check: Callable[[], bool]) -> bool | None:
        """The result of a check; None if too many wait and this one has given its place up."""
        if self._is_checking and not await self._turn(address):
            return None
        self._is_checking = True
        try:
            return await asyncio.get_running_loop().run_in_executor(self.thread, check)
        finally:
            self._next()

    async def _turn(self, address: str) -> bool:
        one = _WaitingCheck(address, asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        if len(self._waiting) > MOST_WAITING:
            counts = Counter(other.address for other in self._waiting)
            most = max(counts.values())
            given_up = next(other for other in self._waiting if counts[other.address] == most)
            self._waiting.remove(given_up)
            given_up.turn.set_result(False)
        try:
            return await one.turn
        finally:
            if one in self._waiting:  # the server ends
                self._waiting.remove(one)

    def _next(self) -> None:
        self._is_checking = bool(self._waiting)
        if self._waiting:
            self._waiting.pop(0).turn.set_result(True)
