"""Offsets, times and durations: three types that mypy keeps apart.

At run time each is a plain `int`. For mypy each has its arithmetic: the difference of two times is a duration, and a
time plus a duration is a time, without a call or a cast. What has no meaning (the sum of two times) is an `int`, and no
parameter of these types accepts an `int`. Ids, epochs and the numbers of barriers are in ids.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NewType, overload

if TYPE_CHECKING:

    class Offset(int):
        """A position in the log of a partition."""

        def __add__(self, count: int, /) -> Offset: ...

    class DurationMs(int):
        """A length of time in milliseconds; negative if a clock is behind another."""

        @overload
        def __add__(self, other: DurationMs, /) -> DurationMs: ...
        @overload
        def __add__(self, other: TimestampMs, /) -> TimestampMs: ...
        @overload
        def __add__(self, other: int, /) -> int: ...
        def __add__(self, other: int, /) -> int: ...

        @overload
        def __sub__(self, other: DurationMs, /) -> DurationMs: ...
        @overload
        def __sub__(self, other: int, /) -> int: ...
        def __sub__(self, other: int, /) -> int: ...

        def __mul__(self, times: int, /) -> DurationMs: ...
        def __neg__(self) -> DurationMs: ...

    class TimestampMs(int):
        """A moment of a wall clock, in milliseconds since 1970."""

        @overload
        def __add__(self, other: DurationMs, /) -> TimestampMs: ...
        @overload
        def __add__(self, other: int, /) -> int: ...
        def __add__(self, other: int, /) -> int: ...

        @overload
        def __sub__(self, other: TimestampMs, /) -> DurationMs: ...
        @overload
        def __sub__(self, other: DurationMs, /) -> TimestampMs: ...
        @overload
        def __sub__(self, other: int, /) -> int: ...
        def __sub__(self, other: int, /) -> int: ...

else:
    Offset = NewType("Offset", int)
    DurationMs = NewType("DurationMs", int)
    TimestampMs = NewType("TimestampMs", int)

NO_TIME: Final = DurationMs(0)
LONG_AGO: Final = TimestampMs(0)
AT_ONCE: Final = LONG_AGO  # for a due time: it has passed already
NEVER_MS: Final = TimestampMs(2**63 - 1)  # for a due time: nothing is awaited
FIRST_OFFSET: Final = Offset(0)  # where each log has begun


def elapsed(since_ms: TimestampMs, now_ms: TimestampMs) -> DurationMs:
    """How long ago a moment was; zero if it is ahead of the clock."""
    return max(NO_TIME, now_ms - since_ms)
