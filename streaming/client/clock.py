"""The wall clock. Only the edges of the program read it; everything below gets the time as an argument.

It is a file of its own although it is short: some modules need the time and nothing else of the client, such as
watch/coverage.py and cli/page.py.
"""

from __future__ import annotations

import functools
import time
import uuid
from pathlib import Path

from txnwatch.state.model.clocks import ClockBase
from txnwatch.state.model.values import DurationMs, TimestampMs

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def wall_clock_ms() -> TimestampMs:
    """The time now in epoch milliseconds."""
    return TimestampMs(time.time_ns() // 1_000_000)


def clock_base() -> ClockBase:
    """The base now. NTP adjusts the rate of both clocks in the same way, so only a step changes it."""
    return ClockBase(_boot(), DurationMs((time.time_ns() - time.monotonic_ns()) // 1_000_000))


@functools.cache
def _boot() -> str:
    try:
        return _BOOT_ID.read_text()[:8]
    except OSError:
        return uuid.uuid4().hex  # not Linux: only bases of this process can be compared
