"""What `explain`, `fence` and `abort` add if partitions have too few in-sync replicas, or no leader.

What is said about a transaction on such partitions is in state/telling/statements.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from txnwatch.cli.explanation import Explanation
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.partition_replicas import PartitionReplicas
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.telling.replica_words import blocked_lines, last_lines, repair_step
from txnwatch.state.telling.statements import to_repair
from txnwatch.streaming.admin.replicas import blocked_of, places_at_risk
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import log_of


def with_replicas(cluster: Cluster, explained: Explanation, partitions: Collection[TopicPartition]) -> Explanation:
    """The explanation with what some partitions lack that could not be read, or whose last marker is not replicated."""
    at_risk = places_at_risk(cluster, partitions, ()).of(partitions, None)
    told = (*to_repair(at_risk.blocked), *explained.told)
    text = (*explained.text, *blocked_lines(at_risk.blocked), *last_lines(at_risk.last))
    return replace(explained, told=told, text=text, next=None if at_risk.blocked else explained.next)


def log_blocked(cluster: Cluster, transactional_id: str) -> list[PartitionReplicas]:
    """The partition of the coordinators' log that has an id, if it cannot be written."""
    log = log_of(cluster, transactional_id)
    return blocked_of(cluster, [log]) if log is not None else []


@contextlib.contextmanager
def naming_replicas(blocked: Callable[[], Iterable[PartitionReplicas]]) -> Iterator[None]:
    """A failure with the replicas that are its reason: without a leader nothing can be read."""
    try:
        yield
    except BrokerError as exc:
        raise type(exc)(f"{exc}{because_of(blocked())}") from exc


def because_of(blocked: Iterable[PartitionReplicas]) -> str:
    """Why something failed, behind the failure, and what to do; empty if the replicas are not the reason."""
    all_blocked = list(blocked)
    return f". {' '.join(blocked_lines(all_blocked))} {repair_step(all_blocked)}" if all_blocked else ""
