"""The pauses between repeats: a fixed one, and one that grows with each failure. Pure: the caller has the clock.

A wall clock counts in milliseconds, a monotonic clock in seconds; `doubled` also counts barriers.

Retry libraries are no choice here. They sleep or wrap a function, and a micro-batch must do neither: it notes when
the next attempt is due, and goes on.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar, overload

from txnwatch.state.model.values import AT_ONCE, DurationMs, TimestampMs

_Time = TypeVar("_Time", TimestampMs, float)
_Amount = TypeVar("_Amount", DurationMs, int, float)


class Every(Generic[_Time]):
    """What comes again only after a fixed pause; it is due at once for the first time."""

    @overload
    def __init__(self: Every[TimestampMs], pause: DurationMs) -> None: ...
    @overload
    def __init__(self: Every[float], pause: float) -> None: ...
    def __init__(self, pause: float) -> None:
        self._pause: Any = pause
        self._due: _Time | None = None

    def is_due(self, now: _Time) -> bool:
        """Whether the pause is over."""
        return self._due is None or now >= self._due

    def begin(self, now: _Time) -> None:
        """Begins the next pause."""
        self._due = now + self._pause

    def take(self, now: _Time) -> bool:
        """Whether the pause is over; if so, the next one begins."""
        is_due = self.is_due(now)
        if is_due:
            self.begin(now)
        return is_due


_ENOUGH = 62  # doublings; beyond them a number would grow for nothing


def doubled(first: _Amount, longest: _Amount, times: int) -> _Amount:
    """The pause after `times` repeats: `first` before any repeat, then twice as long each time, up to `longest`."""
    return min(first * (1 << min(times, _ENOUGH)), longest)


class GrowingPause(Generic[_Amount]):
    """A pause that is twice as long each time, until a success ends the row.

    Attributes:
        times: how many pauses there were since the last success.
    """

    def __init__(self, first: _Amount, longest: _Amount) -> None:
        self._first: _Amount = first
        self._longest: _Amount = longest
        self.times = 0

    @property
    def length(self) -> _Amount:
        """How long the next pause is."""
        return doubled(self._first, self._longest, self.times)

    def next(self) -> _Amount:
        """The next pause; the one after it is longer."""
        length = self.length
        self.times += 1
        return length

    def end(self) -> bool:
        """Takes a success; returns whether there were pauses before it."""
        had_pauses, self.times = self.times > 0, 0
        return had_pauses


FIRST_PAUSE_MS: Final = DurationMs(1_000)
LONGEST_PAUSE_MS: Final = DurationMs(60_000)


class Attempts(GrowingPause[DurationMs]):
    """Attempts with growing pauses between them. A clock that is set back makes the next attempt due.

    Attributes:
        due_ms: no attempt before this time.
    """

    def __init__(
        self,
        first_ms: DurationMs = FIRST_PAUSE_MS,
        longest_ms: DurationMs = LONGEST_PAUSE_MS,
        due_ms: TimestampMs = AT_ONCE,
    ) -> None:
        super().__init__(first_ms, longest_ms)
        self.due_ms = due_ms
        self._since_ms: TimestampMs = AT_ONCE

    def is_due(self, now_ms: TimestampMs) -> bool:
        """Whether the next attempt may be made."""
        return not self._since_ms <= now_ms < self.due_ms

    def put_off(self, now_ms: TimestampMs) -> None:
        """Puts the next attempt off until the pause is over."""
        self._since_ms, self.due_ms = now_ms, now_ms + self.next()

    def end(self) -> bool:
        """See GrowingPause; the next attempt is due at once."""
        self.due_ms = AT_ONCE
        return super().end()
