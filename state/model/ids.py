"""Names of partitions, topics, producers, brokers and barriers, and the name of the coordinators' log topic."""

from __future__ import annotations

import re
from typing import NamedTuple, NewType

TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset(
    {TRANSACTION_STATE_TOPIC, "__consumer_offsets", "__share_group_state", "__cluster_metadata"}
)
TOPIC_NAME_RULE = "a topic's name: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', and neither '.' nor '..'"
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
BrokerId = NewType("BrokerId", int)
LeaderEpoch = NewType("LeaderEpoch", int)  # of a partition; it rises with every election
CoordinatorEpoch = NewType("CoordinatorEpoch", int)  # the leader epoch of a coordinator's partition of its log
BarrierNumber = NewType("BarrierNumber", int)  # also the number of the batch that begins with the barrier
NO_BARRIER = BarrierNumber(0)  # before the first barrier of a watch


class TopicPartition(NamedTuple):
    """A partition by topic name, as in the records of the coordinators' log."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TopicPartition:
        """Parses `topic-partition`; the topic name may contain dashes.

        Raises:
            ValueError: there is no dash, or the part after the last dash is not a number.
        """
        topic, dash, partition = text.rpartition("-")
        if not dash or not topic:
            raise ValueError(f"expected TOPIC-PARTITION, found {text!r}")
        return cls(topic, int(partition))


def is_topic_name(text: str) -> bool:
    """Whether Kafka accepts the text as a topic name, by the rule of `org.apache.kafka.common.internals.Topic`."""
    return _TOPIC_NAME.fullmatch(text) is not None and text not in {".", ".."}


def lease_group(cluster_id: str) -> str:
    """The consumer group in which the instances of a cluster share the lease of the automatic abort."""
    return f"txnwatch-abort-{cluster_id}"
