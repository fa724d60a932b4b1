"""How it is noticed that our own clock was set. Pure: streaming/client/clock.py reads the clocks."""

from __future__ import annotations

from typing import NamedTuple

from txnwatch.state.model.quantities import NO_TIME, DurationMs

_SMALLEST_MS = 1_000  # no verdict depends on a smaller difference


class ClockBase(NamedTuple):
    """The wall clock minus the monotonic clock, which nobody sets: it changes only if the wall clock is set.

    Attributes:
        boot: the start of the machine, at which the monotonic clock began; bases of two starts cannot be compared.
    """

    boot: str
    base_ms: DurationMs


def set_by_ms(before: ClockBase | None, now: ClockBase | None) -> DurationMs:
    """By how much the wall clock was set between two bases; zero if it was not, or if this cannot be known."""
    if before is None or now is None or before.boot != now.boot:
        return NO_TIME
    moved_ms = DurationMs(now.base_ms - before.base_ms)
    return moved_ms if abs(moved_ms) >= _SMALLEST_MS else NO_TIME
