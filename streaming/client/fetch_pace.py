"""How much to ask one broker for in one Fetch, so that an answer takes about a second: pure.

A fast link gets the largest requests after some answers. A slow link gets small ones: an answer of 16 MB at 1 MB/s
would keep everything else waiting for 16 s. So does a quota: a broker refuses as a whole what exceeds it, and throttles
for as long as all of it would have taken.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAST, FIRST, MOST = 64 << 10, 2 << 20, 16 << 20
_WANTED_S, _WANTED_THROTTLE_S, _QUICK_S = 1.0, 0.25, 0.3
_GROWTH = 1.25


@dataclass(slots=True)
class Pace:
    """What one connection is asked for at a time, in bytes."""

    size: int = FIRST

    def answered(self, asked: int, received: int, took_s: float, throttled_s: float = 0.0) -> None:
        """Takes in an answer: what came in how long, and for how long the broker throttles us for it."""
        wanted = float(self.size)
        if throttled_s > _WANTED_THROTTLE_S:
            wanted *= _WANTED_THROTTLE_S / throttled_s
        elif took_s > _WANTED_S:
            wanted = min(wanted, received * _WANTED_S / took_s)
        elif took_s < _QUICK_S and 2 * received > asked:
            wanted *= _GROWTH
        self.size = max(LEAST, min(int(wanted), MOST))
