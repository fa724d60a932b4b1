"""The missing evidence of a watch: the value that the heartbeat and the metrics take from the coverage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from txnwatch.state.detection.proof import Look
from txnwatch.state.model.findings import BucketCount, Finding
from txnwatch.state.model.ids import TopicPartition
from txnwatch.streaming.source.offsets import is_data


@dataclass(frozen=True, slots=True)
class MissingEvidence:
    """The evidence that is missing at one barrier.

    Attributes:
        unproven: partitions about which nothing has been proven for 30 s, or never since the start, and hidden ones;
            those of the coordinators' log come first.
        undescribed: partitions whose leaders did not describe their producers in the last census that asked them.
        unproven_by_census: the undescribed partitions that are unproven for that reason.
        is_log_read: whether a part of the coordinators' log was read to its end within the last 30 s; if not, nothing
            is proven.
    """

    unproven: tuple[TopicPartition, ...] = ()
    undescribed: frozenset[TopicPartition] = frozenset()
    unproven_by_census: frozenset[TopicPartition] = frozenset()
    is_log_read: bool = False


def is_of_log(partition: TopicPartition) -> bool:
    """Whether the partition is one of the coordinators' log."""
    return not is_data(partition)


def is_log_missing(emitted: Iterable[Finding]) -> bool:
    """Whether there is open data, but no broker shows the coordinators' log."""
    counts = (finding for finding in emitted if isinstance(finding, BucketCount))
    return any(dict(finding.waiting).get(Look.COORDINATOR_NOT_SHOWN) for finding in counts)


def log_first(partitions: set[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Sorts partitions for reports: those of the coordinators' log come first, because more depends on them."""
    return tuple(sorted(partitions, key=lambda partition: (not is_of_log(partition), partition)))
