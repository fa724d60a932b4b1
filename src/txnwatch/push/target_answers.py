"""What a target's answer to a delivery means. Pure: no I/O, no clock.

The table is that of the CloudEvents web hook specification. An answer of a server that is not ready for us (a rotated
secret, a deployment) is tried again for ever; only 410 says that nobody wants the events any more.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Final

from txnwatch.state.model.values import AT_ONCE, NO_TIME, DurationMs, TimestampMs, doubled

FIRST_PAUSE_MS, LONGEST_PAUSE_MS = DurationMs(1_000), DurationMs(30_000)
LONGEST_WAIT_MS: Final = DurationMs(300_000)
TRIES_OF_A_REFUSED_EVENT: Final = 3
_SPREAD: Final = 0.2


class TargetAnswer(StrEnum):
    """What happens with the events of a delivery."""

    TAKEN = "taken"
    AGAIN = "again"
    REFUSED = "refused"
    GONE = "gone"


_REFUSALS: Final = frozenset({400, 413, 415, 422})
_GONE: Final = 410


def answer_of(status: int) -> TargetAnswer:
    """The meaning of an HTTP status. A redirect is not followed: its new place was not configured by the operator."""
    if 200 <= status < 300:
        return TargetAnswer.TAKEN
    if status == _GONE:
        return TargetAnswer.GONE
    return TargetAnswer.REFUSED if status in _REFUSALS else TargetAnswer.AGAIN


def wait_of(retry_after: str | None, now_ms: TimestampMs) -> DurationMs:
    """How long the header Retry-After asks to wait, in seconds or as a date; at most 5 minutes, 0 if it is invalid."""
    if retry_after is None:
        return NO_TIME
    text = retry_after.strip()
    if text.isascii() and text.isdecimal():
        return DurationMs(min(int(text[:9]) * 1000, LONGEST_WAIT_MS))
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return NO_TIME
    aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    from_now_ms = int((aware - datetime.fromtimestamp(now_ms / 1000, UTC)).total_seconds() * 1000)
    return DurationMs(max(0, min(from_now_ms, LONGEST_WAIT_MS)))


class Retries:
    """The failures in a row of one target, and when the next attempt is due.

    Attributes:
        in_a_row: failures since the last success.
        due_ms: no attempt before this time.
    """

    def __init__(self, spread: Callable[[float, float], float] = random.uniform) -> None:
        self.in_a_row = 0
        self.due_ms: TimestampMs = AT_ONCE
        self._spread = spread

    def failed(self, now_ms: TimestampMs, wait_ms: DurationMs = NO_TIME) -> None:
        """Takes a failure; the pause is at least what the target has asked for."""
        pause_ms = doubled(FIRST_PAUSE_MS, LONGEST_PAUSE_MS, self.in_a_row)
        spread_ms = DurationMs(int(pause_ms * self._spread(1 - _SPREAD, 1 + _SPREAD)))
        self.due_ms = now_ms + max(spread_ms, wait_ms)
        self.in_a_row += 1

    def succeeded(self) -> bool:
        """Takes a success; returns whether it ended a row of failures."""
        was_failing, self.in_a_row = self.in_a_row > 0, 0
        self.due_ms = AT_ONCE
        return was_failing
