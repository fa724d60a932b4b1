"""Bugs planted where the replica that answers is chosen: whose log it has, and what it lacks."""

from __future__ import annotations

import random
from unittest import mock

from simulation.mutants import DATA_IS_CUT, HEALTHY_AND_QUICK, view_like
from simulation.reader import WorldReader
from simulation.view import View
from simulation.world import Setting, World
from txnwatch.state.model.facts import Fact
from txnwatch.state.model.values import BrokerId, is_data
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log import fetch
from txnwatch.streaming.log.range_reading import RangeReading
from txnwatch.streaming.source.tasks import TaskPlan
from txnwatch.streaming.wire.fetch_response import PartitionData
from txnwatch.streaming.wire.primitives import encoded


class InARack(WorldReader):
    """A reader with a follower of each data partition in its rack."""

    def __init__(self, world: World, rng: random.Random) -> None:
        super().__init__(world, rng)
        self.view.has_rack = True


class EveryFollowerHasTheLog(InARack):
    """A follower is read without a look at the leader epoch of what was read before."""

    def read(self, plan: TaskPlan) -> list[Fact]:
        def any_follower(cluster: Cluster, read: RangeReading) -> BrokerId | None:
            info = cluster.known.info(read.partition)
            assert info is not None
            is_asked = is_data(read.partition) and not read.follower_lacks
            return info.closest if is_asked else info.leader

        with mock.patch.object(fetch, "replica_to_ask", any_follower):
            return super().read(plan)


class LagIsTheEnd(InARack):
    """What a follower does not have counts as read."""

    class _LagView(View):
        def take(self, read: RangeReading, data: PartitionData) -> None:
            fetch.take_from_follower(read, data)
            if read.follower_lacks:
                read.fold.position = max(read.fold.position, read.end)

    def new_view(self, world: World, rng: random.Random) -> View:
        return view_like(self._LagView, super().new_view(world, rng), rng)


class AnyLeaderListsTheEnd(WorldReader):
    """A leader is asked under the epoch that the task knows, although its range was listed under a younger one."""

    def __init__(self, world: World, rng: random.Random) -> None:
        super().__init__(world, rng)
        self.view.has_slow_tasks = True

    def read(self, plan: TaskPlan) -> list[Fact]:
        def known_to_the_task(cluster: Cluster, read: RangeReading) -> int:
            info = cluster.known.info(read.partition)
            return encoded(info.leader_epoch if info is not None else None)

        with mock.patch.object(fetch, "epoch_to_ask_under", known_to_the_task):
            return super().read(plan)


MUTANTS_OF_FOLLOWERS: tuple[tuple[type[WorldReader], Setting, int], ...] = (
    (EveryFollowerHasTheLog, DATA_IS_CUT, 330),
    (LagIsTheEnd, HEALTHY_AND_QUICK, 20),
    (AnyLeaderListsTheEnd, DATA_IS_CUT, 260),
)
