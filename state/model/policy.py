"""All thresholds of detection. The unit is in the name; Kafka's default is beside the value if there is one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from zlib import crc32

from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.state.model.quantities import DurationMs

DEFAULT_SCAN_INTERVAL_MS = DurationMs(10_000)
TWO_PHASE_TIMEOUT_MS = DurationMs(2147483647)  # KIP-939: a transaction with this timeout is never aborted by time

CENSUS_READ_MS = DurationMs(10_000)  # data that a census shows may be younger than its batch, by the time of a batch


@dataclass(frozen=True, slots=True)
class DetectionPolicy:
    """Thresholds of the time-based rules. `hanging` has no threshold, because it is proven.

    Attributes:
        late_buffer_ms: added to a transaction's own timeout and the scan interval before it counts as late.
        coordinator_scan_interval_ms: `transaction.abort.timed.out.transaction.cleanup.interval.ms`; None uses the value
            that the brokers return, or Kafka's default (10 s) if they return none.
        stuck_prepare_ms: how long a transaction may be in Prepare* until its markers are written.
        long_running_fraction: fraction of its own timeout after which an open transaction gets an early warning.
        long_running_min_ms: the minimum age for this warning, so that a default client (60 s timeout), whose
            transaction the coordinator is about to abort, causes none.
        two_phase_check_ms: how often a coordinator is asked whether it still holds an old two-phase transaction.
        repeat_first_ms, repeat_max_ms: first and longest pause between repeats of an unresolved candidate; each
            doubles.
        listed_after_ms: a transaction that has been open this long is listed individually, for metrics, Redis, and to
            name the holder of a last stable offset. At most `blocked_offset_ms`: an unlisted transaction does not count
            as a holder.
        blocked_offset_ms: a last stable offset that has not moved for this long, and that no listed transaction holds,
            is examined by a census.
        owner_unread_ms: if part of the coordinators' log is not read, and data of an unknown producer id has been open
            for this long, the coordinators are asked for its owner.
        unreadable_tries, unreadable_ms: a range counts as lost after this many failures in a row over this time.
        idle_retention_ms: how long the state keeps the transactional id of a producer id that has nothing open.
        coordinator_access: how the coordinators' view is known.
        coordinator_ask_ms: with access `api`, the pause between two rounds of questions to the coordinators.
        longest_timeout_ms: `transaction.max.timeout.ms`, only used with access `none`; None if it is not known,
            or if no timeout limits a transaction. Then no data is late.
    """

    late_buffer_ms: DurationMs = DurationMs(5_000)
    coordinator_scan_interval_ms: DurationMs | None = None
    stuck_prepare_ms: DurationMs = DurationMs(30_000)
    long_running_fraction: float = 0.8
    long_running_min_ms: DurationMs = DurationMs(120_000)
    two_phase_check_ms: DurationMs = DurationMs(3_600_000)
    repeat_first_ms: DurationMs = DurationMs(1_000)
    repeat_max_ms: DurationMs = DurationMs(60_000)
    listed_after_ms: DurationMs = DurationMs(2_000)
    blocked_offset_ms: DurationMs = DurationMs(2_000)
    owner_unread_ms: DurationMs = DurationMs(2_000)
    unreadable_tries: int = 3
    unreadable_ms: DurationMs = DurationMs(10_000)
    idle_retention_ms: DurationMs = DurationMs(3_600_000)
    coordinator_access: CoordinatorAccess = CoordinatorAccess.LOG
    coordinator_ask_ms: DurationMs = DurationMs(5_000)
    longest_timeout_ms: DurationMs | None = None

    def open_too_long_ms(self, listed_scan_ms: DurationMs | None) -> DurationMs | None:
        """The age above which open data is older than any transaction may be; None if no limit is known."""
        if self.longest_timeout_ms is None:
            return None
        scan_ms = self.scan_interval_ms(listed_scan_ms)
        return self.longest_timeout_ms + scan_ms + self.late_buffer_ms + CENSUS_READ_MS

    def scan_interval_ms(self, listed_ms: DurationMs | None) -> DurationMs:
        """How often coordinators look for expired transactions; `listed_ms` is the value from the brokers."""
        known = (self.coordinator_scan_interval_ms, listed_ms, DEFAULT_SCAN_INTERVAL_MS)
        return next(interval_ms for interval_ms in known if interval_ms is not None)

    def digest(self, listed_ms: DurationMs | None) -> int:
        """A digest of all thresholds, with the scan interval that counts."""
        return _digest(self, self.scan_interval_ms(listed_ms))


@lru_cache(maxsize=4)  # each bucket asks at each barrier
def _digest(policy: DetectionPolicy, scan_interval_ms: DurationMs) -> int:
    return crc32(repr(replace(policy, coordinator_scan_interval_ms=scan_interval_ms)).encode())
