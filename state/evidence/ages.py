"""Time-based verdicts for a command that looks once: what proves one, and which broker to ask.

A command that looks once has not observed the state over time. It has stamps of the coordinator and its own clock, and
the difference of two clocks is not an age: if the coordinator's clock is 62 s behind, a Prepare* of a moment ago looks
62 s old. So our clock only selects what to ask. The coordinator itself proves it. ListTransactions takes a duration
(KIP-994, Kafka 3.8), which the coordinator compares with its own clock minus the start of the transaction. A yes (the
transaction is listed) for the duration D means

    the coordinator's clock now - start > D

and no other clock is involved. The value of D for each verdict:

  long_running  D = the age. The coordinator aborts by this same clock and this same start, so this is the age that
                counts, whoever stamped the start.
  stuck_prepare D = stamp - start + the age. Then the start cancels out: the clock now - stamp > age. The stamp must be
                from the same clock. If the leader epoch of the record is the current one, it is the record's own
                stamp. Otherwise it is the oldest stamp that the current leader has written in that partition of the
                log, because the record was there before it.
  late          D = the age, and at least the oldest stamp of the current leader - start + the scan interval + the
                buffer. A coordinator that has just taken over has had no time to act, however late it is by its
                clock.

A no means that by the coordinator's clock there is no verdict. No answer (an older broker), or no stamp of the current
leader, means that the verdict is not proven, and this is reported. A broker that cannot be asked has stamped records,
in any partition of its log: its clock has reached the newest of these stamps. This can be a yes, never a no.

The claimed age is the age in the question: first as much as our clock shows, less a second, then the threshold. If the
coordinator's clock is ahead of ours, it is asked later by the difference: the verdict is late, not false. As in
model/clocks.py, nothing detects that a clock was set forward since the stamp.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from txnwatch.state.model.transaction import CoordinatorView, DescribedTransaction, TransactionView
from txnwatch.state.model.values import NO_TIME, BrokerId, CoordinatorEpoch, DurationMs, TimestampMs
from txnwatch.state.model.verdicts import RULE_OF, DetectionPolicy, Threshold, Verdict, late_after_ms, thresholds

_CLOSE_MS = DurationMs(1_000)


class LeaderStamp(NamedTuple):
    """The leader of a partition of the coordinators' log, and the oldest stamp that it has written there as leader."""

    broker: BrokerId
    stamp_ms: TimestampMs


class Claim(NamedTuple):
    """A verdict, and the duration that its coordinator has to confirm.

    Attributes:
        age_ms: the minimum age of the transaction, if the coordinator confirms it.
        overdue_ms: the part of the age above the threshold.
        open_for_ms: the duration to confirm: the transaction has been open for longer by the coordinator's clock; None
            if no duration would prove the verdict.
    """

    verdict: Verdict
    age_ms: DurationMs
    overdue_ms: DurationMs
    open_for_ms: DurationMs | None


def claims(
    view: TransactionView,
    led: LeaderStamp | None,
    log_epoch: CoordinatorEpoch | None,
    policy: DetectionPolicy,
    now_ms: TimestampMs,
) -> Iterator[Claim]:
    """Possible verdicts of a live transaction by our clock `now_ms`: the most severe and the greatest age first.

    There are none if nothing shows when its state began. `log_epoch` is the leader epoch of the view's log partition.
    """
    stamp_ms = _stamp_ms(view, led, log_epoch)
    since_ms = view.record_timestamp_ms if stamp_ms is None and isinstance(view, CoordinatorView) else stamp_ms
    if since_ms is None:
        return
    presumed_ms = now_ms - since_ms
    for threshold in reversed(thresholds(view, policy, policy.scan_interval_ms(None))):
        if presumed_ms > threshold.age_ms:
            for age_ms in dict.fromkeys((max(threshold.age_ms, presumed_ms - _CLOSE_MS), threshold.age_ms)):
                open_for_ms = _open_for_ms(view, led, stamp_ms, threshold, age_ms)
                yield Claim(threshold.verdict, age_ms, age_ms - threshold.age_ms, open_for_ms)


def _stamp_ms(view: TransactionView, led: LeaderStamp | None, log_epoch: CoordinatorEpoch | None) -> TimestampMs | None:
    """When the state began; for Prepare* only by the current coordinator's clock, None if that has no stamp."""
    if not view.state.is_prepare:
        return view.start_ms
    if not isinstance(view, CoordinatorView):
        return None  # only the log has the time when an outcome was decided
    if view.coordinator_epoch is not None and view.coordinator_epoch == log_epoch:
        return view.record_timestamp_ms
    return led.stamp_ms if led is not None else None


def _open_for_ms(
    view: TransactionView,
    led: LeaderStamp | None,
    stamp_ms: TimestampMs | None,
    threshold: Threshold,
    age_ms: DurationMs,
) -> DurationMs | None:
    if stamp_ms is None or view.start_ms is None:
        return None
    open_for_ms = stamp_ms - view.start_ms + age_ms
    if RULE_OF[threshold.verdict].is_past_timeout:
        if led is None:
            return None
        led_for_ms = threshold.age_ms - view.timeout_ms
        open_for_ms = max(open_for_ms, led.stamp_ms - view.start_ms + led_for_ms)
    return max(NO_TIME, open_for_ms)  # a negative duration does not filter


# How a live transaction will end, by its own timeout. Pure: no I/O, no clock.
#
# The coordinator compares the start of a transaction with its own clock. So our clock proves nothing: it only shows
# whether the timeout has passed by our time. Only a verdict that a coordinator has confirmed counts as proven.


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
