"""Our clock; everything below the edges gets the time as an argument."""

from __future__ import annotations

import time


def wall_clock_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000
