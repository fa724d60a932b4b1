"""Bugs planted where ranges are read: what cannot be read, what a quota holds back, and what a reading lacks."""

from __future__ import annotations

import random
from contextlib import AbstractContextManager
from typing import ClassVar
from unittest import mock

from msgspec.structs import replace

from simulation.mutants import DATA_IS_CUT, HEALTHY_AND_QUICK, Wrapped, undoubted, view_like
from simulation.reader import WorldReader
from simulation.run import USUAL
from simulation.view import View
from simulation.world import Setting, World
from support.facts import DictStore
from txnwatch.state.detection import bucket as buckets
from txnwatch.state.detection.batch import Batch, give_up
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.detection.reading import READING_TRANSITIONS, Lack, Next, ReadEvent, ReadingEffect
from txnwatch.state.detection.reading import ReadEvent as E
from txnwatch.state.model.facts import Barrier, Fact, LogRead, NoticeKind
from txnwatch.state.model.findings import Finding
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.streaming.log.range_reading import RangeReading

DISKS_FAIL = Setting(faults=frozenset({"unreadable"}), rate=4.0, batches=30, only_new_data_fails=True)

OLD_REPLICAS_RETURN = Setting(
    faults=frozenset({"unclean failover of the log"}),
    logs=1,
    rate=1.5,
    batches=24,
    keeping_epochs=0.0,
    returning=1.0,
    failing=0.0,
)


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


class AnotherLogIsTheSame(Wrapped):
    """The batch that was read last is not compared with that of another leader."""

    def patch(self) -> AbstractContextManager[object]:
        return mock.patch.object(buckets, "notice_other_logs")


class OneEpochIsOneLog(Wrapped):
    """Of that batch only the leader epoch is compared, also where a leader that restarts keeps its epoch."""

    def facts(self, facts: list[Fact]) -> list[Fact]:
        return [_without_crc(fact) if isinstance(fact, Barrier | LogRead) else fact for fact in super().facts(facts)]


def _without_crc(fact: Barrier | LogRead) -> Barrier | LogRead:
    last = {log: batch._replace(crc=None) for log, batch in fact.last_batches.items()}
    found = {log: batch and batch._replace(crc=None) for log, batch in fact.rechecked.items()}
    return replace(fact, last_batches=last, rechecked=found)


class EmptyAnswerIsTheEnd(WorldReader):
    """An answer without records, as a broker gives it under a quota, counts as the end of the range."""

    class _View(View):
        def empty_answer(self, read: RangeReading) -> None:
            read.fold.position, read.must_check = max(read.fold.position, read.end), False

    def new_view(self, world: World, rng: random.Random) -> View:
        return view_like(self._View, super().new_view(world, rng), rng)


class AnotherTable(Wrapped):
    """A reader with one cell of the table of readings changed; None stands for a cell that is missing."""

    at: ClassVar[tuple[Lack, ReadEvent]]
    cell: ClassVar[Next | None]

    def patch(self) -> AbstractContextManager[object]:
        others = {at: cell for at, cell in READING_TRANSITIONS.items() if at != self.at}
        changed = {self.at: self.cell} if self.cell is not None else {}
        return mock.patch.dict(READING_TRANSITIONS, others | changed, clear=True)


class AnotherTableUnasked(AnotherTable):
    """The same, of the coordinators' log: nobody asks the coordinators whether their memory differs from the log."""

    def process(self, number: int, store: DictStore, facts: list[Fact]) -> list[Finding]:
        return undoubted(super().process(number, store, facts))


def changed(name: str, what: str, lack: Lack, event: ReadEvent, cell: Next | None = None) -> type[WorldReader]:
    """A planted bug in a cell of the table."""
    is_log = lack in OF_THE_LOG or event in {ReadEvent.CUT, ReadEvent.REPLACED}
    kind = AnotherTableUnasked if is_log else AnotherTable
    return type(name, (kind,), {"__doc__": what, "at": (lack, event), "cell": cell})


OF_THE_LOG = {Lack.NEW_READING, Lack.NEW_READING_BEGUN, Lack.RECREATED}
BEGUN_AS_A_RANGE = Next(Lack.RANGE_BEGUN, ReadingEffect.NEW_NUMBER)
DISKS_AND_MARKERS_FAIL = Setting(faults=frozenset({"unreadable", "lost marker"}), rate=4.0)
TOPICS_GO = Setting(
    faults=frozenset({"topic deleted", "unreadable", "retention", "unclean failover of data"}), rate=4.0
)
RETENTION_IS_SHORT = Setting(faults=frozenset({"retention"}), rate=16.0, batches=24)
THE_LOG_IS_CUT = Setting(faults=frozenset({"unclean failover of the log", "stray write"}), rate=4.0)
TOPICS_ARE_HIDDEN = Setting(faults=frozenset({"topic hidden", "stray write"}), rate=4.0)

# Each is a cell without which nobody would notice that something is unread, or that it was read after all.
MUTANTS_OF_THE_TABLE: tuple[tuple[type[WorldReader], Setting, int], ...] = (
    (changed("RestIsRead", "A rest counts as read.", Lack.NOTHING, E.LIMITED), USUAL, 671),
    (changed("RestIsNeverRead", "A rest that is read stays unread.", Lack.REST, E.READ_AGAIN), USUAL, 12),
    (changed("RestOutlivesItsTopic", "A rest stays unread without its topic.", Lack.REST, E.LET_GO), USUAL, 181),
    (changed("UnreadableIsRead", "A range that cannot be read counts as read.", Lack.NOTHING, E.UNREADABLE), USUAL, 69),
    (
        changed("RangeIsNeverRead", "A range that is read again stays unread.", Lack.RANGE, E.READ_AGAIN),
        DISKS_AND_MARKERS_FAIL,
        0,
    ),
    (changed("RangeOutlivesItsTopic", "A range stays unread without its topic.", Lack.RANGE, E.LET_GO), TOPICS_GO, 16),
    (changed("LostIsRead", "A lost range counts as read.", Lack.NOTHING, E.LOST), RETENTION_IS_SHORT, 0),
    (
        changed("NoCensusIsEnough", "A census does not replace a lost range.", Lack.CENSUS, E.DESCRIBED_AS_READ),
        DATA_IS_CUT,
        0,
    ),
    (changed("CensusOfNoTopic", "A census is awaited without its topic.", Lack.CENSUS, E.LET_GO), TOPICS_GO, 14),
    (changed("CutLogIsRead", "A truncated log is not read again.", Lack.NOTHING, E.CUT), THE_LOG_IS_CUT, 8),
    (
        changed("CutLogIsNeverRead", "A truncated log is read again for ever.", Lack.NEW_READING, E.READ_AGAIN),
        THE_LOG_IS_CUT,
        0,
    ),
    (
        changed("CutLogIsARange", "It is read again as a range.", Lack.NEW_READING, E.READ_AGAIN, BEGUN_AS_A_RANGE),
        THE_LOG_IS_CUT,
        8,
    ),
    (
        changed("NewReadingHasNoEnd", "A new reading has no end.", Lack.NEW_READING_BEGUN, E.REACHED),
        THE_LOG_IS_CUT,
        8,
    ),
    (
        changed("NewReadingKeepsAll", "It keeps all ids.", Lack.NEW_READING_BEGUN, E.REACHED, Next(Lack.NOTHING)),
        THE_LOG_IS_CUT,
        8,
    ),
    (changed("NewLogIsTheOldOne", "A re-created log counts as the old one.", Lack.NOTHING, E.REPLACED), USUAL, 50),
    (
        changed("NewLogKeepsAll", "It keeps all ids of the old.", Lack.RECREATED, E.ALL_REACHED, Next(Lack.NOTHING)),
        USUAL,
        50,
    ),
    (changed("HiddenIsShown", "A hidden partition is shown.", Lack.NOTHING, E.HIDDEN), TOPICS_ARE_HIDDEN, 30),
)


MUTANTS_OF_READING: tuple[tuple[type[WorldReader], Setting, int], ...] = (
    (NothingIsGivenUp, USUAL, 23),
    (GivenUpIsForgotten, DISKS_FAIL, 3),
    (EmptyAnswerIsTheEnd, HEALTHY_AND_QUICK, 30),
    (AnotherLogIsTheSame, OLD_REPLICAS_RETURN, 358),
    (OneEpochIsOneLog, USUAL, 1613),
    *MUTANTS_OF_THE_TABLE,
)
