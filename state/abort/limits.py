"""The limits of the automatic abort: budget, circuit breaker and ages. Pure: the caller has the clock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from txnwatch.state.abort.decision import Refused
from txnwatch.state.abort.protocol import MarkerResult
from txnwatch.state.evidence.confirmation import Answer
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.incident_payload import Action, ActionResult, Refusal
from txnwatch.state.model.quantities import DurationMs, TimestampMs

HOUR_MS: Final = DurationMs(3_600_000)
FRESH_MS: Final = DurationMs(5_000)  # the greatest age of the read on which a marker is written
# The state repeats a candidate within a minute, and a start takes less than another minute.
UNPROVEN_MS: Final = DurationMs(150_000)
IDLE_HOLDER_MS: Final = DurationMs(300_000)


class Breaker(NamedTuple):
    """An open circuit breaker: until when nothing is aborted, and why."""

    until_ms: TimestampMs
    why: str

    def is_open(self, now_ms: TimestampMs) -> bool:
        """Whether nothing may be aborted now."""
        return now_ms < self.until_ms


def markers_last_hour(written_ms: Iterable[TimestampMs], now_ms: TimestampMs) -> int:
    """How many markers count for the budget. A time in the future does not count: an event may be forged."""
    return sum(now_ms - HOUR_MS < at_ms <= now_ms for at_ms in written_ms)


def trip_by_refusal(refused: Refused, answer: Answer, partition: TopicPartition) -> str | None:
    """Why a refusal opens the circuit breaker: a fresh read contradicts a hang that was proven."""
    is_contradicted = refused.refusal is Refusal.STILL_OWNED and answer is Answer.REFUTED
    return f"{partition}: {refused.detail}" if is_contradicted else None


def trip_by_result(result: MarkerResult, partition: TopicPartition) -> str | None:
    """Why the result of a marker opens the circuit breaker; None if the result is as expected."""
    if result.is_denied:
        return f"the broker refuses markers: {result.detail}"
    if result.result is not ActionResult.VERIFIED:
        return f"the abort on {partition} ended with the result {result.result}"
    return None


def outdated(read_ms: TimestampMs, now_ms: TimestampMs) -> str | None:
    """Why no marker may be written on a fresh read any more; None while the read is fresh enough."""
    return "the fresh read was too old" if now_ms - read_ms > FRESH_MS else None


def is_left_undecided(done: Action | None, proven_ms: TimestampMs, after_ms: DurationMs, now_ms: TimestampMs) -> bool:
    """Whether the holder of the lease should have decided about a hang, and has not."""
    return done is None and now_ms - proven_ms >= after_ms + IDLE_HOLDER_MS


def is_unproven_for_long(since_ms: TimestampMs, now_ms: TimestampMs) -> bool:
    """Whether a published hang that this process does not find is refused now."""
    return now_ms - since_ms >= UNPROVEN_MS
