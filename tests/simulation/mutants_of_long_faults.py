"""Planted bugs in the rules that the long faults test (long_faults.py); see mutants.py."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest import mock

from msgspec.structs import replace

from simulation.long_faults import LOG_AWAY, MORE_LOGS, NOBODY_ENDS
from simulation.mutants import Wrapped, view_like
from simulation.reader import BatchResult, WorldReader
from simulation.shared_ids import TWO_IDS
from simulation.view import View
from simulation.world import Setting, World
from support.facts import DictStore
from txnwatch.state.detection import proof
from txnwatch.state.detection.proof import Look, look_at
from txnwatch.state.evidence.confirmation import CoordinatorReading, coordinator_reading
from txnwatch.state.incidents import confirm
from txnwatch.state.model.facts import Barrier, Fact, TransactionalIdGone, TransactionSeen
from txnwatch.state.model.findings import CoverInDoubt, Finding, SpanCandidate
from txnwatch.state.model.ports import TransactionListing
from txnwatch.state.model.transaction import TransactionDescription
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC
from txnwatch.state.model.verdicts import is_two_phase
from txnwatch.streaming.client.metadata import TopicInfo

AWAY = Setting(faults=frozenset({LOG_AWAY, "stray write", "lost marker"}), rate=4.0)
AWAY_AND_SHARED = Setting(faults=frozenset({LOG_AWAY, TWO_IDS, "stray write"}), rate=4.0, sharing=1.0)
MORE_AND_SLOW = Setting(faults=frozenset({MORE_LOGS}), rate=0.5, batches=24)
MORE_AND_QUICK = Setting(faults=frozenset({MORE_LOGS}), rate=4.0)
MORE_AND_NOBODY = Setting(faults=frozenset({MORE_LOGS, NOBODY_ENDS}), rate=4.0)
NOBODY = Setting(faults=frozenset({NOBODY_ENDS}), rate=4.0)
_AN_HOUR_MS = 3_600_000


class OnlyAWholeListingNamesTheOwner(WorldReader):
    """The log that was read names nobody for certain: while a part of it has no leader, no hang is told."""

    def process(self, number: int, store: DictStore, facts: list[Fact]) -> list[Finding]:
        emitted = super().process(number, store, facts)
        return [replace(one, is_log_read=False) if isinstance(one, SpanCandidate) else one for one in emitted]


class ATombstoneOfAnyPartitionCounts(WorldReader):
    """A tombstone ends an id wherever it is in the log."""

    def facts(self, facts: list[Fact]) -> list[Fact]:
        on = {one.view.transactional_id: one.view.log_partition for one in facts if isinstance(one, TransactionSeen)}
        self.on = {**getattr(self, "on", {}), **on}
        return [
            replace(one, log_partition=self.on.get(one.transactional_id, one.log_partition))
            if isinstance(one, TransactionalIdGone)
            else one
            for one in facts
        ]


class TheLogHasThePartitionsThatItHad(WorldReader):
    """Partitions that are added to the log are not read."""

    class _FormerView(View):
        def _shown(self) -> dict[str, TopicInfo]:
            topics = super()._shown()
            log = topics.get(TRANSACTION_STATE_TOPIC)
            if log is not None:
                self.count = getattr(self, "count", len(log.partitions))
                for number in [number for number in log.partitions if number >= self.count]:
                    del log.partitions[number]
            return topics

    def new_view(self, world: World, rng: random.Random) -> View:
        return view_like(self._FormerView, super().new_view(world, rng), rng)


class NobodyAsksAboutATwoPhaseTransaction(WorldReader):
    """What the log shows about a two-phase transaction is never compared with its coordinator."""

    def process(self, number: int, store: DictStore, facts: list[Fact]) -> list[Finding]:
        emitted = super().process(number, store, facts)
        return [one for one in emitted if not (isinstance(one, CoverInDoubt) and _is_two_phase(one.candidate))]


class AnOldTransactionHoldsNothing(Wrapped):
    """A two-phase transaction that is open for an hour counts as one that nobody will end."""

    def patch(self) -> AbstractContextManager[object]:
        def impatient(producer, partition, span, barrier: Barrier, unread) -> Look:  # type: ignore[no-untyped-def] # noqa: ANN001
            look, view = look_at(producer, partition, span, barrier, unread), producer.view
            if look is not Look.COVERED or not is_two_phase(view):
                return look
            return Look.UNCOVERED if barrier.coordinator_listed_ms - view.last_update_ms > _AN_HOUR_MS else look

        return mock.patch.object(proof, "look_at", impatient)


class AnOldTransactionIsDisowned(WorldReader):
    """If a two-phase transaction is in doubt, its coordinator's answer that it is live counts for nothing."""

    def batch(self, on_result: Callable[[BatchResult], None]) -> bool:
        def deaf(
            candidate: SpanCandidate, descriptions: dict[str, TransactionDescription], listing: TransactionListing
        ) -> CoordinatorReading:
            found = coordinator_reading(candidate, descriptions, listing)
            return CoordinatorReading() if _is_two_phase(candidate) else found

        with (
            mock.patch.object(confirm, "coordinator_reading", deaf),
            mock.patch.object(confirm, "is_disowned", return_value=True),
        ):
            return super().batch(on_result)


def _is_two_phase(candidate: SpanCandidate) -> bool:
    return candidate.view is not None and is_two_phase(candidate.view)


MUTANTS_OF_LONG_FAULTS: tuple[tuple[type[WorldReader], Setting, int], ...] = (
    (OnlyAWholeListingNamesTheOwner, AWAY, 0),
    (ATombstoneOfAnyPartitionCounts, MORE_AND_SLOW, 320),
    (TheLogHasThePartitionsThatItHad, MORE_AND_QUICK, 0),
    (NobodyAsksAboutATwoPhaseTransaction, MORE_AND_NOBODY, 0),
    (AnOldTransactionHoldsNothing, NOBODY, 0),
    (AnOldTransactionIsDisowned, NOBODY, 8),
)
