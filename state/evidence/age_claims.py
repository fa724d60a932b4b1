"""The verdicts that rest on time, for a command that looks once: what proves one, and whom to ask. Pure.

A command that looks once has seen nothing for a while. It has stamps of the coordinator and its own clock, and the
difference of two clocks is no age: with a coordinator that is 62 s behind, a Prepare* of a moment ago looks 62 s old.
So our clock only says what is worth asking about. The coordinator itself proves it. ListTransactions takes a duration
(KIP-994, Kafka 3.8), which the coordinator compares with its own clock minus the start of the transaction. A yes to D
means

    the coordinator's clock now - start > D

and no other clock is in it. How D makes a verdict:

  long_running  D = the age. The coordinator aborts by this same clock and this same start, so this is the age that
                counts, whoever stamped the start.
  stuck_prepare D = stamp - start + the age. Then the start cancels out: the clock now - stamp > age. The stamp has to
                be of the same clock. It is the record's own where its leader epoch is the present one. Otherwise it is
                the oldest stamp that the present leader has left in that partition of the log, since the record stood
                there before it.
  late          D = the age, and at least the oldest stamp of the present leader - start + the scan interval + the
                buffer. A coordinator that has just taken over has had no time to act, however late its clock says it
                is.

A no means that by the coordinator's clock there is nothing to tell. No answer (an older broker), or no stamp of the
present leader, means that it is not proven, and that is said. A broker that cannot be asked has stamped records, in
any partition of its log: the newest stamp is a time that its clock has reached. That can be a yes, never a no.

What is claimed is the age that was asked for: first as much as our clock says, less a second, then the threshold. A
coordinator whose clock is ahead of ours is asked later by the difference: a late answer, not a false one. Nothing can
tell, as in clocks.py, that a clock was set forward since the stamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from txnwatch.state.model.policy import DetectionPolicy
from txnwatch.state.model.transaction import CoordinatorView
from txnwatch.state.model.verdicts import Threshold, Verdict, thresholds

_CLOSE_MS = 1_000


class LedSince(NamedTuple):
    """The leader of a partition of the coordinators' log, and the oldest stamp that it has left there as leader."""

    broker: int
    stamp_ms: int


class Claim(NamedTuple):
    """A verdict, and what its coordinator has to confirm.

    Attributes:
        age_ms: how old the transaction is at least, if the coordinator confirms it.
        overdue_ms: what of it is too much.
        open_for_ms: for longer than this the transaction has been open by the coordinator's clock; None if no duration
            would prove it.
    """

    verdict: Verdict
    age_ms: int
    overdue_ms: int
    open_for_ms: int | None


def claims(view: CoordinatorView, led: LedSince | None, policy: DetectionPolicy, now_ms: int) -> Iterator[Claim]:
    """What a live transaction may have earned by our clock `now_ms`: the gravest first, of each the greatest age."""
    stamp_ms = _stamp_ms(view, led)
    presumed_ms = now_ms - (view.record_timestamp_ms if stamp_ms is None else stamp_ms)
    for threshold in reversed(thresholds(view, policy, policy.scan_interval_ms(None))):
        if presumed_ms > threshold.age_ms:
            for age_ms in dict.fromkeys((max(threshold.age_ms, presumed_ms - _CLOSE_MS), threshold.age_ms)):
                open_for_ms = _open_for_ms(view, led, threshold, age_ms)
                yield Claim(threshold.verdict, age_ms, age_ms - threshold.age_ms, open_for_ms)


def _stamp_ms(view: CoordinatorView, led: LedSince | None) -> int | None:
    """Since when the state has lasted; of Prepare* by the present coordinator's clock, None if that has no stamp."""
    if not view.state.is_prepare:
        return view.start_ms
    if not view.may_have_gone_on:
        return view.record_timestamp_ms
    return led.stamp_ms if led is not None else None


def _open_for_ms(view: CoordinatorView, led: LedSince | None, threshold: Threshold, age_ms: int) -> int | None:
    stamp_ms = _stamp_ms(view, led)
    if stamp_ms is None:
        return None
    open_for_ms = stamp_ms - view.start_ms + age_ms
    if threshold.verdict is Verdict.LATE:
        if led is None:
            return None
        led_for_ms = threshold.age_ms - view.timeout_ms
        open_for_ms = max(open_for_ms, led.stamp_ms - view.start_ms + led_for_ms)
    return max(0, open_for_ms)  # a duration below zero is no filter
