"""The replicas of a partition, by the controller: which are in sync, and whether that is enough. Pure.

Law: with fewer in-sync replicas than `min.insync.replicas` a leader appends nothing that all of them must acknowledge:
no record of a producer with acks=all, no marker, and no record of a coordinator. Unless an unclean election is allowed,
a partition without a leader gets one from its last in-sync replicas only. With eligible leader replicas (KIP-966) this
list is empty: the last known leader may lead again, and another eligible one only if its broker was stopped cleanly.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from txnwatch.state.model.values import BrokerId, TopicPartition


class PartitionReplicas(NamedTuple):
    """The replicas of one partition.

    Attributes:
        leader: None if it has none.
        away: those of `replicas` whose broker is not there.
        last_leaders: if none is in sync, those that may lead again (KIP-966).
        min_in_sync: `min.insync.replicas`; None if it is not known, or was not asked for.
    """

    partition: TopicPartition
    leader: BrokerId | None
    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]
    away: tuple[BrokerId, ...] = ()
    last_leaders: tuple[BrokerId, ...] = ()
    min_in_sync: int | None = None

    @property
    def missing(self) -> tuple[BrokerId, ...]:
        """The replicas that are not in sync."""
        return tuple(broker for broker in self.replicas if broker not in self.in_sync)

    @property
    def is_short(self) -> bool:
        """Whether it has a leader, and too few in-sync replicas for a marker."""
        return self.leader is not None and self.min_in_sync is not None and len(self.in_sync) < self.min_in_sync

    @property
    def is_blocked(self) -> bool:
        """Whether no marker can be written: it is short of in-sync replicas, or has no leader."""
        return self.leader is None or self.is_short

    @property
    def is_last(self) -> bool:
        """Whether it has a leader, and no other replica could become the leader if that broker were restarted."""
        return self.leader is not None and bool(self.missing) and len(self.in_sync) == 1

    @property
    def in_sync_last(self) -> tuple[BrokerId, ...]:
        """If it has no leader, the brokers of which one has to come back; empty if they are not known."""
        return self.in_sync or self.last_leaders


class PlacesAtRisk(NamedTuple):
    """The partitions of some transactions that are short of in-sync replicas, or have no leader.

    Attributes:
        by_partition: those that are blocked, or have one replica in sync of several.
        logs: by transactional id, the partition of the coordinators' log that has it.
    """

    by_partition: Mapping[TopicPartition, PartitionReplicas] = MappingProxyType({})
    logs: Mapping[str, TopicPartition] = MappingProxyType({})

    def of(self, partitions: Collection[TopicPartition], transactional_id: str | None) -> AtRisk:
        """Those of one transaction."""
        log = self.logs.get(transactional_id) if transactional_id is not None else None
        wanted = sorted({*partitions, log} if log is not None else {*partitions})
        states = [self.by_partition[at] for at in wanted if at in self.by_partition]
        blocked = tuple(state for state in states if state.is_blocked)
        return AtRisk(blocked, tuple(state for state in states if not state.is_blocked))


class AtRisk(NamedTuple):
    """The partitions of one transaction that are at risk.

    Attributes:
        blocked: on which no marker can be written.
        last: of which one replica is in sync.
    """

    blocked: tuple[PartitionReplicas, ...] = ()
    last: tuple[PartitionReplicas, ...] = ()


NONE_AT_RISK: Final = PlacesAtRisk()
NOTHING_AT_RISK: Final = AtRisk()
