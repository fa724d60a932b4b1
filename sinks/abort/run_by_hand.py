"""Carries out the plans of the abort by hand, with the connections of one command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from txnwatch.state.abort.case import ProvenHang
from txnwatch.state.abort.protocol import MarkerResult
from txnwatch.state.abort.rules import AbortSpec, Refused
from txnwatch.state.evidence.confirmation import SpanConfirmation
from txnwatch.state.evidence.search_result import Search
from txnwatch.state.incidents.by_hand import (
    AbortByHand,
    AwaitEnd,
    FindAbsence,
    FoundHang,
    ManualTarget,
    PauseBetweenReads,
    PublishAtOnce,
    ReadOpenIncident,
    SearchPartition,
)
from txnwatch.state.incidents.event_builder import Origin
from txnwatch.state.incidents.wanted import FreshReads, Plan, T, Wanted, Way
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ports import TransactionAdmin
from txnwatch.state.model.values import TimestampMs, TopicPartition


class OperatorsTopic(Protocol):
    """The events topic, as the abort by hand uses it."""

    def open_incident(self, incident: IncidentEvent) -> IncidentEvent | None:
        """See ReadOpenIncident."""

    def publish(self, event: IncidentEvent) -> None:
        """See PublishAtOnce.

        Raises:
            SinkError: it is not certain that the event arrived, or another writer's event came first.
        """

    def is_ended(self, incident_id: str) -> bool:
        """See AwaitEnd."""


@dataclass(frozen=True, slots=True)
class ManualAbort:
    """Ends one transaction by hand.

    Attributes:
        search: the search of find-hanging, for the open spans of a partition that a filter selects.
        absence: why a partition is not shown; None if it is shown.
        operator: the name of the user and the host, for the events.
        now_ms: local clock.
        pause: waits between the two reads.
    """

    target: ManualTarget
    admin: TransactionAdmin
    search: Callable[[TopicPartition, Callable[[SpanCandidate], bool]], Search]
    absence: Callable[[TopicPartition], str | None]
    origin: Origin
    operator: str
    now_ms: Callable[[], TimestampMs]
    pause: Callable[[], None]

    def find(self) -> FoundHang:
        """Finds the transaction by two reads; the second is the fresh read.

        Raises:
            TxnwatchError: there is no such open transaction, it does not hang, or a reading failed.
        """
        return self._run(self._abort.find())

    def decide(self, evidence: ProvenHang, confirmation: SpanConfirmation) -> AbortSpec | Refused:
        """The decision of the automatic abort, with the policy of an operator."""
        return self._run(self._abort.decide(evidence, confirmation))

    def end(self, incident: IncidentEvent, evidence: ProvenHang, topic: OperatorsTopic) -> MarkerResult | Refused:
        """Reads once more, because the operator may have waited, and runs the protocol.

        Raises:
            SinkError: the announcement could not be published; no marker was written.
        """
        ways: dict[type[Wanted[Any]], Way] = {
            ReadOpenIncident: lambda wanted: topic.open_incident(wanted.incident),
            PublishAtOnce: lambda wanted: topic.publish(wanted.event),
            AwaitEnd: lambda wanted: topic.is_ended(wanted.incident_id),
        }
        return self._run(self._abort.end(incident, evidence), ways)

    @property
    def _abort(self) -> AbortByHand:
        return AbortByHand(self.target, self.origin, self.operator)

    def _run(self, plan: Plan[T], also: Mapping[type[Wanted[Any]], Way] = MappingProxyType({})) -> T:
        ways: dict[type[Wanted[Any]], Way] = {
            SearchPartition: lambda wanted: self.search(wanted.partition, wanted.is_wanted),
            FindAbsence: lambda wanted: self.absence(wanted.partition),
            PauseBetweenReads: lambda _: self.pause(),
            **also,
        }
        return FreshReads(self.admin, self.now_ms, ways).run(plan)
