"""How the model names open data: the true spans of a world, and what a detector says about them."""

from __future__ import annotations

from typing import NamedTuple

from txnwatch.state.model.values import TopicPartition


class SpanId(NamedTuple):
    """Open data of a producer on a partition, by where it begins."""

    partition: TopicPartition
    topic_id: str
    producer_id: int
    start: int

    def is_part_of(self, real: SpanId) -> bool:
        """Whether this span is the other one, or a part of it (its beginning may be unknown)."""
        return real[:3] == self[:3] and real.start <= self.start
