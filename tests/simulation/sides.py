"""Partitions that change their side at random: scanned, looked at where they stand, and scanned again.

The rule of the product depends on what is written (streaming/source/scan_budget.py). What follows from a change must be
right whenever it comes, so here chance decides.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from simulation.reader import ReaderListing, WorldReader
from simulation.world import World
from txnwatch.state.model.values import BarrierNumber, TopicPartition
from txnwatch.streaming.source.offsets import LookedAt, SourceOffset
from txnwatch.streaming.source.scan_budget import ScanBudget


class RandomSides(ScanBudget):
    """A budget by chance.

    Attributes:
        share: in how many barriers a partition changes its side.
        is_over: nothing changes any more; `all_scanned` is what holds then.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__(None, lambda _: False)
        self._rng = rng
        self.share = rng.choice((0.05, 0.2, 0.5))
        self.is_over = False
        self.all_scanned = rng.random() < 0.5

    def looked(self, previous: SourceOffset, listed: Mapping[TopicPartition, str]) -> dict[TopicPartition, LookedAt]:
        found: dict[TopicPartition, LookedAt] = {}
        for at, topic_id in sorted(listed.items()):
            before = previous.looked.get(at)
            before = before if before is not None and before.topic_id == topic_id else None
            is_looked = (before is not None) ^ (self._rng.random() < self.share)
            if self.is_over:
                is_looked = before is not None and not self.all_scanned
            if is_looked:
                found[at] = before or LookedAt(topic_id, 1, BarrierNumber(previous.barrier + 1))
        return found


class ChangingSides(WorldReader):
    """A reader whose partitions change their sides."""

    def __init__(self, world: World, rng: random.Random) -> None:
        super().__init__(world, rng)
        self.lister.budget = self.sides = RandomSides(random.Random(f"{rng.getstate()[1][:4]} sides"))

    def list_ends(self) -> ReaderListing | None:
        found = super().list_ends()
        if found is not None:
            self.seen["a scan ends"] += len(found.end.let_go)
            self.seen["a scan begins again"] += len(found.end.begun.keys() & self.done.looked.keys())
        return found

    def settle(self) -> None:
        super().settle()
        self.sides.is_over = True

    def stay_behind(self) -> None:
        super().stay_behind()
        self.sides.is_over = self.sides.all_scanned = True
