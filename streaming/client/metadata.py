"""What a Metadata answer says: topics with their ids, and who leads what under which epoch."""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass
from typing import Any, NamedTuple

from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.ports import UNKNOWN_PARTITION
from txnwatch.streaming.client.connection import Endpoint, error_name

NO_LEADER = -1


class PartitionInfo(NamedTuple):
    """Who leads a partition; `leader` is -1 when nobody does."""

    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as Metadata describes it; `error` is Kafka's error name or None, `topic_id` empty before 2.8."""

    name: str
    topic_id: str
    partitions: dict[int, PartitionInfo]
    error: str | None = None

    @property
    def is_hidden(self) -> bool:
        """Whether this user may not see it; it may be there."""
        return self.error == "TOPIC_AUTHORIZATION_FAILED"


@dataclass(frozen=True, slots=True)
class Metadata:
    """One Metadata answer."""

    cluster_id: str
    brokers: dict[int, Endpoint]
    topics: dict[str, TopicInfo]

    def info(self, partition: TopicPartition) -> PartitionInfo | None:
        """The partition's leader, None if the answer does not have it."""
        topic = self.topics.get(partition.topic)
        return topic.partitions.get(partition.partition) if topic is not None else None

    def why_absent(self, partition: TopicPartition) -> str:
        """The error of a partition that the answer does not have: it is hidden from us, or there is none."""
        topic = self.topics.get(partition.topic)
        return topic.error if topic is not None and topic.error is not None else UNKNOWN_PARTITION


def topic_id_text(topic_id: uuid.UUID | None) -> str:
    """A topic id in Kafka's notation (URL-safe base64 without padding), empty for none."""
    if topic_id is None or topic_id.int == 0:
        return ""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def topic_id_uuid(text: str) -> uuid.UUID:
    """The other way round."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def newest(known: Metadata | None, told: Metadata) -> Metadata:
    """What was told, but never a lower leader epoch than is known already: a leader only changes upwards."""
    if known is None or known.cluster_id != told.cluster_id:
        return told
    for topic in told.topics.values():
        before = known.topics.get(topic.name)
        if before is None or before.topic_id != topic.topic_id:
            continue
        for number, info in before.partitions.items():
            if number in topic.partitions and topic.partitions[number].leader_epoch < info.leader_epoch:
                topic.partitions[number] = info
    return told


def metadata_of(response: Any) -> Metadata:
    """A Metadata response as values."""
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
