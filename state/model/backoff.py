"""Growing pauses between repeats: the only place that doubles them. Pure: the caller has the clock, or counts barriers.

Retry libraries are no choice here. They sleep or wrap a function, and a micro-batch must do neither: it notes when the
next attempt is due, and goes on.
"""

from __future__ import annotations

from typing import TypeVar

from txnwatch.state.model.quantities import DurationMs

_Amount = TypeVar("_Amount", DurationMs, int, float)
_ENOUGH = 62  # doublings; beyond them a number would grow for nothing


def doubled(first: _Amount, longest: _Amount, times: int) -> _Amount:
    """The pause after `times` repeats: `first` before any repeat, then twice as long each time, up to `longest`."""
    return min(first * (1 << min(times, _ENOUGH)), longest)
