"""Bugs planted where ranges are read: what cannot be read, and what a quota holds back."""

from __future__ import annotations

import random
from contextlib import AbstractContextManager
from unittest import mock

from msgspec.structs import replace

from simulation.mutants import HEALTHY_AND_QUICK, Wrapped, view_like
from simulation.reader import WorldReader
from simulation.run import USUAL
from simulation.view import View
from simulation.world import Setting, World
from txnwatch.state.detection import bucket as buckets
from txnwatch.state.detection.batch import Batch
from txnwatch.state.detection.bucket_readings import give_up
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.detection.reading import Lack
from txnwatch.state.model.facts import NoticeKind
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.streaming.log.range_read import RangeRead

DISKS_FAIL = Setting(faults=frozenset({"unreadable"}), rate=4.0, batches=30, only_new_data_fails=True)


class NothingIsGivenUp(Wrapped):
    """A range that cannot be read is tried for ever."""

    def patch(self) -> AbstractContextManager[object]:
        return mock.patch.object(buckets, "give_up")


class GivenUpIsForgotten(Wrapped):
    """A range that is given up counts as read."""

    def patch(self) -> AbstractContextManager[object]:
        def forget(bucket: BucketState, batch: Batch, policy: DetectionPolicy) -> None:
            before = {notice.partition for notice in batch.notices if notice.kind is NoticeKind.GAP}
            give_up(bucket, batch, policy)
            over = {notice.partition for notice in batch.notices if notice.detail.startswith("given up")} & before
            batch.notices = [notice for notice in batch.notices if notice.partition not in over]
            for partition in over:
                known = bucket.reading(partition)
                lacks = {lack: since for lack, since in known.lacks.items() if lack is not Lack.RANGE}
                bucket.keep_reading(partition, replace(known, lacks=lacks))

        return mock.patch.object(buckets, "give_up", forget)


class EmptyAnswerIsTheEnd(WorldReader):
    """An answer without records, as a broker gives it under a quota, counts as the end of the range."""

    class _View(View):
        def empty_answer(self, read: RangeRead) -> None:
            read.fold.position, read.must_check = max(read.fold.position, read.end), False

    def new_view(self, world: World, rng: random.Random) -> View:
        return view_like(self._View, super().new_view(world, rng), rng)


MUTANTS_OF_READING: tuple[tuple[type[WorldReader], Setting, int], ...] = (
    (NothingIsGivenUp, USUAL, 0),
    (GivenUpIsForgotten, DISKS_FAIL, 0),
    (EmptyAnswerIsTheEnd, HEALTHY_AND_QUICK, 0),
)
