"""A limit on bytes per second: a task that has received bytes rests for as long as the limit allows for them.

An allowance that is not used is not saved. So the limit holds over any time that is long compared with one answer,
whatever the order of batches and workers: a task that has received its part ends no sooner than the limit allows.
"""

from __future__ import annotations

import time

from txnwatch.streaming.client.fetch_pace import LEAST

_WANTED_S = 0.25  # one round of answers may use the limit of this many seconds
NO_REST = 0.0


class ReadRate:
    """How much one task may receive per second."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._until = 0.0

    def at_a_time(self, leaders: int) -> int:
        """How many bytes to ask each of `leaders` leaders for in one round.

        A broker sends the first batch of an answer whole, however large it is.
        """
        return max(LEAST, int(self._bytes_per_s * _WANTED_S) // max(1, leaders))

    def received(self, count: int) -> None:
        """Counts bytes of records that have arrived since the last rest."""
        self._until = max(self._until, time.monotonic()) + count / self._bytes_per_s

    def rest(self, until: float = float("inf")) -> float:
        """Sleeps until more may be asked for, or until a time on the monotonic clock; returns how long it slept."""
        left_s = min(self._until, until) - time.monotonic()
        if left_s <= 0:
            return NO_REST
        time.sleep(left_s)
        return left_s
