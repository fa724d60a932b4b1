"""Partitions by name, and the one topic that every part of the core knows."""

from __future__ import annotations

from typing import NamedTuple

TRANSACTION_STATE_TOPIC = "__transaction_state"


class TopicPartition(NamedTuple):
    """A partition by topic name, as the coordinator's log names it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TopicPartition:
        """The partition written as `topic-partition`; a topic's name may itself contain dashes.

        Raises:
            ValueError: there is no dash, or what follows the last one is no number.
        """
        topic, dash, partition = text.rpartition("-")
        if not dash or not topic:
            raise ValueError(f"expected TOPIC-PARTITION, found {text!r}")
        return cls(topic, int(partition))
