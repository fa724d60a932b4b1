"""Planted bugs in what a watcher concludes from its own clock about the time of another machine; see mutants.py.

Each one is a rule that the product had. The simulation of watchers_clocks.py must find it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol
from unittest import mock

from txnwatch.state.evidence.ending import is_held, is_same_transaction, refuted
from txnwatch.state.incidents import checking
from txnwatch.state.incidents.book import Book
from txnwatch.state.incidents.checking import Ends, FollowUp
from txnwatch.state.incidents.wanted import DescribeTransactions, Plan, ask
from txnwatch.state.model.incident import IncidentEvent, Resolution
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.transaction import DescribedTransaction, TransactionDescription
from txnwatch.state.model.values import TimestampMs, TopicPartition
from txnwatch.state.model.verdicts import RULE_OF, Verdict

Owners = Mapping[str, TransactionDescription]
_CONTRADICTIONS, _END = checking.contradictions, FollowUp.end_of


class PlantedRule(Protocol):
    """A rule that is planted while its patch lasts."""

    @staticmethod
    def patch() -> AbstractContextManager[object]:
        """Plants it."""
        ...


class OurClockRefutesLate(PlantedRule):
    """An overdue transaction of another watcher is refuted if, by our clock, it is not overdue."""

    @staticmethod
    def patch() -> AbstractContextManager[object]:
        def contradictions(book: Book, incidents: Sequence[IncidentEvent], now_ms: TimestampMs) -> Plan[Ends]:
            ends = yield from _CONTRADICTIONS(book, incidents, now_ms)
            late = [one for one in incidents if RULE_OF[one.verdict].is_past_timeout and not book.is_found(one)]
            names = [one.transactional_id or "" for one in late]
            owners = (yield from ask(DescribeTransactions(names))) if late else {}
            for one, name in zip(late, names, strict=True):
                owner = owners[name]
                if not isinstance(owner, DescribedTransaction) or not is_same_transaction(owner, one):
                    continue
                if owner.start_ms is not None and now_ms + 5_000 < owner.start_ms + owner.timeout_ms:
                    ends.append((one, refuted(now_ms, owner)))
            return ends

        return mock.patch.object(checking, "contradictions", contradictions)


class TheStartRefutesAHang(PlantedRule):
    """A transaction owns the data of a hang if it began before it, by two different clocks."""

    @staticmethod
    def patch() -> AbstractContextManager[object]:
        def end(
            self: FollowUp,
            incident: IncidentEvent,
            owners: Owners,
            readings: Mapping[TopicPartition, PartitionReading],
            now_ms: TimestampMs,
        ) -> Resolution | None:
            found = _END(self, incident, owners, readings, now_ms)
            owner = owners.get(incident.transactional_id or "")
            if found is not None or incident.verdict != Verdict.HANGING or not isinstance(owner, DescribedTransaction):
                return found
            is_before = owner.start_ms is not None and owner.start_ms <= incident.open_since_ms
            return refuted(now_ms, owner) if is_before and is_held(incident, owner) else None

        return mock.patch.object(FollowUp, "end_of", end)


MUTANTS_OF_WATCHERS: tuple[tuple[type[PlantedRule], int], ...] = (
    (OurClockRefutesLate, 138),
    (TheStartRefutesAHang, 1),
)
