"""A transactional client: begins, adds partitions, writes, ends; waits as real ones do, and sometimes restarts.

Law: a healthy client writes to a partition only after the coordinator has acknowledged that it was added, and it
never ends a transaction with a write under way. What breaks that law is a fault (faults.py).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulation.encoding import Data
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.transaction import TransactionState as S

if TYPE_CHECKING:
    from simulation.world import World


@dataclass(slots=True)
class Client:
    """One transactional id and the instance that uses it; `former` are the identities it has had."""

    transactional_id: str
    log: int
    version: int
    timeout_ms: int
    producer_id: int = -1
    producer_epoch: int = -1
    is_initialising: bool = True
    former: list[tuple[int, int]] = field(default_factory=list)

    def act(self, world: World | None, rng: random.Random) -> None:
        """One request, or the answer to the last one; draws the same numbers whether or not it exists."""
        draw, where = rng.random(), rng.random()
        if world is None:
            return
        known = world.coordinators.transactions.get(self.transactional_id)
        if draw < 0.03:
            self.is_initialising = True  # the instance crashed; its successor fences it
        if known is None or known.value is None or self.is_initialising:
            self._initialise(world)
            return
        if not known.is_free:
            return
        value = known.value
        if (value.producer_id, value.producer_epoch) != (self.producer_id, self.producer_epoch):
            self._learn_or_start_again(world)
            return
        if value.state.is_prepare:
            return  # CONCURRENT_TRANSACTIONS: the next transaction waits for the markers of this one
        if value.state is not S.ONGOING and draw < 0.1:
            world.coordinators.end(known, commit=False)  # from transaction.version 2 on an empty abort is written
            return
        partition = list(world.data)[int(where * len(world.data))]
        if draw < 0.25:
            world.coordinators.end(known, commit=where < 0.5)
            world.note(f"{self.transactional_id} asks to {'commit' if where < 0.5 else 'abort'}")
        elif partition not in known.held:
            world.coordinators.add(known, partition)
            world.note(f"{self.transactional_id} adds {partition}")
        else:
            self.write(world, partition, self.producer_id, self.producer_epoch, 1 + int(draw * 10) % 2)

    def write(self, world: World, partition: TopicPartition, producer_id: int, epoch: int, count: int) -> bool:
        """Writes a batch, even if the client must not write it."""
        at = world.data[partition]
        offset = at.end
        accepted = at.produce(Data(producer_id, epoch, count))
        if accepted:
            world.owners.wrote(world.coordinators, self.transactional_id, at, offset, (producer_id, epoch))
            world.note(f"{partition}@{offset}: data of {producer_id} epoch {epoch} ({self.transactional_id})")
        return accepted

    def _initialise(self, world: World) -> None:
        known = world.coordinators.transactions.get(self.transactional_id)
        if known is not None and known.value is not None and known.is_free and known.value.state is S.EMPTY:
            self._take(known.value.producer_id, known.value.producer_epoch)
            self.is_initialising = False
            return
        self.is_initialising = True
        world.coordinators.init(self.transactional_id, self.log, self.version, self.timeout_ms)
        world.note(f"{self.transactional_id} asks for a producer id")

    def _learn_or_start_again(self, world: World) -> None:
        """EndTxn's answer carries the next epoch from transaction.version 2 on; else this instance is fenced."""
        known = world.coordinators.transactions[self.transactional_id]
        value = known.value
        assert value is not None
        is_bumped = value.producer_id == self.producer_id and value.producer_epoch == self.producer_epoch + 1
        is_rotated = value.previous_producer_id == self.producer_id and value.producer_epoch == 0
        if self.version == 2 and (is_bumped or is_rotated):
            self._take(value.producer_id, value.producer_epoch)
        else:
            self.is_initialising = True

    def _take(self, producer_id: int, producer_epoch: int) -> None:
        if self.producer_id >= 0:
            self.former.append((self.producer_id, self.producer_epoch))
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
