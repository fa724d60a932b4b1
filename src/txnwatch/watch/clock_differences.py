"""Reports once for each broker that its clock certainly differs from this machine's clock, and once that it agrees.

No verdict depends on the difference, because an age is measured by one clock. But a coordinator whose clock is set
ends transactions too early or too late, and times in the logs of the machines do not match.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from txnwatch.state.model.broker_clocks import Clock
from txnwatch.state.model.findings import Finding
from txnwatch.state.model.ids import BrokerId
from txnwatch.state.model.ports import Log
from txnwatch.state.model.quantities import NO_TIME, DurationMs
from txnwatch.watch.bucket_counts import any_count

REPORTED_MS = DurationMs(10_000)
_AGREES_MS = REPORTED_MS // 2  # less than what is reported, so that a clock near the limit gives two lines at most


@dataclass(slots=True)
class ClockDifferences:
    """The brokers whose clocks are reported as different.

    Attributes:
        log: receives a warning when a clock differs by 10 s or more, and a message when it agrees within 5 s again.
    """

    log: Log
    _is_ahead: dict[BrokerId, bool] = field(default_factory=dict)

    def on_batch(self, emitted: Iterable[Finding]) -> None:
        """Takes the output of one micro-batch: all buckets have the same bounds on the clocks."""
        count = any_count(emitted)
        if count is None:
            return
        for broker, clock in count.clocks:
            difference_ms = least_difference_ms(clock)
            is_ahead = difference_ms > 0
            if abs(difference_ms) >= REPORTED_MS and self._is_ahead.get(broker) is not is_ahead:
                self._is_ahead[broker] = is_ahead
                where = "ahead of" if is_ahead else "behind"
                self.log.warning(
                    f"the clock of broker {broker} is at least {abs(difference_ms) // 1000} s {where} the clock of "
                    "this machine; verdicts stay right, but a coordinator uses its clock for the timeouts of "
                    "transactions; synchronize the clocks (NTP); the metric txnwatch_broker_clock_offset_seconds has "
                    "the difference"
                )
            elif broker in self._is_ahead and abs(difference_ms) < _AGREES_MS:
                del self._is_ahead[broker]
                self.log.info(f"the clock of broker {broker} agrees with the clock of this machine again")


def least_difference_ms(clock: Clock) -> DurationMs:
    """The smallest difference that the bounds allow: positive if the broker's clock is ahead, 0 if it may agree."""
    if clock.lowest_ms > 0:
        return clock.lowest_ms
    if clock.highest_ms is not None and clock.highest_ms < 0:
        return clock.highest_ms
    return NO_TIME
