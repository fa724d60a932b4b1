"""Every threshold of detection, with its unit in the name and Kafka's default beside it where there is one."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_SCAN_INTERVAL_MS = 10_000
TWO_PHASE_TIMEOUT_MS = 2147483647  # KIP-939: a transaction with this timeout is never aborted by time


@dataclass(frozen=True, slots=True)
class DetectionPolicy:
    """When the rules that rest on time apply; `hanging` has no threshold, it is proven.

    Attributes:
        late_buffer_ms: added to an id's own timeout and the scan interval before it is called late.
        coordinator_scan_interval_ms: `transaction.abort.timed.out.transaction.cleanup.interval.ms`; None for what the
            brokers say, and Kafka's default (10 s) where they do not.
        stuck_prepare_ms: how long Prepare* may take to write its markers.
        long_running_fraction: of its own timeout, at which an open transaction earns an early warning.
        long_running_min_ms: and no earlier than this, so that a default client (60 s timeout) that the
            coordinator is about to abort by itself raises nothing.
        two_phase_check_ms: how often a coordinator is asked whether it still holds an old two-phase transaction.
        repeat_first_ms, repeat_max_ms: pauses between repeats of an unresolved candidate; each doubles.
        told_after_ms: what has been open for so long is told one by one, for metrics and for Redis, and to say who
            holds a last stable offset. No longer than `standing_still_ms`: what is not told holds nothing.
        standing_still_ms: a last stable offset that has not moved for so long, and that nothing told holds, is looked
            into by a census.
        owner_unread_ms: data of an unknown producer id that has been open for so long, while a part of the
            coordinator's log is not read, is asked about at the coordinators.
        unreadable_tries, unreadable_ms: so often and for so long in a row a range must fail before it counts as lost.
        idle_retention_ms: how long a producer id that has nothing open keeps its transactional id in state.
    """

    late_buffer_ms: int = 5_000
    coordinator_scan_interval_ms: int | None = None
    stuck_prepare_ms: int = 30_000
    long_running_fraction: float = 0.8
    long_running_min_ms: int = 120_000
    two_phase_check_ms: int = 3_600_000
    repeat_first_ms: int = 1_000
    repeat_max_ms: int = 60_000
    told_after_ms: int = 2_000
    standing_still_ms: int = 2_000
    owner_unread_ms: int = 2_000
    unreadable_tries: int = 3
    unreadable_ms: int = 10_000
    idle_retention_ms: int = 3_600_000

    def scan_interval_ms(self, told_ms: int | None) -> int:
        """How often coordinators look for expired transactions; `told_ms` is what the brokers say."""
        known = (self.coordinator_scan_interval_ms, told_ms, DEFAULT_SCAN_INTERVAL_MS)
        return next(interval_ms for interval_ms in known if interval_ms is not None)
