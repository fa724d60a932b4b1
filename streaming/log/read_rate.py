"""No more bytes a second than somebody has allowed: who has received some rests for as long as they are worth.

Nothing is saved up. So the limit holds over any time that is long beside one answer, however batches follow each
other and whichever worker reads them: a task that has received its part ends no sooner than its part allows.
"""

from __future__ import annotations

import time

from txnwatch.streaming.client.fetch_pace import LEAST

_WANTED_S = 0.25  # what one round of answers may be worth
NO_REST = 0.0


class ReadRate:
    """What one task may receive a second."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._until = 0.0

    def at_a_time(self, leaders: int) -> int:
        """How much to ask each of so many leaders for in one round, in bytes.

        A broker sends the first batch of an answer whole, however large it is.
        """
        return max(LEAST, int(self._bytes_per_s * _WANTED_S) // max(1, leaders))

    def received(self, count: int) -> None:
        """So many bytes of records have come since the last rest."""
        self._until = max(self._until, time.monotonic()) + count / self._bytes_per_s

    def rest(self, until: float = float("inf")) -> float:
        """Sleeps until more may be asked for, or until a time on the monotonic clock; for how long it did."""
        left_s = min(self._until, until) - time.monotonic()
        if left_s <= 0:
            return NO_REST
        time.sleep(left_s)
        return left_s
