"""Growing pauses between repeats: the only place that doubles them. Pure: the caller has the clock, or counts barriers.

Retry libraries are no choice here. They sleep or wrap a function, and a micro-batch must do neither: it notes when the
next attempt is due, and goes on.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

from txnwatch.state.model.quantities import AT_ONCE, DurationMs, TimestampMs

FIRST_PAUSE_MS: Final = DurationMs(1_000)
LONGEST_PAUSE_MS: Final = DurationMs(60_000)

_Amount = TypeVar("_Amount", DurationMs, int, float)
_ENOUGH = 62  # doublings; beyond them a number would grow for nothing


def doubled(first: _Amount, longest: _Amount, times: int) -> _Amount:
    """The pause after `times` repeats: `first` before any repeat, then twice as long each time, up to `longest`."""
    return min(first * (1 << min(times, _ENOUGH)), longest)


class Attempts(NamedTuple):
    """How often something was tried, and when the next attempt is due."""

    times: int
    due_ms: TimestampMs

    def next(self, now_ms: TimestampMs) -> Attempts:
        """The attempts after one more at this time."""
        pause_ms = doubled(FIRST_PAUSE_MS, LONGEST_PAUSE_MS, self.times)
        return Attempts(self.times + 1, TimestampMs(now_ms + pause_ms))


NO_ATTEMPT: Final = Attempts(0, AT_ONCE)
