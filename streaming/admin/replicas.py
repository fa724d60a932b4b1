"""The replicas of partitions, from Metadata; those that may lead again, from DescribeTopicPartitions (Kafka 4.0).

`min.insync.replicas` is asked only for topics of which a replica is not in sync.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from kafka.protocol.admin import DescribeTopicPartitionsRequest
from kafka.protocol.metadata import MetadataRequest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.partition_replicas import PartitionReplicas, PlacesAtRisk
from txnwatch.state.model.values import BrokerId, TopicPartition
from txnwatch.streaming.admin.kafka_settings import topic_settings
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection
from txnwatch.streaming.log.coordinator_log import log_of
from txnwatch.streaming.wire.primitives import present

MIN_IN_SYNC = "min.insync.replicas"
_MOST_PARTITIONS = 2_000


def read_replicas(cluster: Cluster, topics: Iterable[str]) -> dict[TopicPartition, PartitionReplicas]:
    """The replicas of all partitions of some topics; topics that could not be read are missing."""
    names = sorted(set(topics))
    if not names:
        return {}
    try:
        connection = cluster.any_connection()
        version = connection.require_version(MetadataRequest, highest=12, lowest=5)
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(version=version, topics=wanted, allow_auto_topic_creation=False)
        replicas = replicas_in(cluster.call(connection, request))
        leaderless = {at.topic for at, state in replicas.items() if state.leader is None and not state.in_sync}
        may_lead = _last_leaders(cluster, connection, sorted(leaderless))
    except BrokerError:
        return {}
    least = topic_settings(cluster, sorted({at.topic for at, state in replicas.items() if state.missing}), MIN_IN_SYNC)
    return {at: _completed(state, may_lead.get(at, ()), _number(least, at.topic)) for at, state in replicas.items()}


def blocked_of(cluster: Cluster, partitions: Iterable[TopicPartition]) -> list[PartitionReplicas]:
    """Those of some partitions on which no marker can be written: too few in-sync replicas, or no leader."""
    return [replicas for replicas in replicas_of(cluster, partitions) if replicas.is_blocked]


def replicas_of(cluster: Cluster, partitions: Iterable[TopicPartition]) -> list[PartitionReplicas]:
    """The replicas of some partitions; partitions that could not be read are missing."""
    wanted = sorted(set(partitions))
    replicas = read_replicas(cluster, (at.topic for at in wanted))
    return [replicas[at] for at in wanted if at in replicas]


def places_at_risk(
    cluster: Cluster, partitions: Collection[TopicPartition], transactional_ids: Collection[str]
) -> PlacesAtRisk:
    """Which of some partitions, and of the partitions of the coordinators' log that have some ids, are at risk."""
    logs = {name: log for name in transactional_ids if (log := log_of(cluster, name)) is not None}
    states = replicas_of(cluster, {*partitions, *logs.values()})
    return PlacesAtRisk({state.partition: state for state in states if state.is_blocked or state.is_last}, logs)


def replicas_in(response: Any) -> dict[TopicPartition, PartitionReplicas]:
    """The partitions of a Metadata response."""
    return {
        TopicPartition(topic.name, partition.partition_index): PartitionReplicas(
            TopicPartition(topic.name, partition.partition_index),
            present(partition.leader_id),
            _sorted(partition.replica_nodes),
            _sorted(partition.isr_nodes),
            _sorted(partition.offline_replicas or ()),
        )
        for topic in response.topics
        for partition in topic.partitions
    }


def _last_leaders(
    cluster: Cluster, connection: Connection, topics: list[str]
) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """By partition, the replicas that may lead again although none is in sync; none before Kafka 4.0."""
    version = connection.version(DescribeTopicPartitionsRequest, highest=0)
    if version is None or not topics:
        return {}
    request = DescribeTopicPartitionsRequest(
        version=version,
        topics=[DescribeTopicPartitionsRequest.TopicRequest(version=version, name=name) for name in topics],
        response_partition_limit=_MOST_PARTITIONS,
        cursor=None,
    )
    return {
        TopicPartition(topic.name, partition.partition_index): _sorted(
            partition.last_known_elr or partition.eligible_leader_replicas or ()
        )
        for topic in cluster.call(connection, request).topics
        for partition in topic.partitions
    }


def _completed(replicas: PartitionReplicas, may_lead: tuple[BrokerId, ...], least: int | None) -> PartitionReplicas:
    return replicas._replace(last_leaders=may_lead, min_in_sync=least if replicas.missing else None)


def _number(settings: Any, topic: str) -> int | None:
    setting = settings.get(topic)
    return int(setting.value) if setting is not None and setting.value.isdecimal() else None


def _sorted(nodes: Iterable[int]) -> tuple[BrokerId, ...]:
    return tuple(sorted(map(BrokerId, nodes)))
