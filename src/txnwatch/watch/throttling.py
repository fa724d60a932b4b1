"""Reports once that brokers throttle txnwatch by a quota, and once more when that has stopped for 30 s."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from txnwatch.state.model.findings import Finding, RequestsThrottled
from txnwatch.state.model.ports import Log
from txnwatch.state.model.quantities import LONG_AGO, DurationMs, TimestampMs
from txnwatch.streaming.client.clock import wall_clock_ms

_OVER_AFTER_MS = DurationMs(30_000)


@dataclass(slots=True)
class Throttling:
    """Sums the throttle times and reports the start and the end of throttling.

    Attributes:
        log: receives the messages.
        asked: returns how long the driver's own requests were throttled since the last call, by kind of request.
    """

    log: Log
    now_ms: Callable[[], TimestampMs] = wall_clock_ms
    asked: Callable[[], Mapping[str, DurationMs]] = dict
    _last_ms: TimestampMs = LONG_AGO
    _sum_ms: Counter[str] = field(default_factory=Counter)

    def on_batch(self, emitted: Iterable[Finding]) -> list[Finding]:
        """Adds up the throttle times of a batch; returns the batch with those of the driver's own requests."""
        everything = list(emitted)
        ours = tuple(self.asked().items())
        if ours:
            everything.append(RequestsThrottled(ours))
        now_ms, was_reported = self.now_ms(), bool(self._sum_ms)
        for finding in everything:
            if isinstance(finding, RequestsThrottled):
                self._sum_ms.update(dict(finding.throttled_ms))
                self._last_ms = now_ms
        if self._sum_ms and not was_reported:
            self.log.warning(
                f"brokers throttle txnwatch by a quota ({self._requests()}): a partition that falls behind is "
                "watched by census until it is read; the metric txnwatch_throttled_seconds_total has the total"
            )
        elif was_reported and now_ms - self._last_ms >= _OVER_AFTER_MS:
            self.log.info(f"brokers no longer throttle txnwatch; in total: {self._requests()}")
            self._sum_ms.clear()
        return everything

    def _requests(self) -> str:
        return ", ".join(f"{request} for {length / 1000:.1f} s" for request, length in sorted(self._sum_ms.items()))
