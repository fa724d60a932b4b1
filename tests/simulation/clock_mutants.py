"""Planted bugs in the handling of the brokers' clocks; see mutants.py."""

from __future__ import annotations

from collections.abc import Container, Iterable
from contextlib import AbstractContextManager
from functools import reduce
from unittest import mock

from msgspec.structs import replace

from simulation.mutants import ChangedBarrier, Wrapped
from simulation.reader import WorldReader
from simulation.run import USUAL
from simulation.world import Setting
from txnwatch.state.detection.broker_clocks import Clocks
from txnwatch.state.model.clocks import Clock, Leader, both
from txnwatch.state.model.facts import Barrier, Fact
from txnwatch.state.model.transaction import CoordinatorView
from txnwatch.streaming.log.range_reading import RangeReading
from txnwatch.streaming.log.transaction_fold import TransactionFold
from txnwatch.streaming.source import tasks
from txnwatch.streaming.source.offsets import SourceOffset
from txnwatch.streaming.source.tasks import TaskPlan

_AGE = Clocks.age_ms
CLEAN_FAILOVERS = Setting(faults=frozenset({"no leader"}))


class OneClockForAll(ChangedBarrier):
    """A timestamp of one broker counts for all brokers."""

    def change(self, barrier: Barrier) -> Barrier:
        leaders = {log: Leader(1, leader.epoch) for log, leader in barrier.leaders.items()}
        reported = list(barrier.clocks.values())
        return replace(barrier, leaders=leaders, clocks={1: reduce(both, reported)} if reported else {})


class AFormerLeadersStamp(Wrapped):
    """A timestamp is compared with the clock of the present leader."""

    def patch(self) -> AbstractContextManager[object]:
        def as_of_now(clocks: Clocks, view: CoordinatorView, now_ms: int) -> int:
            reign = clocks.reigns.get(view.log)
            view = replace(view, coordinator_epoch=reign.epoch) if reign is not None else view
            return _AGE(clocks, view, now_ms)

        return mock.patch.object(Clocks, "age_ms", as_of_now)


class LateAtOnce(Wrapped):
    """A new coordinator gets no time to act: the time of its predecessor counts."""

    def patch(self) -> AbstractContextManager[object]:
        def impatient(clocks: Clocks, view: CoordinatorView, now_ms: int) -> int:
            since = {log: reign._replace(since_ms=0) for log, reign in clocks.reigns.items()}
            return _AGE(Clocks(clocks.brokers, since), view, now_ms)

        return mock.patch.object(Clocks, "age_ms", impatient)


class OnlyTimestampsCount(Wrapped):
    """How long we have seen something counts for nothing: an age that timestamps do not show is never reported."""

    def patch(self) -> AbstractContextManager[object]:
        def blind(clocks: Clocks, view: CoordinatorView, now_ms: int) -> int:
            return _AGE(clocks, replace(view, since_ms=now_ms), now_ms)

        return mock.patch.object(Clocks, "age_ms", blind)


class MiddleOfEverything(Wrapped):
    """The clock is the middle of what any records allow, read again or not, and nothing else gives an age."""

    def read(self, plan: TaskPlan) -> list[Fact]:
        with mock.patch.object(tasks, "clocks_of", _middle):
            return super().read(plan)

    def patch(self) -> AbstractContextManager[object]:
        def by_stamp(clocks: Clocks, view: CoordinatorView, now_ms: int) -> int:
            known = clocks.of(view)
            ahead_ms = known[1].lowest_ms if known is not None else 0
            began_ms = view.record_timestamp_ms if view.state.is_prepare else view.start_ms
            assert began_ms is not None, "an ongoing transaction has begun"
            return now_ms + ahead_ms - began_ms

        return mock.patch.object(Clocks, "age_ms", by_stamp)


def _middle(
    end: SourceOffset, previous_listed_ms: int, _: Container[int], reads: Iterable[RangeReading]
) -> dict[int, Clock]:
    found: dict[int, Clock] = {}
    for read in reads:
        if isinstance(read.fold, TransactionFold) and read.fold.stamps is not None:
            now_ms, stamps = end.coordinator_listed_ms, read.fold.stamps
            middle_ms = (stamps.last_ms - now_ms + stamps.lowest_ms - previous_listed_ms) // 2
            found[end.positions[read.partition].leader] = Clock(middle_ms, middle_ms, now_ms)
    return found


CLOCK_MUTANTS: tuple[tuple[type[WorldReader], Setting, int], ...] = (
    (OneClockForAll, USUAL, 0),
    (AFormerLeadersStamp, USUAL, 18),
    (LateAtOnce, CLEAN_FAILOVERS, 18),
    (OnlyTimestampsCount, USUAL, 71),
    (MiddleOfEverything, USUAL, 0),
)
