"""The answers that the clients of a simulated cluster got; each commit is recorded when it happens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from unittest import mock

from simulation.coordinator import Coordinators
from simulation.encoding import Data
from simulation.owners import Owner
from simulation.partition import DataPartition
from simulation.world import World
from txnwatch.state.model.incident import IncidentEvent, partition_of


class Truth:
    """Which transactions committed, and so what became of the data that they own."""

    def __init__(self) -> None:
        self.committed: set[Owner] = set()
        self.late: list[str] = []
        self._said: dict[Owner, str] = {}

    def told_committed(self, owner: Owner) -> None:
        """The client of a transaction gets the answer that it is committed."""
        self.committed.add(owner)
        if owner in self._said:
            self.late.append(f"{self._said.pop(owner)}, and {owner} was told later that it is committed")

    def said(self, owners: Iterable[Owner | None], what: str) -> None:
        """What the product did or published as if these transactions had not committed, and never would."""
        self._said.update({owner: what for owner in owners if owner is not None and owner not in self.committed})

    def outcomes(
        self, world: World, log: DataPartition, producer_id: int, start: int, last: float = math.inf
    ) -> set[str]:
        """What became, or may still become, of the transactions that have data here; nothing for data of none."""
        owners = {owner for owner in world.owners.of(log, producer_id, start, last) if owner is not None}
        return {"commit" if owner in self.committed else "abort" for owner in owners}

    def is_live(self, world: World, event: IncidentEvent) -> bool:
        """Whether a transaction with data in the incident's span is live, so that its outcome is not decided."""
        log = world.data.get(partition_of(event))
        if log is None:
            return False
        live = {
            Owner(known.transactional_id, known.value.producer_id, known.value.start_ms)
            for known in world.coordinators.transactions.values()
            if known.value is not None and known.value.state.is_live
        }
        return not live.isdisjoint(world.owners.of(log, event.producer_id, event.txn_start_offset or 0))

    def harmed(self, world: World, log: DataPartition, producer_id: int, start: int) -> Iterator[str]:
        """Whom a marker that ends this open data would harm."""
        for owner in world.owners.of(log, producer_id, start):
            if owner is None:
                continue
            if owner in self.committed:
                yield f"{owner} was committed, and has data on {log.partition}"
            known = world.coordinators.transactions.get(owner.transactional_id)
            value = known.value if known is not None else None
            is_same = value is not None and value.start_ms == owner.start_ms
            if value is not None and is_same and known is not None and log.partition in known.held:
                yield f"{owner} is {value.state}, and has data on {log.partition}"


def data_of(log: DataPartition, producer_id: int) -> Iterator[int]:
    for entry in log.entries:
        if isinstance(entry.body, Data) and entry.body.producer_id == producer_id:
            yield entry.offset


@contextmanager
def witnessed(truth: Truth) -> Iterator[Truth]:
    with mock.patch.object(Coordinators, "told_committed", lambda _, owner: truth.told_committed(owner)):
        yield truth
