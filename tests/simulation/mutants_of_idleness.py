"""Bugs planted where barriers are left out: each leaves out one that would emit or change something."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from msgspec.structs import replace as with_changes

from simulation.reader import WorldReader
from simulation.run import USUAL
from simulation.world import Setting, World
from support.facts import DictStore, decode_bucket, encode_bucket
from txnwatch.state.model.facts import Fact
from txnwatch.state.model.findings import Finding
from txnwatch.state.model.values import NEVER_MS
from txnwatch.streaming.source.driver_file import NextBarrierDue
from txnwatch.streaming.source.offsets import SourceOffset

FEW_FAULTS = Setting(faults=frozenset({"stray write", "lost marker", "no leader"}), rate=0.3, batches=30)


class NothingIsEverDue(WorldReader):
    """What waits for a barrier, or for a time, is forgotten."""

    def due_ms(self, emitted: Iterable[Finding]) -> int:
        del emitted
        return NEVER_MS


class AnyBatchWillDo(WorldReader):
    """The result of an earlier barrier still counts, because the driver writes its file too late."""

    def __init__(self, world: World, rng: random.Random) -> None:
        super().__init__(world, rng)
        self.lateness, self.leaves_out = 0.5, True

    def is_left_out(self, previous: SourceOffset, following: SourceOffset, judged: NextBarrierDue | None) -> bool:
        known = judged._replace(barrier=previous.barrier) if judged is not None else None
        return super().is_left_out(previous, following, known)


class WhatDoesNotAnswerHasNothingNew(WorldReader):
    """A partition that is not listed, and was not before, is one where nothing happens."""

    def is_left_out(self, previous: SourceOffset, following: SourceOffset, judged: NextBarrierDue | None) -> bool:
        known = judged._replace(due_ms=NEVER_MS) if judged is not None else None
        return super().is_left_out(_answered(previous), _answered(following), known)


class EveryBarrierIsCounted(WorldReader):
    """The shared state has a count of the barriers, so each barrier changes it."""

    def process(self, number: int, store: DictStore, facts: list[Fact]) -> list[Finding]:
        emitted = super().process(number, store, facts)
        bucket = decode_bucket(self.rows[number])
        bucket.states["barriers"] = bucket.states.get("barriers", 0) + 1
        self.rows[number] = encode_bucket(bucket)
        return emitted


def _answered(offset: SourceOffset) -> SourceOffset:
    answered = {partition: with_changes(at, is_stale=False) for partition, at in offset.read_positions.items()}
    return replace(offset, positions={**offset.positions, **answered})


MUTANTS_OF_IDLENESS: tuple[tuple[type[WorldReader], Setting, int], ...] = (
    (NothingIsEverDue, USUAL, 20),
    (AnyBatchWillDo, FEW_FAULTS, 75),
    (WhatDoesNotAnswerHasNothingNew, USUAL, 18),
    (EveryBarrierIsCounted, USUAL, 3),
)
