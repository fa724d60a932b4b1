"""Planted bugs: each removes one part of the proof, and the simulation has to find it.

A mutant is a reader with one method changed, or a function of the product wrapped for as long as the reader runs;
the product itself stays clean.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from unittest import mock

from msgspec.structs import replace

from simulation.partition import DataPartition, Producer
from simulation.reader import BatchResult, ReaderListing, WorldReader
from simulation.run import USUAL
from simulation.view import View
from simulation.world import Setting, World
from support.facts import DictStore
from txnwatch.state.detection import bucket as buckets
from txnwatch.state.detection import proof, span
from txnwatch.state.detection.proof import BarrierContext, Look, look_at
from txnwatch.state.detection.span import Closed, Step, described_open
from txnwatch.state.model.facts import (
    Barrier,
    CensusListing,
    CensusTaken,
    Fact,
    LogRead,
    NoticeKind,
    OpenDescribed,
    PartitionNotice,
    ProducerSeen,
    TransactionSeen,
)
from txnwatch.state.model.findings import CoverInDoubt, Finding, OwnerInDoubt
from txnwatch.state.model.ports import ListedOffset, TransactionListing
from txnwatch.state.model.transaction import ProducerState, Span
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, Problem, TopicPartition
from txnwatch.streaming.client.cluster import LATEST, READ_UNCOMMITTED
from txnwatch.streaming.log.range_reading import RangeReading
from txnwatch.streaming.source.tasks import TaskPlan

HEALTHY_AND_QUICK = Setting(faults=frozenset(), rate=8.0)
LEADERS_GET_LOST = Setting(batches=2, faults=frozenset({"no leader", "stray write"}), rate=8.0)
MARKERS_GET_LOST = Setting(faults=frozenset({"lost marker"}), rate=4.0)
DATA_IS_CUT = Setting(faults=frozenset({"unclean failover of data"}), rate=4.0)
THE_LOG_IS_CUT = Setting(faults=frozenset({"unclean failover of the log"}), rate=4.0)
APPENDS_SUCCEED = Setting(failing=0.0, keeping_epochs=0.0, returning=0.0)
A_LONG_WATCH = Setting(faults=frozenset({"lost marker", "stray write"}), rate=4.0, batches=24)


def view_like(kind: type[View], usual: View, rng: random.Random) -> View:
    """A view of another kind that is otherwise like the usual one."""
    return kind(usual.world, rng, usual.unanswered, usual.throttled)


class Wrapped(WorldReader):
    """A reader that runs its buckets with a function of the product replaced."""

    def patch(self) -> AbstractContextManager[object]:
        return nullcontext()

    def process(self, number: int, store: DictStore, facts: list[Fact]) -> list[Finding]:
        with self.patch():
            return super().process(number, store, facts)


class LogListedFirst(WorldReader):
    """The barrier's order is turned round: T is asked for before D."""

    class _LogFirstView(View):
        def list_offsets(
            self,
            partitions: Iterable[TopicPartition],
            *,
            timestamp: int = LATEST,
            isolation: int = READ_UNCOMMITTED,
            timeout_s: float | None = None,  # noqa: ARG002 - the product passes it on
        ) -> dict[TopicPartition, ListedOffset | Problem]:
            asked = list(partitions)
            if (timestamp, isolation) != (LATEST, READ_UNCOMMITTED):
                return super().list_offsets(asked, timestamp=timestamp, isolation=isolation)
            if any(partition.topic == TRANSACTION_STATE_TOPIC for partition in asked):
                return self._first
            self._first = super().list_offsets([log.partition for log in self.world.logs])
            return super().list_offsets(asked)

    def new_view(self, world: World, rng: random.Random) -> View:
        return view_like(self._LogFirstView, super().new_view(world, rng), rng)


class EmptyBatchIsABarrier(WorldReader):
    """The same listing is evaluated again, as the next barrier."""

    def attempt(self, found: ReaderListing) -> BatchResult:
        result = super().attempt(found)
        again: list[Fact] = [replace(result.barrier, number=result.barrier.number + 1, reread={})]
        for number, store in enumerate(self.stores):
            result.emitted.extend(self.process(number, store, again))
        return result


class ChangedBarrier(WorldReader):
    """A reader that changes its barriers."""

    def change(self, barrier: Barrier) -> Barrier:
        raise NotImplementedError

    def facts(self, facts: list[Fact]) -> list[Fact]:
        return [self.change(fact) if isinstance(fact, Barrier) else fact for fact in facts]


class LimitedIsProven(ChangedBarrier):
    """Listed counts as read."""

    def change(self, barrier: Barrier) -> Barrier:
        return replace(barrier, limited_data=frozenset())


class LeftIsRead(WorldReader):
    """What a batch has left, because it had read as much as it may, counts as read."""

    def facts(self, facts: list[Fact]) -> list[Fact]:
        return [fact for fact in facts if not (isinstance(fact, PartitionNotice) and fact.kind is NoticeKind.LEFT)]


class BehindTakenForRead(WorldReader):
    """A census of a partition that is behind is held against the log, as if that had been read to its end."""

    def facts(self, facts: list[Fact]) -> list[Fact]:
        return [self._as_scanned(fact) if isinstance(fact, CensusTaken) else fact for fact in facts]

    def _as_scanned(self, census: CensusTaken) -> CensusTaken:
        taken = {
            partition: listing._replace(is_scanned=True, is_behind=False) if listing.is_behind else listing
            for partition, listing in census.taken.items()
        }
        return replace(census, taken=taken)


class OlderTakenForTheOneAhead(Wrapped):
    """Data below the start that a census has shown counts as the beginning of that transaction."""

    def patch(self) -> AbstractContextManager[object]:
        return mock.patch.object(span, "is_past", return_value=False)


class StaleLogIsFresh(ChangedBarrier):
    """A T that was not answered, or not read, is carried as if it were."""

    def change(self, barrier: Barrier) -> Barrier:
        return replace(barrier, stale_coordinator=frozenset())


class StaleDataIsFresh(ChangedBarrier):
    """A D that was not answered is carried as if it were."""

    def change(self, barrier: Barrier) -> Barrier:
        return replace(barrier, stale_data=frozenset())


class NoSecondLookAtTheLog(Wrapped):
    """Once uncovered, always uncovered."""

    def patch(self) -> AbstractContextManager[object]:
        def once(producer, partition, span, barrier, unread) -> Look:  # type: ignore[no-untyped-def] # noqa: ANN001
            look = look_at(producer, partition, span, barrier, unread)
            return Look.UNCOVERED if look is Look.COVERED and span.uncovered_at is not None else look

        return mock.patch.object(proof, "look_at", once)


class ElectionOfTheLogProvesToo(Wrapped):
    """A look counts although an election of the log came between it and the look before."""

    def patch(self) -> AbstractContextManager[object]:
        return mock.patch.object(BarrierContext, "had_election", return_value=False)


class ElectionWhileReadingProvesToo(Wrapped):
    """A log that had an election between its listing and its reading counts as if it were read as listed."""

    def process(self, number: int, store: DictStore, facts: list[Fact]) -> list[Finding]:
        unaware = (
            replace(fact, elected=frozenset()) if isinstance(fact, Barrier | LogRead) else fact for fact in facts
        )
        return super().process(number, store, list(unaware))


class RotationToOneProducerIdOnly(WorldReader):
    """A record that moves a transactional id on reaches only its new producer id.

    Asking the coordinators finds what that covers, but only once it is late: here nobody asks.
    """

    def process(self, number: int, store: DictStore, facts: list[Fact]) -> list[Finding]:
        return undoubted(super().process(number, store, facts))

    def facts(self, facts: list[Fact]) -> list[Fact]:
        return [
            fact for fact in facts if not (isinstance(fact, TransactionSeen) and fact.view.superseded_by is not None)
        ]


class OnlyANewerEpochCloses(Wrapped):
    """`>` instead of `>=` in the rule that closes a span."""

    def patch(self) -> AbstractContextManager[object]:
        closed_by: Callable[[Span | None, ProducerSeen], Closed | None] = span.closed_by

        def strict(prior: Span | None, fact: ProducerSeen) -> Closed | None:
            closed = closed_by(prior, fact)
            marker = closed.marker if closed is not None else None
            return closed if prior is None or marker is None or marker.producer_epoch > prior.epoch else None

        return mock.patch.object(span, "closed_by", strict)


class OneMarkerLost(WorldReader):
    """The first range of a run that closes something is not passed on."""

    is_lost = False

    def facts(self, facts: list[Fact]) -> list[Fact]:
        kept: list[Fact] = []
        for fact in facts:
            if not self.is_lost and isinstance(fact, ProducerSeen) and fact.last_marker is not None:
                self.is_lost = True
            else:
                kept.append(fact)
        return kept


class TruncationIgnored(WorldReader):
    """The truncation of a partition is not reported."""

    def facts(self, facts: list[Fact]) -> list[Fact]:
        return [fact for fact in facts if not self._is_truncation(fact)]

    def _is_truncation(self, fact: Fact) -> bool:
        return (
            isinstance(fact, PartitionNotice)
            and fact.kind is NoticeKind.TRUNCATED
            and fact.partition.topic != TRANSACTION_STATE_TOPIC
        )


class LogTailLostUnnoticed(WorldReader):
    """The leader of `__transaction_state` is not asked whether what was read is still there."""

    def read(self, plan: TaskPlan) -> list[Fact]:
        def blind(read: RangeReading) -> None:
            if read.partition.topic == TRANSACTION_STATE_TOPIC:
                read.last_epoch, read.must_check = None, False

        real = self.view.read

        def read_blindly(read: RangeReading) -> None:
            blind(read)
            real(read)

        with mock.patch.object(self.view, "read", read_blindly):
            return super().read(plan)

    def facts(self, facts: list[Fact]) -> list[Fact]:
        """Nor is its last batch compared."""
        return [replace(fact, rechecked={}) if isinstance(fact, Barrier | LogRead) else fact for fact in facts]


def undoubted(emitted: list[Finding]) -> list[Finding]:
    return [finding for finding in emitted if not isinstance(finding, CoverInDoubt)]


class NobodyAsksForAnUnknownOwner(WorldReader):
    """What no part of the log that is read names waits until all of the log is read."""

    def process(self, number: int, store: DictStore, facts: list[Fact]) -> list[Finding]:
        emitted = super().process(number, store, facts)
        return [finding for finding in emitted if not isinstance(finding, OwnerInDoubt)]


class AnyPartOfTheLogWillDo(WorldReader):
    """An id that the coordinators that answer do not have has no owner."""

    def batch(self, on_result: Callable[[BatchResult], None]) -> bool:
        whole = TransactionListing.__init__

        def blind(listing: TransactionListing, transactions: object, *_: object, **__: object) -> None:
            whole(listing, transactions)  # type: ignore[arg-type]

        with mock.patch.object(TransactionListing, "__init__", blind):
            return super().batch(on_result)


class HiddenIsAbsent(WorldReader):
    """A participant that Metadata does not show is not there."""

    def facts(self, facts: list[Fact]) -> list[Fact]:
        return [fact for fact in facts if not (isinstance(fact, PartitionNotice) and fact.kind is NoticeKind.HIDDEN)]


class NoLogIsNoOwner(ChangedBarrier):
    """If no broker shows the coordinators' log, no data has an owner."""

    def change(self, barrier: Barrier) -> Barrier:
        return replace(barrier, has_coordinator_log=True)


class TheLogIsNeverAnother(WorldReader):
    """A re-created log counts as missing."""

    def list_ends(self) -> ReaderListing | None:
        missing = self.lister.is_missing

        def for_ever(name: str) -> bool:
            is_log = name == TRANSACTION_STATE_TOPIC and self.lister.absences.get(name, 0) > 0
            return is_log or missing(name)

        with mock.patch.object(self.lister, "is_missing", for_ever):
            return super().list_ends()


class TheOldLogStillCounts(Wrapped):
    """The content of the log that is gone still counts."""

    @contextmanager
    def patch(self) -> Iterator[None]:
        def kept(producer: ProducerState, *_: object) -> Step:
            return Step(producer)

        with mock.patch.object(buckets, "forget_unseen", kept):
            yield

    def process(self, number: int, store: DictStore, facts: list[Fact]) -> list[Finding]:
        return undoubted(super().process(number, store, facts))


class CensusJudgedAtOnce(Wrapped):
    """A census is compared with the T of its own batch, which is older, and is not evaluated again."""

    @contextmanager
    def patch(self) -> Iterator[None]:
        def early(producer: ProducerState, fact: OpenDescribed, listing: CensusListing, number: int) -> Step:
            return described_open(producer, fact, listing, number - 1)

        with (
            mock.patch.object(buckets, "described_open", early),
            mock.patch.object(proof, "is_still_open", return_value=True),
        ):
            yield


class FollowerBelieved(WorldReader):
    """DescribeProducers is answered by a replica that lags."""

    class _LaggingView(View):
        def producers(self, log: DataPartition) -> dict[int, Producer]:
            lagging = DataPartition(log.partition, log.topic_id)
            lagging.entries = [entry for entry in log.entries if entry.next_offset <= log.follower_end // 2]
            lagging.rebuild()
            return lagging.producers

    def new_view(self, world: World, rng: random.Random) -> View:
        return view_like(self._LaggingView, super().new_view(world, rng), rng)


# With the worlds in which each shows soonest, and a seed to begin with where that takes hundreds.
MUTANTS: tuple[tuple[type[WorldReader], Setting, int], ...] = (
    (LogListedFirst, MARKERS_GET_LOST, 60),
    (EmptyBatchIsABarrier, HEALTHY_AND_QUICK, 84),
    (LimitedIsProven, HEALTHY_AND_QUICK, 1),
    (LeftIsRead, USUAL, 713),
    (BehindTakenForRead, USUAL, 34),
    (OlderTakenForTheOneAhead, A_LONG_WATCH, 778),
    (StaleLogIsFresh, USUAL, 10),
    (StaleDataIsFresh, HEALTHY_AND_QUICK, 769),
    (NoSecondLookAtTheLog, USUAL, 22),
    (ElectionOfTheLogProvesToo, APPENDS_SUCCEED, 7_015_974),
    (ElectionWhileReadingProvesToo, APPENDS_SUCCEED, 7_015_974),
    (RotationToOneProducerIdOnly, MARKERS_GET_LOST, 8),
    (OnlyANewerEpochCloses, USUAL, 141),
    (OneMarkerLost, USUAL, 547),
    (TruncationIgnored, DATA_IS_CUT, 165),
    (LogTailLostUnnoticed, THE_LOG_IS_CUT, 9),
    (CensusJudgedAtOnce, HEALTHY_AND_QUICK, 0),
    (FollowerBelieved, USUAL, 0),
    (NobodyAsksForAnUnknownOwner, LEADERS_GET_LOST, 893),
    (AnyPartOfTheLogWillDo, USUAL, 10),
    (HiddenIsAbsent, USUAL, 150),
    (NoLogIsNoOwner, USUAL, 145),
    (TheLogIsNeverAnother, USUAL, 12),
    (TheOldLogStillCounts, USUAL, 50),
)
