"""Compares the reported ends of transactions with what their coordinators decided, and who made them decide.

FALSE END OF A TRANSACTION: an incident about a transaction ended as committed or aborted, and its coordinator has never
decided so, or somebody else ended it. A decision counts if it was committed to the log, also if an unclean election has
removed it since. Unknown is never false; the tests check that it is rare.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from simulation.coordinator import Transaction
from simulation.world import World
from txnwatch.state.evidence.ending import transaction_resolution
from txnwatch.state.model.findings import TransactionMoved
from txnwatch.state.model.incident import EndedBy, EndKind
from txnwatch.state.model.transaction import TransactionState
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

_HOW = {"commit": EndKind.COMMITTED, "abort": EndKind.ABORTED}


class OneTransaction(NamedTuple):
    """A transaction, by values that do not change until its end."""

    transactional_id: str
    producer_id: int
    start_ms: int | None


def decision_in(known: Transaction, value: TransactionLogValue | None) -> tuple[OneTransaction, EndKind] | None:
    """The decision in a record; an abort of an empty transaction is none."""
    if value is None or not value.state.is_prepare or not value.partitions or value.state.outcome is None:
        return None
    return OneTransaction(known.transactional_id, value.producer_id, value.start_ms), _HOW[value.state.outcome]


@dataclass
class EndOracle:
    """What every coordinator of a world has decided, from the moment at which the oracle is made."""

    world: World
    decided: set[tuple[OneTransaction, EndKind]] = field(default_factory=set)
    ended_by: dict[tuple[OneTransaction, EndKind], set[EndedBy]] = field(default_factory=lambda: defaultdict(set))
    authors: dict[int, tuple[TransactionLogValue, EndedBy]] = field(default_factory=dict)  # by the identity of a value

    def __post_init__(self) -> None:
        coordinators = self.world.coordinators
        end, fence, enter = coordinators.end, coordinators.fence, coordinators.enter

        def ended(known: Transaction, *, commit: bool) -> None:
            end(known, commit=commit)
            self._appended(known, EndedBy.CLIENT)

        def fenced(known: Transaction) -> None:
            was_free = known.is_free
            fence(known)
            if was_free:
                self._appended(known, EndedBy.COORDINATOR)

        def entered(known: Transaction, value: TransactionLogValue | None) -> None:
            decision = decision_in(known, value)
            if decision is not None:
                self.decided.add(decision)
                author = self.authors.get(id(value))
                self.ended_by[decision] |= {author[1]} if author is not None else set()
            enter(known, value)

        coordinators.end, coordinators.fence, coordinators.enter = ended, fenced, entered  # type: ignore[method-assign]

    def _appended(self, known: Transaction, by: EndedBy) -> None:
        """Notes who has made a coordinator append a decision; it counts once the coordinator takes it into memory."""
        value = known.pending.value if known.pending is not None else None
        if value is not None and decision_in(known, value) is not None:
            self.authors.setdefault(id(value), (value, by))

    def check(self, moved: TransactionMoved) -> Iterator[str]:
        """Checks the end of one incident."""
        view, resolution = moved.candidate_view, transaction_resolution(moved, 0)
        transaction = OneTransaction(view.transactional_id, moved.producer_id, view.start_ms)
        self.world.seen[f"transaction {resolution.how}"] += 1
        self.world.note(f"ENDED {moved.verdict} of {transaction}: {resolution.how} by {resolution.by}")
        if resolution.how not in _HOW.values():
            return
        if view.state is TransactionState.PREPARE_ABORT and not view.participants:
            yield from () if resolution.how is EndKind.ABORTED else [f"FALSE END OF A TRANSACTION: of nothing, {view}"]
            return
        decision = transaction, resolution.how
        is_true = resolution.by in {EndedBy.UNKNOWN, *self.ended_by[decision]}
        if decision not in self.decided or not is_true:
            yield f"FALSE END OF A TRANSACTION: {transaction} was not {resolution.how} by {resolution.by}"
