"""Reports once that micro-batches have been slow for 30 s, and once that they have been quick again for 30 s.

A hang is proven by two barriers, so it is reported two micro-batches after the write at the earliest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from txnwatch.state.model.findings import Finding
from txnwatch.state.model.ports import Log
from txnwatch.state.model.quantities import DurationMs, TimestampMs, elapsed
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.watch.bucket_counts import any_count
from txnwatch.watch.persistent_alerts import PERSISTENT_MS

SLOW_MS = DurationMs(2_000)  # a hang is then reported after 4 s or more; with quick micro-batches, after about 1 s


@dataclass(slots=True)
class SlowBatches:
    """Compares the duration of each micro-batch with `SLOW_MS`: from the listing of the partitions to its output.

    Attributes:
        log: receives a warning when all micro-batches of 30 s were slow, and a message when none of 30 s was.
    """

    log: Log
    now_ms: Callable[[], TimestampMs] = wall_clock_ms
    _is_reported: bool = False
    _differs_since_ms: TimestampMs | None = None

    def on_batch(self, emitted: Iterable[Finding]) -> None:
        """Takes the output of one micro-batch; without an evaluated bucket, its duration is not known."""
        count = any_count(emitted)
        if count is None:
            return
        now_ms = self.now_ms()
        took_ms = elapsed(count.data_listed_ms, now_ms)
        if (took_ms >= SLOW_MS) is self._is_reported:
            self._differs_since_ms = None
            return
        if self._differs_since_ms is None:
            self._differs_since_ms = count.data_listed_ms
        if elapsed(self._differs_since_ms, now_ms) >= PERSISTENT_MS:
            self._is_reported, self._differs_since_ms = not self._is_reported, None
            self._report(took_ms)

    def _report(self, took_ms: DurationMs) -> None:
        if not self._is_reported:
            self.log.info(f"micro-batches take less than {SLOW_MS / 1000:.0f} s again")
            return
        self.log.warning(
            f"micro-batches are slow: for {PERSISTENT_MS / 1000:.0f} s, each has taken {SLOW_MS / 1000:.0f} s or "
            f"more, the last one {took_ms / 1000:.1f} s, so hangs are reported later; a disk is slow, the machine is "
            "busy, or a broker answers slowly; the metric txnwatch_batch_duration_seconds has all durations"
        )
