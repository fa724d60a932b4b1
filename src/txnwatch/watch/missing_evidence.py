"""What a watch has no evidence of: the value that its heartbeat and its metrics take from its coverage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from txnwatch.state.model.findings import BucketCount, Emitted
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.verdicts import Look
from txnwatch.streaming.source.offsets import is_data


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is missing at one barrier.

    Attributes:
        unproven: partitions of which nothing has been proven for half a minute, or never since the start; those of the
            coordinators' log come first.
        undescribed: partitions whose leaders did not describe their producers in the last census that asked them.
        unproven_by_census: those of them that are unproven for that reason.
        is_log_read: whether at least a part of the coordinators' log is read to its end; without it nothing is proven.
    """

    unproven: tuple[TopicPartition, ...] = ()
    undescribed: frozenset[TopicPartition] = frozenset()
    unproven_by_census: frozenset[TopicPartition] = frozenset()
    is_log_read: bool = False


def is_of_log(partition: TopicPartition) -> bool:
    """Whether it is a partition of the coordinators' log."""
    return not is_data(partition)


def is_log_missing(emitted: Iterable[Emitted]) -> bool:
    """Whether there is open data, and no broker shows the coordinators' log."""
    counts = (said for said in emitted if isinstance(said, BucketCount))
    return any(dict(said.waiting).get(Look.COORDINATOR_NOT_SHOWN) for said in counts)


def log_first(partitions: set[TopicPartition]) -> tuple[TopicPartition, ...]:
    """In the order in which they are named: more depends on one of the coordinators' log."""
    return tuple(sorted(partitions, key=lambda partition: (not is_of_log(partition), partition)))
