"""The inputs for evaluating producers at one barrier, and what this barrier's listings cover."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from txnwatch.state.model.backoff import doubled
from txnwatch.state.model.broker_clocks import RESERVE_MS, Clocks
from txnwatch.state.model.facts import Barrier
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.policy import DetectionPolicy
from txnwatch.state.model.quantities import DurationMs, TimestampMs
from txnwatch.state.model.transaction import CoordinatorView, Emission


@dataclass(frozen=True, slots=True)
class BarrierContext:
    """The inputs for evaluating every producer of a bucket at one barrier.

    Attributes:
        gaps, coordinator_gaps: partitions with a range that was listed and could not be read.
        left: partitions that a batch did not read to their ends because of its read limit.
        clocks: the brokers' clocks.
        recreated_logs: partitions of a re-created coordinators' log that is not completely read yet, with the number
            of the new reading; views of an earlier reading do not count.
        waiting: counts, filled during the evaluation, of looks that proved nothing.
        wanted: filled during the evaluation: partitions whose next census would help a proof.
    """

    barrier: Barrier
    policy: DetectionPolicy
    gaps: Container[TopicPartition] = ()
    coordinator_gaps: Container[int] = ()
    left: Container[TopicPartition] = ()
    clocks: Clocks = field(default_factory=Clocks)
    recreated_logs: Mapping[int, int] = field(default_factory=dict)
    waiting: Counter[str] = field(default_factory=Counter)
    wanted: set[TopicPartition] = field(default_factory=set)

    @property
    def now_ms(self) -> TimestampMs:
        """Our clock at this barrier."""
        return self.barrier.coordinator_listed_ms

    @property
    def scan_interval_ms(self) -> DurationMs:
        """How often coordinators look for expired transactions."""
        return self.policy.scan_interval_ms(self.barrier.scan_interval_ms)

    def age_ms(self, view: CoordinatorView) -> DurationMs:
        """The minimum time that a live transaction has been in its state at this barrier."""
        return self.clocks.age_ms(view, self.now_ms)

    def assumed_age_ms(self, view: CoordinatorView) -> DurationMs:
        """The age for due times: as if the bound of the coordinator's clock rose by RESERVE_MS (changed_clocks.py)."""
        age_ms = self.age_ms(view)
        return age_ms if self.clocks.of(view) is None else DurationMs(age_ms + RESERVE_MS)

    def is_behind(self, partition: TopicPartition) -> bool:
        """Whether a limit stopped the reading of the partition before its end; then a census replaces the log."""
        return partition in self.barrier.limited_data or partition in self.left

    def is_unproven(self, partition: TopicPartition) -> bool:
        """Whether the log of the partition is not read to an end that this barrier has listed."""
        return partition in self.barrier.stale_data or partition in self.gaps or self.is_behind(partition)

    def is_of_old_log(self, view: CoordinatorView | None) -> bool:
        """Whether the view is from a coordinators' log that was re-created since."""
        return view is not None and view.reading < self.recreated_logs.get(view.log_partition, 0)

    def is_known_to_log(self, view: CoordinatorView | None) -> bool:
        """Whether the coordinators' log has named the producer id and will show its next states."""
        return view is not None and not self.is_of_old_log(view) and view.log_partition not in self.coordinator_gaps

    def has_coordinator(self, view: CoordinatorView) -> bool:
        """Whether the coordinator can be asked: its log partition has a leader, even if that log cannot be read."""
        is_listed = view.log_partition not in self.barrier.stale_coordinator
        return self.barrier.has_coordinator_log and is_listed and not self.is_of_old_log(view)

    def is_read(self, view: CoordinatorView) -> bool:
        """Whether the view's log is read to an end of this barrier: a backlog after a restart must not raise alerts."""
        return self.has_coordinator(view) and view.log_partition not in self.coordinator_gaps

    def had_election(self, view: CoordinatorView | None) -> bool:
        """Whether the log that can name the owner had an election after the last barrier and before it was read now.

        The owner of an unknown producer id can be in any partition of the coordinators' log.
        """
        reigns = self.clocks.reigns
        if view is None:
            return bool(self.barrier.elected) or any(reign.since == self.barrier.number for reign in reigns.values())
        reign = reigns.get(view.log_partition)
        is_new = reign is not None and reign.since == self.barrier.number
        return is_new or view.log_partition in self.barrier.elected

    def next_emission(self, emission: Emission | None) -> Emission:
        """When a candidate that is emitted now is due again; the pause doubles up to a maximum."""
        times = emission.times if emission is not None else 0
        pause_ms = doubled(self.policy.repeat_first_ms, self.policy.repeat_max_ms, times)
        return Emission(times + 1, self.now_ms + pause_ms)

    def is_due(self, emission: Emission | None) -> bool:
        """Whether a candidate that was emitted before is due again."""
        return emission is None or self.now_ms >= emission.next_ms
