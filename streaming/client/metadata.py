"""The Metadata response as typed values: topics with their ids, and each partition's leader and leader epoch."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from txnwatch.state.model.ports import UNKNOWN_PARTITION
from txnwatch.state.model.values import (
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    ErrorCode,
    LeaderEpoch,
    Problem,
    TopicPartition,
)
from txnwatch.streaming.client.connection import problem_of
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.wire.primitives import present

NO_LEADER = Problem("no leader")


class PartitionInfo(NamedTuple):
    """A partition's leader; None if there is none. A broker before Kafka 2.1 returns no leader epoch.

    Attributes:
        closest: a follower in the client's rack; None if there is none, or if the leader is there.
    """

    leader: BrokerId | None
    leader_epoch: LeaderEpoch | None
    closest: BrokerId | None = None


def any_of(replicas: Sequence[BrokerId]) -> str:
    """The brokers of which one has to come back."""
    return f"broker {' or '.join(map(str, replicas))}"


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic in a Metadata response; `topic_id` is empty before Kafka 2.8.

    Attributes:
        replicas: the brokers of each partition of the coordinators' log; empty for other topics.
    """

    name: str
    topic_id: str
    partitions: dict[int, PartitionInfo]
    error: Problem | None = None
    replicas: dict[int, tuple[BrokerId, ...]] = field(default_factory=dict)

    def waits_for(self) -> dict[int, str]:
        """The partitions without a leader whose replicas are known: which broker has to come back."""
        leaderless = (number for number, info in self.partitions.items() if info.leader is None)
        return {number: any_of(self.replicas[number]) for number in leaderless if self.replicas.get(number)}

    @property
    def is_hidden(self) -> bool:
        """Whether this user may not see the topic; it may exist."""
        return self.error is not None and self.error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@dataclass(frozen=True, slots=True)
class Metadata:
    """One Metadata response."""

    cluster_id: str
    brokers: dict[BrokerId, Endpoint]
    topics: dict[str, TopicInfo]

    def info(self, partition: TopicPartition) -> PartitionInfo | None:
        """The partition's leader; None if the response does not have the partition."""
        topic = self.topics.get(partition.topic)
        return topic.partitions.get(partition.partition) if topic is not None else None

    def leader(self, partition: TopicPartition) -> BrokerId | None:
        """The partition's leader; None if it has none, or if the response does not have the partition."""
        info = self.info(partition)
        return info.leader if info is not None else None

    def why_absent(self, partition: TopicPartition) -> Problem:
        """The error of a partition that the response lacks: the topic is hidden from us, or does not exist."""
        topic = self.topics.get(partition.topic)
        return topic.error if topic is not None and topic.error is not None else UNKNOWN_PARTITION


def _error_of(topic: Any) -> Problem | None:
    problem = problem_of(topic.error_code)
    return problem.with_right("DESCRIBE on the topic (READ includes it)") if problem is not None else None


def _topic_id_text(topic_id: uuid.UUID | None) -> str:
    """A topic id in Kafka's notation (URL-safe base64 without padding); empty if there is none."""
    if topic_id is None or topic_id.int == 0:
        return ""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def topic_id_uuid(text: str) -> uuid.UUID:
    """The topic id of such a text: the inverse of `_topic_id_text`."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def _closest(partition: Any, near: Collection[int]) -> BrokerId | None:
    """A follower among the brokers of the client's rack, in sync if there is one."""
    if not near or partition.leader_id in near:
        return None
    return next((node for node in (*partition.isr_nodes, *partition.replica_nodes) if node in near), None)


def newest(previous: Metadata | None, answer: Metadata) -> Metadata:
    """The new metadata, but with the previous leader where its epoch is higher: a leader epoch never falls."""
    if previous is None or previous.cluster_id != answer.cluster_id:
        return answer
    for topic in answer.topics.values():
        before = previous.topics.get(topic.name)
        if before is None or before.topic_id != topic.topic_id:
            continue
        for number, info in before.partitions.items():
            if number in topic.partitions and _is_older(topic.partitions[number], info):
                topic.partitions[number] = info
    return answer


def _is_older(answered: PartitionInfo, previous: PartitionInfo) -> bool:
    if previous.leader_epoch is None:
        return False
    return answered.leader_epoch is None or answered.leader_epoch < previous.leader_epoch


def metadata_of(response: Any, rack: str | None = None) -> Metadata:
    """A Metadata response as typed values; `rack` is the client's."""
    near = {broker.node_id for broker in response.brokers if rack is not None and broker.rack == rack}
    return Metadata(
        cluster_id=response.cluster_id or "",
        brokers={broker.node_id: Endpoint(broker.host, broker.port) for broker in response.brokers},
        topics={
            topic.name: TopicInfo(
                name=topic.name,
                topic_id=_topic_id_text(topic.topic_id),
                partitions={
                    partition.partition_index: PartitionInfo(
                        present(partition.leader_id), present(partition.leader_epoch), _closest(partition, near)
                    )
                    for partition in topic.partitions
                },
                error=_error_of(topic),
                replicas={
                    partition.partition_index: tuple(sorted(map(BrokerId, partition.replica_nodes)))
                    for partition in (topic.partitions if topic.name == TRANSACTION_STATE_TOPIC else ())
                },
            )
            for topic in response.topics
            if topic.name is not None  # null only answers a request by topic id
        },
    )
