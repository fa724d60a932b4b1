"""Carries out the plans of every abort, the automatic one and the one by hand; and publishes what an operator changes.

The lease says which watch may act. An abort by hand needs no lease: it publishes as the next event of the incident of a
watch.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import InitVar, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol

from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.abort.abort_policy import AbortPolicy
from txnwatch.state.abort.rules import AbortSpec, Refused
from txnwatch.state.evidence.confirmation import SpanConfirmation
from txnwatch.state.evidence.proven_hang import ProvenHang
from txnwatch.state.evidence.screening import Search
from txnwatch.state.incidents.abort_protocol import MarkerResult
from txnwatch.state.incidents.automatic_abort import AutoAbort
from txnwatch.state.incidents.by_hand import (
    AbortByHand,
    FindAbsence,
    FoundHang,
    ManualTarget,
    PauseBetweenReads,
    PublishAtOnce,
    ReadOpenIncident,
    SearchPartition,
)
from txnwatch.state.incidents.claims import is_usable
from txnwatch.state.incidents.event_builder import fitting
from txnwatch.state.incidents.heartbeat import TopicRecord
from txnwatch.state.incidents.wanted import HoldLease, LeaseAnswer, Plan, PlanRunner, Say, T, Wanted, Way
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import IncidentEvent, Initiator, latest
from txnwatch.state.model.ports import EventsTopicWriter, Lease, LeaseView, Log, TransactionAdmin
from txnwatch.state.model.values import DurationMs, TimestampMs, TopicPartition
from txnwatch.state.telling.commands import Origin
from txnwatch.state.telling.published import said_about

# The automatic abort of a watch.

_LOG = logging.getLogger("txnwatch.abort")


@dataclass(slots=True)
class RunningAbort:
    """The automatic abort of one watch.

    Attributes:
        lease: that of the instance that speaks; None for a watch without one.
        log: receives messages for the operator that are not events.
        abort: what decides.
    """

    mode: InitVar[str]
    policy: InitVar[AbortPolicy]
    cooldown_ms: InitVar[DurationMs]
    ledger: RunningLedger
    lease: Lease | None
    instance: InitVar[str]
    now_ms: Callable[[], TimestampMs]
    log: Log = _LOG
    principal: InitVar[str | None] = None
    abort: AutoAbort = field(init=False)
    _reads: PlanRunner = field(init=False)

    def __post_init__(
        self, mode: str, policy: AbortPolicy, cooldown_ms: DurationMs, instance: str, principal: str | None
    ) -> None:
        self.abort = AutoAbort(mode, policy, cooldown_ms, self.ledger.ledger, instance, principal)
        ways: dict[type[Wanted[Any]], Way] = {
            **self.ledger.ways(),
            HoldLease: self._held,
            Say: self._say,
        }
        self._reads = PlanRunner(self.ledger.admin, self.now_ms, ways)

    @property
    def counts(self) -> Counter[str]:
        """Decisions, for the metrics."""
        return self.abort.counts

    def recover(self) -> None:
        """Publishes the results of markers that were announced without one; before each batch of the ledger."""
        self._reads.run(self.abort.recover())

    def on_batch(self) -> None:
        """Decides about every open incident that is due; after each batch of the ledger."""
        self._reads.run(self.abort.on_batch())

    def _held(self, wanted: HoldLease) -> LeaseAnswer:
        if self.lease is None:
            return LeaseAnswer(is_held=False, problem=None)
        is_held = self.lease.is_held_now() if wanted.is_certain else self.lease.view() is LeaseView.HELD
        return LeaseAnswer(is_held, self.lease.problem)

    def _say(self, wanted: Say) -> None:
        if wanted.is_warning:
            self.log.warning(wanted.text)
        else:
            self.log.info(wanted.text)


# The abort by hand, of `txnwatch abort`.


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
        return PlanRunner(self.admin, self.now_ms, ways).run(plan)


# The events topic for an operator, whose command is `txnwatch abort` or `txnwatch fence`. It finds the incident of a
# watch, and publishes as its next event.
#
# A record of another writer can have the same sequence. Of two records with one sequence the first on the topic counts.
# So an event is read back: if another one came first, nothing may follow from ours.

PATIENCE_S = 5.0
PAUSE_S = 0.1


class OperatorsTopic(Protocol):
    """What the abort by hand needs of the events topic."""

    def open_incident(self, incident: IncidentEvent) -> IncidentEvent | None:
        """See ReadOpenIncident."""

    def publish(self, event: IncidentEvent) -> None:
        """See PublishAtOnce.

        Raises:
            SinkError: it is not certain that the event arrived, or another writer's event came first.
        """


class Readable(Protocol):
    """What reads the topic; EventLog is one."""

    def history(self) -> Iterable[TopicRecord]:
        """See EventLog."""

    def new_records(self) -> Iterable[TopicRecord]:
        """See EventLog."""


class NoTopic:
    """No events topic: the cluster is not watched."""

    def open_incident(self, _: IncidentEvent) -> IncidentEvent | None:
        """See OperatorsTopic."""
        return None

    def open_incidents(self, _: Callable[[IncidentEvent], bool]) -> list[IncidentEvent]:
        """See KafkaOperatorsTopic."""
        return []

    def publish(self, _: IncidentEvent) -> None:
        """See OperatorsTopic."""


class KafkaOperatorsTopic:
    """The events topic for `txnwatch abort` and `txnwatch fence`.

    Without `log`, because it may not be read, no incident of a watch is found. Each published action gets the principal
    of the connection.
    """

    def __init__(
        self,
        topic: EventsTopicWriter,
        log: Readable | None,
        principal: str | None = None,
    ) -> None:
        self._topic, self._log, self._principal = topic, log, principal
        self._known: dict[tuple[str, str], IncidentEvent] = {}
        self._first: dict[tuple[str, str], IncidentEvent] = {}
        self._announced: set[str] = set()
        if log is not None:
            self._take(log.history())

    def open_incident(self, incident: IncidentEvent) -> IncidentEvent | None:
        """See OperatorsTopic. The rule is that of what a command shows; one without room for our events is left out.

        One whose id is not the computed one may be forged.
        """
        return said_about(
            incident, (event for event in self._known.values() if is_usable(event, incident.cluster_id, None))
        )

    def open_incidents(self, is_wanted: Callable[[IncidentEvent], bool]) -> list[IncidentEvent]:
        """The last events of the open incidents of watches that a filter selects."""
        open_ones = (event for event in self._known.values() if event.is_open and not event.is_by_hand)
        return [event for event in open_ones if is_wanted(event)]

    def publish(self, event: IncidentEvent) -> None:
        """See OperatorsTopic. After the announcement, what another writer has published is no problem."""
        ours = fitting(self._with_principal(event))
        last = self._latest(ours)
        is_behind = last is not None and (not last.is_open or last.sequence >= ours.sequence)
        is_announced = ours.incident_id in self._announced
        if not is_announced and is_behind:
            raise SinkError(f"{self._topic.name}: another event of the incident came first; run the command again")
        if last is not None and not last.is_open:
            return  # a watch has published the end, with the result
        self._topic.publish([ours])
        if not is_announced and self._log is not None:
            self._await(ours)
        self._announced.add(ours.incident_id)

    def _with_principal(self, event: IncidentEvent) -> IncidentEvent:
        if event.action is None or event.action.initiator is not Initiator.OPERATOR:
            return event
        return replace(event, action=replace(event.action, principal=self._principal))

    def _await(self, ours: IncidentEvent) -> None:
        """Reads an event back.

        Raises:
            SinkError: it does not come, or another event with its sequence came first.
        """
        key, until_s = (ours.cluster_id, ours.event_id), time.monotonic() + PATIENCE_S
        while key not in self._first:
            if time.monotonic() > until_s:
                raise SinkError(f"{self._topic.name}: the event was written, but it could not be read back")
            time.sleep(PAUSE_S)
            self._read()
        if self._first[key] != ours:
            raise SinkError(f"{self._topic.name}: another event of the incident came first; run the command again")

    def _latest(self, event: IncidentEvent) -> IncidentEvent | None:
        self._read()
        return self._known.get((event.cluster_id, event.incident_id))

    def _read(self) -> None:
        if self._log is not None:
            self._take(self._log.new_records())

    def _take(self, records: Iterable[TopicRecord]) -> None:
        events = [record for record in records if isinstance(record, IncidentEvent)]
        self._known = latest([*self._known.values(), *events])
        for event in events:
            self._first.setdefault((event.cluster_id, event.event_id), event)
