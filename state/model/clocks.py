"""A broker's clock and ours as values: the bounds of their difference, and the leader whose clock stamps a log.

`state/detection/broker_clocks.py` has the argument, and what a watch knows about all clocks. Pure: no I/O, no clock.
"""

from __future__ import annotations

from typing import NamedTuple

from txnwatch.state.model.values import (
    NO_TIME,
    BrokerId,
    CoordinatorEpoch,
    DurationMs,
    TimestampMs,
    elapsed,
)

_DRIFT = 1_000  # a clock may drift by one part in this many


class Leader(NamedTuple):
    """The leader of a partition of the coordinators' log, its leader epoch, and the connection that it answered on.

    Two listings with the same value are of one *reign*: between them, the leader has lost nothing (decision 0049).

    Attributes:
        broker: the id of the broker that leads the partition.
        epoch: its leader epoch.
        connection: identifies the connection to the broker, if a restart of the broker may leave the leader epoch as
            it is; empty if a restart raises the epoch.
    """

    broker: BrokerId
    epoch: CoordinatorEpoch
    connection: str = ""


class Clock(NamedTuple):
    """A broker's clock minus ours.

    Attributes:
        lowest_ms: the lower bound of the broker's clock minus ours.
        highest_ms: the upper bound of the broker's clock minus ours; None if it is not known.
        at_ms: our clock at which both bounds are valid.
        set_ms: our clock when it was last detected that the broker's clock had been set; None if never.
    """

    lowest_ms: DurationMs
    highest_ms: DurationMs | None
    at_ms: TimestampMs
    set_ms: TimestampMs | None = None

    def now(self, now_ms: TimestampMs) -> Clock:
        """The bounds at a later time; they widen, because clocks drift."""
        drift_ms = DurationMs(elapsed(self.at_ms, now_ms) // _DRIFT)
        highest_ms = None if self.highest_ms is None else self.highest_ms + drift_ms
        return Clock(self.lowest_ms - drift_ms, highest_ms, max(now_ms, self.at_ms), self.set_ms)

    def with_ours_set(self, by_ms: DurationMs) -> Clock:
        """The same bounds after our clock was set by so much."""
        highest_ms = None if self.highest_ms is None else self.highest_ms - by_ms
        set_ms = None if self.set_ms is None else self.set_ms + by_ms
        return Clock(self.lowest_ms - by_ms, highest_ms, self.at_ms + by_ms, set_ms)

    @property
    def is_possible(self) -> bool:
        """Whether the lower bound is not above the upper bound."""
        return self.highest_ms is None or self.lowest_ms <= self.highest_ms

    @property
    def presumed_ms(self) -> DurationMs:
        """The difference to show: the value closest to zero that the bounds allow."""
        return max(self.lowest_ms, min(NO_TIME, self.highest_ms or NO_TIME))


def both(first: Clock | None, other: Clock) -> Clock:
    """The bounds from two observations of one clock."""
    if first is None:
        return other
    highest = [clock.highest_ms for clock in (first, other) if clock.highest_ms is not None]
    lowest_ms = max(first.lowest_ms, other.lowest_ms)
    set_ms = max((clock.set_ms for clock in (first, other) if clock.set_ms is not None), default=None)
    return Clock(lowest_ms, min(highest, default=None), max(first.at_ms, other.at_ms), set_ms)


# How it is noticed that our own clock was set. Pure: streaming/client/clock.py reads the clocks.

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
