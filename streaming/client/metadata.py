"""The Metadata response as typed values: topics with their ids, and each partition's leader and leader epoch."""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass
from typing import Any, NamedTuple

from txnwatch.state.model.ids import BrokerId, LeaderEpoch, TopicPartition
from txnwatch.state.model.ports import UNKNOWN_PARTITION
from txnwatch.streaming.client.connection import error_name
from txnwatch.streaming.client.endpoint import Endpoint

NO_LEADER = BrokerId(-1)


class PartitionInfo(NamedTuple):
    """A partition's leader; `leader` is -1 if there is none."""

    leader: BrokerId
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic in a Metadata response; `error` is Kafka's error name or None, `topic_id` is empty before Kafka 2.8."""

    name: str
    topic_id: str
    partitions: dict[int, PartitionInfo]
    error: str | None = None

    @property
    def is_hidden(self) -> bool:
        """Whether this user may not see the topic; it may exist."""
        return self.error == "TOPIC_AUTHORIZATION_FAILED"


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

    def why_absent(self, partition: TopicPartition) -> str:
        """The error of a partition that the response lacks: the topic is hidden from us, or does not exist."""
        topic = self.topics.get(partition.topic)
        return topic.error if topic is not None and topic.error is not None else UNKNOWN_PARTITION


def topic_id_text(topic_id: uuid.UUID | None) -> str:
    """A topic id in Kafka's notation (URL-safe base64 without padding); empty if there is none."""
    if topic_id is None or topic_id.int == 0:
        return ""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def topic_id_uuid(text: str) -> uuid.UUID:
    """The topic id of such a text: the inverse of `topic_id_text`."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def newest(known: Metadata | None, answer: Metadata) -> Metadata:
    """The new metadata, but with the known leader where its epoch is higher: a leader epoch never falls."""
    if known is None or known.cluster_id != answer.cluster_id:
        return answer
    for topic in answer.topics.values():
        before = known.topics.get(topic.name)
        if before is None or before.topic_id != topic.topic_id:
            continue
        for number, info in before.partitions.items():
            if number in topic.partitions and topic.partitions[number].leader_epoch < info.leader_epoch:
                topic.partitions[number] = info
    return answer


def metadata_of(response: Any) -> Metadata:
    """A Metadata response as typed values."""
    return Metadata(
        cluster_id=response.cluster_id or "",
        brokers={broker.node_id: Endpoint(broker.host, broker.port) for broker in response.brokers},
        topics={
            topic.name: TopicInfo(
                name=topic.name,
                topic_id=topic_id_text(topic.topic_id),
                partitions={
                    partition.partition_index: PartitionInfo(partition.leader_id, partition.leader_epoch)
                    for partition in topic.partitions
                },
                error=error_name(topic.error_code) if topic.error_code else None,
            )
            for topic in response.topics
        },
    )
