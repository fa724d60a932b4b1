"""The wall clock. Only the edges of the program read it; everything below gets the time as an argument."""

from __future__ import annotations

import time


def wall_clock_ms() -> int:
    """The time now in epoch milliseconds."""
    return time.time_ns() // 1_000_000
