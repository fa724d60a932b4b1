"""Builds what several commands need, which is the search on a real cluster; and has what the parts of `explain` share.

None of it needs librdkafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

from txnwatch.state.evidence.screening import OwnerViews
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.values import ProducerId
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.state.telling.commands import Origin
from txnwatch.streaming.admin import transaction_requests as open_for
from txnwatch.streaming.admin.kafka_settings import ScanInterval
from txnwatch.streaming.admin.replicas import places_at_risk
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import read_views
from txnwatch.streaming.search.searcher import Searcher

# The search.


def searcher_of(
    cluster: Cluster,
    policy: DetectionPolicy,
    foreign_topics: str | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Searcher:
    """The search on a real cluster, with the configured thresholds."""

    def read_log(producer_ids: Collection[ProducerId]) -> OwnerViews:
        log_views = read_views(cluster, producer_ids)
        problems = {str(partition): why for partition, why in log_views.problems.items()}
        return OwnerViews(log_views.views, problems, log_views.led, log_views.epochs, log_views.unwatched)

    is_open_for_longer = partial(open_for.is_open_for_longer, cluster)
    policy_of_cluster = _with_scan_interval(policy, cluster)
    return Searcher(
        ClusterAdmin(cluster),
        read_log,
        is_open_for_longer,
        wall_clock_ms,
        policy_of_cluster,
        progress,
        foreign_topics=foreign_topics,
        at_risk=partial(places_at_risk, cluster),
    )


def _with_scan_interval(policy: DetectionPolicy, cluster: Cluster) -> DetectionPolicy:
    """The thresholds for a command that looks once: without a configured scan interval, that of the brokers counts."""
    if policy.coordinator_scan_interval_ms is not None:
        return policy
    return replace(policy, coordinator_scan_interval_ms=ScanInterval().largest_ms(cluster, 0.0))


# What the parts of `explain` share; no other command needs it.


@dataclass(slots=True)
class Question:
    """What the parts of `explain` share.

    Attributes:
        missing: what the answer does not cover, with the reason.
    """

    cluster: Cluster
    origin: Origin
    searcher: Searcher
    missing: dict[str, str] = field(default_factory=dict)

    def note_unread(self, readings: Iterable[PartitionReading]) -> None:
        """Adds the partitions that could not be read."""
        self.missing.update(
            {str(reading.partition): str(reading.problem) for reading in readings if reading.problem is not None}
        )
