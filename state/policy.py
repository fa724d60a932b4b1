"""Every threshold of detection, with its unit in the name and Kafka's default beside it where there is one."""

from __future__ import annotations

from dataclasses import dataclass

TWO_PHASE_TIMEOUT_MS = 2147483647  # KIP-939: a transaction with this timeout is never aborted by time


@dataclass(frozen=True, slots=True)
class DetectionPolicy:
    """When the rules that rest on time apply; `hanging` has no threshold, it is proven.

    Attributes:
        late_buffer_ms: added to an id's own timeout and the scan interval before it is called late.
        coordinator_scan_interval_ms: `transaction.abort.timed.out.transaction.cleanup.interval.ms` (10 s).
        stuck_prepare_ms: how long Prepare* may take to write its markers.
        long_running_fraction: of its own timeout, at which an open transaction earns an early warning.
        long_running_min_ms: and no earlier than this, so that a default client (60 s timeout) that the
            coordinator is about to abort by itself raises nothing.
        clock_tolerance_ms: a clock difference up to this is covered by `late_buffer_ms`; more is added to it.
        two_phase_check_ms: how often a coordinator is asked whether it still holds an old two-phase transaction.
        repeat_first_ms, repeat_max_ms: pauses between repeats of an unresolved candidate; each doubles.
        told_after_ms: what has been open for so long is told one by one, for metrics and for Redis.
        standing_still_ms: a last stable offset that has not moved for so long is looked into by a census.
        idle_retention_ms: how long a producer id that has nothing open keeps its transactional id in state.
    """

    late_buffer_ms: int = 5_000
    coordinator_scan_interval_ms: int = 10_000
    stuck_prepare_ms: int = 30_000
    long_running_fraction: float = 0.8
    long_running_min_ms: int = 120_000
    clock_tolerance_ms: int = 5_000
    two_phase_check_ms: int = 3_600_000
    repeat_first_ms: int = 1_000
    repeat_max_ms: int = 60_000
    told_after_ms: int = 5_000
    standing_still_ms: int = 2_000
    idle_retention_ms: int = 3_600_000
