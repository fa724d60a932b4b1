"""A transactional client: begins, adds partitions, writes, ends; waits as real ones do, and sometimes restarts.

Law: a healthy client writes to a partition only after the coordinator has acknowledged that it was added, and it
never ends a transaction with a write under way. What breaks that law is a fault (faults.py).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulation.owners import Owner
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition

if TYPE_CHECKING:
    from simulation.coordinator import Transaction
    from simulation.world import World


@dataclass(slots=True)
class Believed:
    """The transaction as its client believes it to be, whatever the coordinator has lost since.

    Attributes:
        owner: the transaction; None between two of them.
        added: the partitions whose addition the coordinator has acknowledged.
        is_commit: how the client has asked to end it; None while it has not asked.
        ended: the transactions that have ended.
    """

    owner: Owner | None = None
    added: set[TopicPartition] = field(default_factory=set)
    is_commit: bool | None = None
    ended: set[Owner] = field(default_factory=set)

    def begun(self, name: str, producer_id: int, start_ms: int) -> None:
        """It has begun; a new one has a name of its own, even if the coordinator still has the one before."""
        if self.owner is None:
            owner = Owner(name, producer_id, start_ms)
            self.owner = owner if owner not in self.ended else Owner(name, producer_id, -len(self.ended))

    def over(self) -> None:
        """It has ended."""
        if self.owner is not None:
            self.ended.add(self.owner)
        self.owner, self.is_commit = None, None
        self.added.clear()


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
    believed: Believed = field(default_factory=Believed)
    is_gone: bool = False

    def act(self, world: World | None, rng: random.Random) -> None:
        """One request, or the answer to the last one; draws the same numbers whether or not it exists."""
        draw, where = rng.random(), rng.random()
        if world is None or self.is_gone:
            return
        known = world.coordinators.transactions.get(self.transactional_id)
        if draw < 0.03:
            self.is_initialising = True  # the instance crashed; its successor fences it
        if known is None or known.value is None or self.is_initialising:
            self.initialise(world)
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

    def end(self, world: World, known: Transaction, *, commit: bool) -> None:
        """EndTxn. Below transaction.version 2, a commit after a commit of the same epoch is answered without an error.

        (`TransactionCoordinator.endTransaction`, case CompleteCommit.) So a client whose own transaction is lost, with
        its records, is told that it is committed.
        """
        value, owner = known.value, self.believed.owner
        if owner is not None:
            self.believed.is_commit = commit
            if commit:
                world.coordinators.ending[self.transactional_id] = owner
                if value is not None and value.state is S.COMPLETE_COMMIT and self.version < 2:
                    world.coordinators.told_committed(owner)
                    world.seen["a commit of nothing is acknowledged"] += 1
                    self.believed.over()
        world.coordinators.end(known, commit=commit)

    def learn(self, world: World) -> None:
        """Takes what the coordinator has answered so far: its transaction, that it has ended, or the next identity."""
        known, believed = world.coordinators.transactions.get(self.transactional_id), self.believed
        if known is None or known.value is None or self.is_initialising or not known.is_free:
            return
        value = known.value
        is_its_own = (value.producer_id, value.producer_epoch) == (self.producer_id, self.producer_epoch)
        if self.transactional_id in world.coordinators.answered:
            world.coordinators.answered.discard(self.transactional_id)
            believed.over()
        elif not is_its_own:
            pass
        elif value.state is S.ONGOING:
            believed.begun(self.transactional_id, value.producer_id, value.start_ms or 0)
            believed.added |= known.held
        elif believed.is_commit is not None:
            believed.over()
        elif believed.owner is not None:
            world.seen["a client goes on without its record"] += 1
        if not is_its_own:
            self._learn_or_start_again(world)

    def write(self, world: World, partition: TopicPartition, producer_id: int, epoch: int, count: int) -> bool:
        """Writes a batch, even if the client must not write it."""
        at = world.data[partition]
        offset, identity = at.end, (producer_id, epoch)
        accepted = at.produce(world.batch(producer_id, epoch, count))
        if accepted:
            believed = self.believed
            is_its_own = partition in believed.added and believed.is_commit is None
            if is_its_own and identity == (self.producer_id, self.producer_epoch):
                world.owners.wrote_in(believed.owner, at, offset, producer_id)
            else:
                world.owners.wrote(world.coordinators, self.transactional_id, at, offset, identity)
            world.note(f"{partition}@{offset}: data of {producer_id} epoch {epoch} ({self.transactional_id})")
        return accepted

    def initialise(self, world: World) -> None:
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
        self.believed.over()
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
