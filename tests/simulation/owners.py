"""The true owner of data: the transaction in which each batch was written, or none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from simulation.encoding import Data
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import TopicPartition

if TYPE_CHECKING:
    from simulation.coordinator import Coordinators
    from simulation.partition import DataPartition


class Owner(NamedTuple):
    """A transaction, identified by values that do not change until its end."""

    transactional_id: str
    producer_id: int
    start_ms: int


class Owners:
    """The owners by topic id, partition and producer id, and then by offset and leader epoch of the batch."""

    def __init__(self) -> None:
        self._written: dict[tuple[str, TopicPartition, int], dict[tuple[int, int], Owner | None]] = {}

    def wrote_in(self, owner: Owner | None, at: DataPartition, offset: int, producer_id: int) -> None:
        """Records the owner of a batch."""
        self._written.setdefault((at.topic_id, at.partition, producer_id), {})[offset, at.epoch] = owner

    def wrote(self, known: Coordinators, name: str, at: DataPartition, offset: int, identity: tuple[int, int]) -> None:
        """Records the owner of a batch that a client has written with this transactional id, producer id and epoch."""
        producer_id = identity[0]
        transaction = known.transactions.get(name)
        owner = None
        if transaction is not None and transaction.value is not None and at.partition in transaction.held:
            value = transaction.value
            is_its_own = (value.producer_id, value.producer_epoch, value.state) == (*identity, TransactionState.ONGOING)
            owner = Owner(name, producer_id, value.start_ms) if is_its_own else None
        self.wrote_in(owner, at, offset, producer_id)

    def of(self, log: DataPartition, producer_id: int, start: int, last: float = math.inf) -> Iterator[Owner | None]:
        """The owner of each batch of a producer that is in the log now, from `start` to `last`."""
        written = self._written.get((log.topic_id, log.partition, producer_id), {})
        for entry in log.entries:
            if isinstance(entry.body, Data) and entry.body.producer_id == producer_id and start <= entry.offset <= last:
                yield written[entry.offset, entry.leader_epoch]

    def is_mixed(self, topic_id: str, partition: TopicPartition, producer_id: int, offsets: range) -> bool:
        """Whether the batches at these offsets have more than one owner, or none."""
        written = self._written.get((topic_id, partition, producer_id), {})
        found = {owner for (offset, _), owner in written.items() if offset in offsets}
        return None in found or len(found) > 1
