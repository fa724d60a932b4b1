"""The work of `txnwatch abort`: finds the transaction and its outcome, ends it, and writes the events.

An abort by hand has its own incident, about the abort only: the sequence of an incident that a running watch has opened
belongs to that watch. The decision depends only on what the brokers and the logs show, never on the events topic.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from txnwatch.cli.asking import origin_of
from txnwatch.cli.events_read import keys_of
from txnwatch.cli.find_hanging import searcher_of
from txnwatch.config import client_properties
from txnwatch.connection import options_of
from txnwatch.librdkafka import EventsTopic, events_topic, librdkafka_config
from txnwatch.sinks.abort.marker_write import MarkerResult, action, read_afresh, write
from txnwatch.sinks.delivery.kafka import KafkaEventsTopic
from txnwatch.sinks.incidents.commands import Origin
from txnwatch.sinks.incidents.confirm import confirm_spans
from txnwatch.sinks.incidents.event_builder import hanging_event, no_longer_open
from txnwatch.sinks.incidents.own_findings import read_anew
from txnwatch.state.abort.case import AbortPolicy, Case, ProvenHang, Usage
from txnwatch.state.abort.decision import AbortSpec, Refused, decide_abort
from txnwatch.state.events.record_size import fitting
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.model.errors import BrokerError, SinkError, TxnwatchError
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.incident import IncidentEvent, repeat_incident_id, resolved, updated
from txnwatch.state.model.incident_payload import (
    Decision,
    EndedBy,
    EndKind,
    ExpectedOutcome,
    Initiator,
    Refusal,
    Resolution,
)
from txnwatch.state.model.policy import DetectionPolicy
from txnwatch.streaming.admin.admin import ClusterAdmin
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.source.hidden_participants import why_not_shown

_TIMEOUT_S = 10.0
_BY_HAND = "by hand"
_BETWEEN_LOOKS_S = 1.0


@dataclass(frozen=True, slots=True)
class AbortRequest:
    """The request; exactly one of `start_offset` and `producer_id` is given."""

    topic: str
    partition: int
    start_offset: int | None
    producer_id: int | None
    is_commit: bool
    may_lose: bool

    def is_meant(self, span: SpanCandidate) -> bool:
        """Whether an open span is the requested one."""
        return span.span.start_offset == self.start_offset or span.producer_id == self.producer_id

    @property
    def policy(self) -> AbortPolicy:
        """The policy of a person: no waiting time, lists or budgets, and an unknown outcome is allowed."""
        outcomes = set(ExpectedOutcome) if self.may_lose else set(ExpectedOutcome) - {ExpectedOutcome.COMMIT}
        return AbortPolicy(
            after_ms=0,
            budget_per_hour=None,
            breaker_incidents=None,
            outcomes=frozenset(outcomes),
            commit=self.is_commit,
        )


@dataclass(frozen=True, slots=True)
class ManualCase:
    """The request, with the cluster and the events topic."""

    cluster: Cluster
    admin: ClusterAdmin
    config: dict[str, str]
    asked: AbortRequest
    origin: Origin
    events: EventsTopic

    @property
    def place(self) -> TopicPartition:
        """The requested partition."""
        return TopicPartition(self.asked.topic, self.asked.partition)


@contextlib.contextmanager
def open_case(parsed: argparse.Namespace, asked: AbortRequest) -> Iterator[ManualCase]:
    """Connects to the cluster with the connection flags."""
    options, properties = options_of(parsed.bootstrap_server, parsed.command_config), parsed.command_config
    events = events_topic(
        parsed.events_topic,
        parsed.events_format,
        parsed.schema_registry_url,
        client_properties(properties),
        keys_of(parsed),
    )
    with contextlib.closing(Cluster(options.bootstrap, options.security, timeout_s=_TIMEOUT_S)) as cluster:
        origin = origin_of(cluster, parsed)
        yield ManualCase(cluster, ClusterAdmin(cluster), librdkafka_config(options), asked, origin, events)


def look(case: ManualCase) -> tuple[IncidentEvent, ProvenHang, SpanConfirmation]:
    """The transaction as an incident, its evidence, and its confirmation, from two looks; the second is the fresh read.

    Raises:
        TxnwatchError: there is no such open transaction, it does not hang, or a reading failed.
    """
    candidate, first = _found(case)
    time.sleep(_BETWEEN_LOOKS_S)
    second, now_ms = _confirmed(case, candidate), wall_clock_ms()
    event = hanging_event(case.origin, candidate, first, None, now_ms)
    assert first.producer is not None
    return event, ProvenHang(candidate, first.producer, event.expected_outcome, candidate, now_ms), second


def _found(case: ManualCase) -> tuple[SpanCandidate, SpanConfirmation]:
    """The search of find-hanging, for the requested transaction only."""
    case.cluster.refresh()
    found = searcher_of(case.cluster, DetectionPolicy()).search([case.place], case.asked.is_meant)
    for candidate, proof in found.hanging:
        if candidate.view is None and found.not_checked:
            why = "; ".join(f"{what}: {why}" for what, why in found.not_checked.items())
            raise BrokerError(f"{case.place}: the owner of the transaction could not be read: {why}")
        return candidate, proof
    for _, described in found.covered:
        name, state = described.transactional_id, described.state
        raise TxnwatchError(f"{case.place}: it does not hang: {name} is {state} and holds the partition")
    for _, why in found.unproven:
        raise BrokerError(f"{case.place}: whether it hangs could not be read: {why}")
    reading = found.readings[case.place]
    if case.cluster.known.info(case.place) is None:
        raise BrokerError(f"{case.place}: {why_not_shown(case.cluster, case.place.topic)}")
    if reading.problem is not None:
        raise BrokerError(f"{case.place}: expected its leader to describe its producers, found: {reading.problem}")
    rows = [row for row in reading.producers if row.txn_start_offset >= 0]
    listed = sorted(f"one from offset {row.txn_start_offset} (producer id {row.producer_id})" for row in rows)
    raise TxnwatchError(f"{case.place}: expected the requested open transaction, found {', '.join(listed) or 'none'}")


def _confirmed(case: ManualCase, candidate: SpanCandidate) -> SpanConfirmation:
    ((_, found),) = confirm_spans(case.admin, [candidate])
    if found.answer is Answer.REFUTED:
        raise TxnwatchError(f"{case.place}: it does not hang: {found.why}")
    if found.answer is Answer.UNKNOWN:
        raise BrokerError(f"{case.place}: whether it hangs could not be read: {found.why}")
    return found


def decide(case: ManualCase, evidence: ProvenHang, found: SpanConfirmation) -> AbortSpec | Refused:
    """The decision of the automatic abort, with the policy of a person."""
    return decide_abort(Case(evidence, found, case.asked.policy, Usage(), wall_clock_ms()))


def act(case: ManualCase, incident: IncidentEvent, evidence: ProvenHang) -> MarkerResult | Refused:
    """Reads once more (the confirmation may have taken a while), announces, writes, reads again, and reports."""
    again, found = read_anew(case.admin, evidence, _confirmed(case, evidence.candidate))
    spec = decide(case, again, found)
    if again.outcome != evidence.outcome and not isinstance(spec, Refused):
        spec = Refused(Refusal.OUTCOME_UNKNOWN, f"the outcome was {evidence.outcome}, and can no longer be read")
    if isinstance(spec, Refused):
        return spec
    assert found.reading is not None
    by, stable = f"{getpass.getuser()}@{socket.gethostname()}", incident.last_stable_offset
    decision = Decision.COMMIT if case.asked.is_commit else Decision.ABORT
    now_ms = wall_clock_ms()
    begun = action(decision, by, now_ms, detail=_BY_HAND, spec=spec, stable_before=stable, initiator=Initiator.OPERATOR)
    own_id, shown = repeat_incident_id(incident.incident_id, now_ms), read_afresh(incident, found.reading, now_ms)
    ahead = replace(incident, incident_id=own_id, action=begun, evidence=shown, time_ms=now_ms)
    with _telling(case) as sink:
        sink.tell(ahead)
        came_to = write(case.admin, ahead, spec)
        report = replace(begun, result=came_to.result, last_stable_offset_after=came_to.stable_after)
        if came_to.is_denied:
            report = replace(report, decision=Decision.REFUSED, refusal=Refusal.NOT_AUTHORIZED, result=None)
        after = updated(ahead, wall_clock_ms(), action=report)
        try:
            sink.tell(after)
            if came_to.is_closed:
                sink.tell(resolved(after, wall_clock_ms(), _end(spec, came_to)))
        except SinkError as exc:  # the user must still see the result
            untold = f"{came_to.detail or 'closed'}; but the event could not be delivered: {exc}"
            came_to = replace(came_to, detail=untold)
    return Refused(Refusal.NOT_AUTHORIZED, came_to.detail or "") if came_to.is_denied else came_to


def _end(spec: AbortSpec, came_to: MarkerResult) -> Resolution:
    """The resolution: how the marker that closed the transaction, ours or not, decided the data."""
    end, marker = no_longer_open(wall_clock_ms(), came_to.detail or _BY_HAND), came_to.closed_by
    if marker is None:
        return end
    # No live transaction has the marker's epoch (the abort would be refused): only an administrator can repeat it.
    by = (
        EndedBy.TXNWATCH
        if came_to.is_ours
        else EndedBy.ADMINISTRATOR
        if marker.producer_epoch == spec.marker.producer_epoch
        else EndedBy.COORDINATOR
    )
    how = EndKind.COMMITTED if marker.commit else EndKind.ABORTED
    return replace(end, how=how, by=by, marker_offset=marker.offset)


class _Telling:
    def __init__(self, sink: KafkaEventsTopic | None) -> None:
        self._sink = sink

    def tell(self, event: IncidentEvent) -> None:
        if self._sink is not None:
            self._sink.publish([fitting(event)])


@contextlib.contextmanager
def _telling(case: ManualCase) -> Iterator[_Telling]:
    """The writer to the events topic; a cluster that is not watched has no such topic, and it is not created."""
    if case.events.name not in case.cluster.refresh().topics:
        yield _Telling(None)
        return
    with contextlib.closing(
        KafkaEventsTopic(case.config, case.events.name, case.events.encoding, keys=case.events.keys)
    ) as sink:
        yield _Telling(sink)
