"""How a live transaction will end, by its own timeout. Pure: no I/O, no clock.

The coordinator compares the start of a transaction with its own clock. So our clock proves nothing: it only shows
whether the timeout has passed by our time. Only a verdict that a coordinator has confirmed counts as proven.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from txnwatch.state.model.description import DescribedTransaction
from txnwatch.state.model.policy import DetectionPolicy
from txnwatch.state.model.quantities import TimestampMs
from txnwatch.state.model.verdicts import RULE_OF, Verdict, late_after_ms


class EndsBy(StrEnum):
    """What ends a live transaction."""

    MARKERS = "its outcome is decided: the markers end it"
    CLIENT = "it has no timeout: only its client ends it"
    TIMEOUT = "its coordinator aborts it after its timeout"
    TIMEOUT_IN_DOUBT = "its timeout has passed by our clock, and it is not proven that its coordinator is late"
    NO_START = "its coordinator returned no start, so it is not known when its timeout passes"
    LATE_COORDINATOR = "its coordinator is proven to be late"


class ExpectedEnd(NamedTuple):
    """The expected end of a live transaction.

    Attributes:
        ends_by_itself: None if this is not known.
        due_ms: when its timeout is reached; None without a timeout, or if the outcome is decided.
        last_ms: the latest time of an abort by its coordinator: the timeout and one scan interval.
    """

    by: EndsBy
    ends_by_itself: bool | None
    due_ms: TimestampMs | None = None
    last_ms: TimestampMs | None = None


def expected_end(
    described: DescribedTransaction, proven: Verdict | None, policy: DetectionPolicy, now_ms: TimestampMs
) -> ExpectedEnd:
    """The expected end of a live transaction; `proven` is the verdict that its coordinator has confirmed."""
    if described.state.is_prepare:
        return ExpectedEnd(EndsBy.MARKERS, None)
    scan_interval_ms = policy.scan_interval_ms(None)
    late_ms = late_after_ms(described, policy, scan_interval_ms)
    if late_ms is None:
        return ExpectedEnd(EndsBy.CLIENT, ends_by_itself=False)
    if described.start_ms is None:
        return ExpectedEnd(EndsBy.NO_START, None)
    due_ms = described.start_ms + described.timeout_ms
    last_ms = due_ms + scan_interval_ms
    if proven is not None and RULE_OF[proven].is_past_timeout:
        return ExpectedEnd(EndsBy.LATE_COORDINATOR, None, due_ms, last_ms)
    if now_ms - described.start_ms > late_ms:
        return ExpectedEnd(EndsBy.TIMEOUT_IN_DOUBT, None, due_ms, last_ms)
    return ExpectedEnd(EndsBy.TIMEOUT, ends_by_itself=True, due_ms=due_ms, last_ms=last_ms)
