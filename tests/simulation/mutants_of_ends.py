"""Planted bugs in how a transaction of an incident has ended; see mutants.py."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace as with_setting
from unittest import mock

from msgspec.structs import replace

from simulation.failed_appends import FAILED_APPEND
from simulation.mutants import Wrapped
from simulation.reader import WorldReader
from simulation.run import USUAL
from simulation.world import Setting
from support.facts import DictStore
from txnwatch.state.detection import view
from txnwatch.state.detection.view import decision_of, end_of
from txnwatch.state.model.facts import Fact, FirstDecision, TransactionEnd
from txnwatch.state.model.findings import Finding, TransactionMoved
from txnwatch.state.model.incident import EndedBy
from txnwatch.state.model.transaction import CoordinatorView
from txnwatch.state.model.values import ProducerEpoch
from txnwatch.streaming.log import transaction_fold
from txnwatch.streaming.source.tasks import TaskPlan

SLOW = with_setting(USUAL, pause_ms=120_000, rate=8.0)  # transactions are reported, and several follow in one batch

APPENDS_FAIL = with_setting(SLOW, faults=frozenset({FAILED_APPEND}), failing=1.0)


class TheNewestStateIsTheEnd(WorldReader):
    """An incident ends with the latest state of its id, whichever transaction that is."""

    def process(self, number: int, store: DictStore, facts: list[Fact]) -> list[Finding]:
        return [_by_newest(found) for found in super().process(number, store, facts)]


def _by_newest(found: Finding) -> Finding:
    if not isinstance(found, TransactionMoved) or found.view.state.outcome is None:
        return found
    return replace(found, end=TransactionEnd(found.view.state, EndedBy.UNKNOWN, found.view.log_offset, None))


class TheFirstDecisionIsTheEnd(WorldReader):
    """Nothing can take back a Prepare* record."""

    def read(self, plan: TaskPlan) -> list[Fact]:
        def final(view: CoordinatorView, epoch: ProducerEpoch | None, *, is_first: bool) -> FirstDecision | None:
            decided = decision_of(view, epoch, is_first=is_first)
            return decided._replace(is_final=True) if decided is not None else None

        with mock.patch.object(transaction_fold, "decision_of", final):
            return super().read(plan)


class EveryAbortIsTheClients(Wrapped):
    """Whoever has raised the epoch: the client has aborted."""

    def patch(self) -> AbstractContextManager[object]:
        def by_client(
            prior: CoordinatorView, decided: FirstDecision | None, begun: CoordinatorView | None = None
        ) -> TransactionEnd | None:
            end = end_of(prior, decided, begun)
            return end._replace(by=EndedBy.CLIENT) if end is not None else None

        return mock.patch.object(view, "end_of", by_client)


MUTANTS_OF_ENDS: tuple[tuple[type[WorldReader], Setting, int], ...] = (
    (TheNewestStateIsTheEnd, SLOW, 16),
    (EveryAbortIsTheClients, SLOW, 0),
    (TheFirstDecisionIsTheEnd, APPENDS_FAIL, 19),
)
