"""How long a connection waits for an answer, and how long it waits before it sends while a broker throttles it.

The wait for an answer goes on while bytes arrive. It fails only if no bytes arrive for the time of its patience. An
answer that must be complete at a given time has an `until` as well as a patience.

A broker that throttles a client sends the throttle time in its answer, and then does not read from the connection for
that time (KIP-219). A request that is sent earlier stays unread. So we wait before we send, and that wait does not
count against any patience.
"""

from __future__ import annotations

import time
from collections import Counter

from txnwatch.state.model.quantities import DurationMs

PROGRESS = 4096  # bytes that renew the patience; a server that sends single bytes gets no more time
NEVER = float("inf")


class AnswerWait:
    """The wait for one answer; times are on the monotonic clock, in seconds."""

    def __init__(self, first_by: float, patience_s: float, until: float) -> None:
        """Starts the wait: the first bytes are due by `first_by`, the whole answer by `until`."""
        self._due = min(first_by, until)
        self._patience_s = patience_s
        self._until = until
        self._new = 0

    def left_s(self) -> float:
        """How long the next byte may take; 0 means to read only what has arrived already.

        Raises:
            TimeoutError: `until` has passed, even if bytes have arrived.
        """
        now = time.monotonic()
        if now >= self._until:
            raise TimeoutError("no answer in time")
        return max(0.0, self._due - now)

    def got(self, count: int) -> None:
        """Counts bytes that have arrived."""
        self._new += count
        if self._new >= PROGRESS:
            self._new = 0
            self._due = min(max(self._due, time.monotonic() + self._patience_s), self._until)


class Throttle:
    """The time until which a broker does not read what a connection sends."""

    def __init__(self, total_ms: Counter[str]) -> None:
        """Starts without a throttle; throttle times are added to `total_ms`, by kind of request."""
        self._total_ms = total_ms
        self._until = 0.0

    def add(self, request: str, throttle_ms: DurationMs) -> None:
        """Records the throttle time of an answer."""
        if throttle_ms > 0:
            self._total_ms[request] += throttle_ms
            self._until = max(self._until, time.monotonic() + throttle_ms / 1000)

    @property
    def left_s(self) -> float:
        """How long the throttle still lasts, in seconds."""
        return max(0.0, self._until - time.monotonic())
