"""Bugs planted where a leader is asked what is open because a last stable offset stands."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from unittest import mock

from simulation.reader import BatchResult, ReaderListing, WorldReader
from simulation.restarts import STARTS_AGAIN
from simulation.run import USUAL
from simulation.world import Setting, World
from txnwatch.state.detection.span import EFFECTS, SpanEvent
from txnwatch.state.model.facts import StandsAt
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.values import BarrierNumber, Problem, TopicPartition, is_log
from txnwatch.streaming.source.offsets import SourceOffset
from txnwatch.streaming.source.planner import ListedPartition
from txnwatch.streaming.source.standing_looks import StandingLooks

Listed = Mapping[TopicPartition, ListedOffset]
Stable = Mapping[TopicPartition, ListedOffset | Problem]
Watched = Mapping[TopicPartition, str]
Found = dict[TopicPartition, StandsAt]
Answers = dict[TopicPartition, ListedPartition]


class NeverAsked(StandingLooks):
    def take(self, ends: Listed, stable: Stable, watched: Watched, barrier: BarrierNumber) -> Found:
        super().take(ends, stable, watched, barrier)
        self.due = set()
        return {}


class AskedOnce(StandingLooks):
    def __init__(self) -> None:
        super().__init__()
        self.asked: set[TopicPartition] = set()

    def take(self, ends: Listed, stable: Stable, watched: Watched, barrier: BarrierNumber) -> Found:
        found = super().take(ends, stable, watched, barrier)
        self.due -= self.asked
        self.asked |= self.due
        return found


class WithLooks(WorldReader):
    """A reader with other looks."""

    looks: type[StandingLooks]

    def __init__(self, world: World, rng: random.Random) -> None:
        super().__init__(world, rng)
        self.lister.looks = self.looks()


class WhereItStandsNobodyLooks(WithLooks):
    """The census of what is not read comes at the start, and never again."""

    looks = NeverAsked


class WhereItStandsIsAskedOnce(WithLooks):
    """A leader was asked once, and is not asked again."""

    looks = AskedOnce


class WhatIsNotListedIsDeleted(WorldReader):
    """A topic that no round lists counts as deleted; it may have been hidden when the driver started."""

    def __init__(self, world: World, rng: random.Random) -> None:
        super().__init__(world, rng)
        self.options = replace(self.options, pattern=None, topics=("nothing",), census_pattern=".*")
        self.lister.options = self.lister.schedule.options = self.options
        self.crashes, self.forgets = 0.3, True

    def attempt(self, found: ReaderListing) -> BatchResult:
        with mock.patch.dict(EFFECTS, {SpanEvent.NOT_LISTED: EFFECTS[SpanEvent.PARTITION_GONE]}):
            return super().attempt(found)


class ALookHasTwoMetadata(WorldReader):
    """What is missing is decided at the end of a look, by newer metadata than what is listed."""

    def list_ends(self) -> ReaderListing | None:
        missing = self.lister.missing

        def at_the_end(previous: SourceOffset, is_kind: Callable[[TopicPartition], bool]) -> Answers:
            return missing(previous, lambda _: True) if is_kind is is_log else {}

        with mock.patch.object(self.lister, "missing", at_the_end):
            return super().list_ends()


HIDDEN = Setting(faults=frozenset({"topic hidden", "stray write", STARTS_AGAIN}), rate=1.5)

MUTANTS_OF_LOOKS: tuple[tuple[type[WorldReader], Setting, int], ...] = (
    (WhereItStandsNobodyLooks, USUAL, 101),
    (WhereItStandsIsAskedOnce, USUAL, 101),
    (WhatIsNotListedIsDeleted, HIDDEN, 0),
    (ALookHasTwoMetadata, USUAL, 200_020_853),
)
