"""How long one connection waits: for the bytes of an answer, and, where a broker throttles it, before it sends.

An answer is waited for as long as it comes: bytes are progress, and only a connection that brings none for the time
of its patience has failed. What must be over at a given time has an `until` beside the patience.

A broker that throttles a client says so in its answer and then does not read from the connection for that time
(KIP-219). What is sent earlier waits there. So we wait first, and that wait is not part of anybody's patience.
"""

from __future__ import annotations

import time
from collections import Counter

PROGRESS = 4096  # so many bytes renew the patience; a server that sends a byte now and then gets no more time
NEVER = float("inf")


class AnswerWait:
    """The wait for one answer; times are on the monotonic clock, in seconds."""

    def __init__(self, first_by: float, patience_s: float, until: float) -> None:
        """Begins to wait: something has to come by `first_by`, and everything by `until`."""
        self._due = min(first_by, until)
        self._patience_s = patience_s
        self._until = until
        self._new = 0

    def left_s(self) -> float:
        """How long the next byte may take; 0 asks for what is there already.

        Raises:
            TimeoutError: no more time, whatever is there.
        """
        now = time.monotonic()
        if now >= self._until:
            raise TimeoutError("no answer in time")
        return max(0.0, self._due - now)

    def got(self, count: int) -> None:
        """So many bytes have come."""
        self._new += count
        if self._new >= PROGRESS:
            self._new = 0
            self._due = min(max(self._due, time.monotonic() + self._patience_s), self._until)


class Throttle:
    """Until when a broker does not read what a connection sends."""

    def __init__(self, told_ms: Counter[str]) -> None:
        """A connection that is not throttled; what is told is added up in `told_ms`, by the kind of request."""
        self._told_ms = told_ms
        self._until = 0.0

    def told(self, request: str, throttle_ms: int) -> None:
        """An answer says that the broker will not read for so long."""
        if throttle_ms > 0:
            self._told_ms[request] += throttle_ms
            self._until = max(self._until, time.monotonic() + throttle_ms / 1000)

    @property
    def left_s(self) -> float:
        """How long it still lasts."""
        return max(0.0, self._until - time.monotonic())
