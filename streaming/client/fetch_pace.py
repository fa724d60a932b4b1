"""How many bytes to ask one broker for in one Fetch, so that an answer takes about a second. Pure: no I/O, no clock.

A fast link gets the largest requests after a few answers. A slow link gets small ones: an answer of 16 MB at 1 MB/s
would block everything else for 16 s. A quota leads to small requests too: if an answer exceeds the quota, the broker
sends none of it, and throttles for as long as the whole answer would have taken.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAST, FIRST, MOST = 64 << 10, 2 << 20, 16 << 20
_WANTED_S, _WANTED_THROTTLE_S, _QUICK_S = 1.0, 0.25, 0.3
_GROWTH = 1.25


@dataclass(slots=True)
class Pace:
    """The size of the next Fetch of one connection, in bytes."""

    size: int = FIRST

    def answered(self, asked: int, received: int, took_s: float, throttled_s: float = 0.0) -> None:
        """Adjusts the size to an answer: its bytes, how long it took, and how long the broker throttles us for it."""
        wanted = float(self.size)
        if throttled_s > _WANTED_THROTTLE_S:
            wanted *= _WANTED_THROTTLE_S / throttled_s
        elif took_s > _WANTED_S:
            wanted = min(wanted, received * _WANTED_S / took_s)
        elif took_s < _QUICK_S and 2 * received > asked:
            wanted *= _GROWTH
        self.size = max(LEAST, min(int(wanted), MOST))
