"""The wall clock. Only the edges of the program read it; everything below gets the time as an argument."""

from __future__ import annotations

import time

from txnwatch.state.model.quantities import TimestampMs


def wall_clock_ms() -> TimestampMs:
    """The time now in epoch milliseconds."""
    return TimestampMs(time.time_ns() // 1_000_000)
