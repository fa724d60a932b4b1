"""Whose data is whose: for every batch that was ever written, the transaction it was written in, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txnwatch.state.ids import TopicPartition
from txnwatch.state.transaction import TransactionState

if TYPE_CHECKING:
    from simulation.coordinator import Coordinators
    from simulation.partition import DataPartition

Owner = tuple[str, int]


class Owners:
    """By topic id, partition and producer id, and then by offset; an offset can be written again after a truncation."""

    def __init__(self) -> None:
        self._written: dict[tuple[str, TopicPartition, int], dict[int, set[Owner | None]]] = {}

    def wrote(self, known: Coordinators, name: str, at: DataPartition, offset: int, identity: tuple[int, int]) -> None:
        """A client of this id has written as (producer id, epoch): whose transaction is the data part of?"""
        producer_id = identity[0]
        value = known.transactions[name].value if name in known.transactions else None
        owner = None
        if value is not None and known.is_held(producer_id, at.partition):
            is_its_own = (value.producer_id, value.producer_epoch, value.state) == (*identity, TransactionState.ONGOING)
            owner = (name, value.start_ms) if is_its_own else None
        written = self._written.setdefault((at.topic_id, at.partition, producer_id), {})
        written.setdefault(offset, set()).add(owner)

    def is_mixed(self, topic_id: str, partition: TopicPartition, producer_id: int, offsets: range) -> bool:
        """Whether what was ever written there was not all of one transaction."""
        written = self._written.get((topic_id, partition, producer_id), {})
        found = set().union(*(owners for offset, owners in written.items() if offset in offsets))
        return None in found or len(found) > 1
