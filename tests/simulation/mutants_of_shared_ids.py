"""Planted bugs in the handling of a producer id that two transactional ids have; see mutants.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from unittest import mock

from msgspec.structs import replace

from simulation.mutants import undoubted
from simulation.reader import BatchResult, WorldReader
from simulation.shared_ids import TWO_IDS
from simulation.world import Setting
from support.facts import DictStore
from txnwatch.state.detection import view
from txnwatch.state.detection.proof import BarrierContext
from txnwatch.state.evidence.confirmation import CoordinatorReading, coordinator_reading
from txnwatch.state.incidents import confirm
from txnwatch.state.model.facts import Fact, TransactionSeen
from txnwatch.state.model.findings import Finding, SpanCandidate
from txnwatch.state.model.ports import TransactionListing
from txnwatch.state.model.transaction import CoordinatorView, TransactionDescription
from txnwatch.state.model.values import ErrorCode, Problem
from txnwatch.state.text import cut

SHARED_AND_QUICK = Setting(faults=frozenset({TWO_IDS}), rate=4.0, sharing=1.0)
SHARED_AND_AWAY = Setting(faults=frozenset({TWO_IDS, "no leader", "unreadable"}), sharing=1.0)
# Kafka takes no longer id; two of them differ only in the middle, which is not shown.
SHARED_AND_LONGEST = dataclasses.replace(SHARED_AND_QUICK, id_length=32_767)
SHARED_BEFORE_THE_WATCH = Setting(
    faults=SHARED_AND_AWAY.faults | {"lost marker", "stray write"}, head_start=60, sharing=1.0
)
SHARED_AND_LOST = Setting(faults=frozenset({TWO_IDS, "lost marker"}), logs=1, rate=20.0, sharing=1.0)


_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class TheFirstIdThatIsDescribedCounts(WorldReader):
    """Of several ids with one producer id the fresh read takes the first one."""

    def batch(self, on_result: Callable[[BatchResult], None]) -> bool:
        def first(
            candidate: SpanCandidate, descriptions: dict[str, TransactionDescription], listing: TransactionListing
        ) -> CoordinatorReading:
            names = {row.transactional_id: row for row in reversed(listing.transactions)}
            one = list(names.values())[-1:]
            alone = replace(candidate, view=None) if one else candidate
            return coordinator_reading(alone, descriptions, TransactionListing(tuple(one), listing.problems))

        with mock.patch.object(confirm, "coordinator_reading", first):
            return super().batch(on_result)


class ASecondIdIsNotLookedFor(WorldReader):
    """An id that was described is the only one, though a part of the listing is missing and no record was read."""

    def batch(self, on_result: Callable[[BatchResult], None]) -> bool:
        def hasty(
            candidate: SpanCandidate, descriptions: dict[str, TransactionDescription], listing: TransactionListing
        ) -> CoordinatorReading:
            is_known = any(row.producer_id == candidate.producer_id for row in listing.transactions)
            return coordinator_reading(
                candidate, descriptions, dataclasses.replace(listing, problems=listing.silent) if is_known else listing
            )

        with mock.patch.object(confirm, "coordinator_reading", hasty):
            return super().batch(on_result)


class RecordsOfOneIdAreEnough(WorldReader):
    """The log names every id with a producer id, though a partition of the log is not read to its end."""

    def batch(self, on_result: Callable[[BatchResult], None]) -> bool:
        def sure(
            candidate: SpanCandidate, descriptions: dict[str, TransactionDescription], listing: TransactionListing
        ) -> CoordinatorReading:
            hidden = tuple(Problem(one.text, _DENIED) for one in listing.problems if one not in listing.silent)
            read = replace(candidate, is_log_read=True)
            return coordinator_reading(
                read, descriptions, dataclasses.replace(listing, problems=(*listing.silent, *hidden))
            )

        with mock.patch.object(confirm, "coordinator_reading", sure):
            return super().batch(on_result)


class ALogThatIsNotReadNamesNoOtherOwner(WorldReader):
    """A transaction that takes open data has absorbed a stray write, though another id may have held the data."""

    def process(self, number: int, store: DictStore, facts: list[Fact]) -> list[Finding]:
        with mock.patch.object(BarrierContext, "is_log_read", new=True):
            return super().process(number, store, facts)


class OneFactForAProducerId(WorldReader):
    """A range has only the last record of a producer id, whichever transactional id it is about; nobody asks."""

    def process(self, number: int, store: DictStore, facts: list[Fact]) -> list[Finding]:
        return undoubted(super().process(number, store, facts))

    def facts(self, facts: list[Fact]) -> list[Fact]:
        last: dict[tuple[int, int], TransactionSeen] = {}
        for fact in facts:
            if isinstance(fact, TransactionSeen):
                at = fact.producer_id, fact.view.log_partition
                known = last.get(at)
                if known is None or known.view.log_offset < fact.view.log_offset:
                    last[at] = fact
        kept = list(last.values())
        return [fact for fact in facts if not isinstance(fact, TransactionSeen) or any(fact is one for one in kept)]


class AnIdIsWhatIsShownOfIt(WorldReader):
    """Two ids are one if what is shown of them is the same."""

    def process(self, number: int, store: DictStore, facts: list[Fact]) -> list[Finding]:
        def looks_other(known: CoordinatorView | None, seen: CoordinatorView) -> bool:
            return known is not None and cut(known.transactional_id) != cut(seen.transactional_id)

        with mock.patch.object(view, "is_of_another_id", looks_other):
            return super().process(number, store, facts)


MUTANTS_OF_SHARED_IDS: tuple[tuple[type[WorldReader], Setting, int], ...] = (
    (TheFirstIdThatIsDescribedCounts, SHARED_AND_QUICK, 15),
    (ASecondIdIsNotLookedFor, SHARED_AND_AWAY, 751),
    (RecordsOfOneIdAreEnough, SHARED_BEFORE_THE_WATCH, 580),
    (ALogThatIsNotReadNamesNoOtherOwner, SHARED_AND_AWAY, 2_003_250),
    (OneFactForAProducerId, SHARED_AND_LOST, 60),
    (AnIdIsWhatIsShownOfIt, SHARED_AND_LONGEST, 42),
)
