"""The abort by hand: finds one hanging transaction and its outcome, ends it, and publishes the events.

It has the proof, the rules and the protocol of the automatic abort, with the policy of an operator. It decides only by
what the brokers and the logs show, never by the events topic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from txnwatch.sinks.incidents.confirm import confirm_spans
from txnwatch.sinks.incidents.event_builder import Origin, span_event
from txnwatch.sinks.incidents.own_findings import read_anew
from txnwatch.sinks.incidents.search import Search
from txnwatch.state.abort.case import AbortPolicy, Case, ProvenHang, Usage, operator_policy, proven
from txnwatch.state.abort.protocol import (
    BY_HAND,
    MarkerResult,
    action,
    announcement,
    closed,
    is_own_marker,
    not_written,
    open_until,
    reported,
    resolution,
    still_open_or_unreadable,
    with_answer,
)
from txnwatch.state.abort.rules import AbortSpec, Refused, decide_abort, partition_of, unless_outcome_changed
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.model.errors import BrokerError, SinkError, TxnwatchError
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import Action, Decision, IncidentEvent, Initiator, Refusal, resolved, updated
from txnwatch.state.model.ports import PartitionReading, TransactionAdmin
from txnwatch.state.model.values import Offset, ProducerId, TimestampMs, TopicPartition

# Runs the protocol of an abort (state/abort/protocol.py) for one transaction: announce, write, read again, report.
#
# The automatic abort and the abort by hand share this code.

_NOT_DELIVERED = "the event that announces it could not be delivered"


class Performed(NamedTuple):
    """The end of the protocol: the last event, and the result; None if no marker was sent."""

    event: IncidentEvent
    result: MarkerResult | None


@dataclass(frozen=True, slots=True)
class MarkerProtocol:
    """Ends one transaction.

    Attributes:
        publish: publishes an event; returns whether the events topic has it.
        obstacle: called after the announcement, right before the marker; returns why it must not be written, or None.
        before_write: called directly before the marker is written.
    """

    admin: TransactionAdmin
    publish: Callable[[IncidentEvent], bool]
    now_ms: Callable[[], TimestampMs]
    obstacle: Callable[[], str | None] = lambda: None
    before_write: Callable[[], None] = lambda: None

    def run(self, incident: IncidentEvent, spec: AbortSpec, begun: Action, reading: PartitionReading) -> Performed:
        """Announces the marker, writes it, reads the partition again and reports; `reading` is the fresh read."""
        announced = announcement(incident, begun, reading)
        why = None if self.publish(announced) else _NOT_DELIVERED
        why = why or self.obstacle()
        if why is not None:
            return Performed(self._report(announced, not_written(begun, why)), None)
        self.before_write()
        result = write(self.admin, announced, spec)
        return Performed(self._report(announced, reported(begun, result)), result)

    def _report(self, announced: IncidentEvent, action: Action) -> IncidentEvent:
        event = updated(replace(announced, action=action), self.now_ms())
        self.publish(event)
        return event


def write(admin: TransactionAdmin, incident: IncidentEvent, spec: AbortSpec) -> MarkerResult:
    """Writes the marker and reads what has closed the transaction."""
    marker = spec.marker
    problem = admin.write_marker(marker)
    found = with_answer(read_after(admin, incident, commit=marker.commit), problem)
    if problem is not None or found.closed_by is None:
        return found
    above = found.closed_by.offset + 1
    next_one = admin.closing_marker(marker.partition, marker.producer_id, above, above)
    # That none follows proves something only if the log can still be read.
    last = read_after(admin, incident, commit=marker.commit)
    is_ours = is_own_marker(marker, found.closed_by, next_one) and last.closed_by == found.closed_by
    return replace(last, is_ours=is_ours)


def read_after(admin: TransactionAdmin, incident: IncidentEvent, *, commit: bool) -> MarkerResult:
    """Whether the incident's transaction is still open at its leader, or closed by a marker of the kind `commit`."""
    partition = partition_of(incident)
    reading = admin.read_partitions([partition])[partition]
    found = still_open_or_unreadable(incident, reading)
    if found is not None:
        return found
    assert incident.txn_start_offset is not None
    end = open_until(incident, reading)
    marker = admin.closing_marker(partition, incident.producer_id, incident.txn_start_offset, end)
    return closed(marker, reading, commit=commit)


Publish = Callable[[IncidentEvent], None]


@dataclass(frozen=True, slots=True)
class ManualTarget:
    """The transaction to end, and by which marker; exactly one of `start_offset` and `producer_id` is given."""

    partition: TopicPartition
    start_offset: Offset | None
    producer_id: ProducerId | None
    is_commit: bool
    may_lose: bool

    def is_wanted(self, span: SpanCandidate) -> bool:
        """Whether an open span is the requested one."""
        return span.span.start_offset == self.start_offset or span.producer_id == self.producer_id

    @property
    def policy(self) -> AbortPolicy:
        """The policy of the decision."""
        return operator_policy(commit=self.is_commit, may_lose=self.may_lose)


class FoundHang(NamedTuple):
    """The hanging transaction as an incident, its proof from a first read, and the fresh read."""

    incident: IncidentEvent
    evidence: ProvenHang
    confirmation: SpanConfirmation


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
        candidate, first = self._found()
        self.pause()
        second, now_ms = self._confirmed(candidate), self.now_ms()
        evidence = proven(candidate, first, None, None, now_ms)
        event = span_event(self.origin, candidate, first, None, now_ms, evidence.known)
        return FoundHang(event, evidence, second)

    def decide(self, evidence: ProvenHang, confirmation: SpanConfirmation) -> AbortSpec | Refused:
        """The decision of the automatic abort, with the policy of an operator."""
        return decide_abort(Case(evidence, confirmation, self.target.policy, Usage(), self.now_ms()))

    def end(self, incident: IncidentEvent, evidence: ProvenHang, publish: Publish) -> MarkerResult | Refused:
        """Reads once more, because the operator may have waited, and runs the protocol.

        Raises:
            SinkError: the announcement could not be published; no marker was written.
        """
        again, found = read_anew(self.admin, evidence, self._confirmed(evidence.candidate))
        spec = unless_outcome_changed(evidence, again, self.decide(again, found))
        if isinstance(spec, Refused):
            return spec
        assert found.reading is not None
        begun = action(
            Decision.COMMIT if self.target.is_commit else Decision.ABORT,
            self.operator,
            self.now_ms(),
            detail=BY_HAND,
            spec=spec,
            stable_before=incident.last_stable_offset,
            initiator=Initiator.OPERATOR,
        )
        delivery = _Delivery(publish)
        event, result = MarkerProtocol(self.admin, delivery.publish, self.now_ms).run(
            incident, spec, begun, found.reading
        )
        assert result is not None, "an announcement that is not delivered is an error"
        if result.is_closed:
            now_ms = self.now_ms()
            delivery.publish(resolved(event, now_ms, resolution(spec.marker, result, now_ms)))
        if result.is_denied:
            return Refused(Refusal.NOT_AUTHORIZED, result.detail or "")
        return delivery.with_problem(result)

    def _found(self) -> tuple[SpanCandidate, SpanConfirmation]:
        """The search of find-hanging, for the requested transaction only."""
        partition = self.target.partition
        found = self.search(partition, self.target.is_wanted)
        for candidate, proof in found.hanging:
            if candidate.view is None and found.not_checked:
                why = "; ".join(f"{what}: {why}" for what, why in found.not_checked.items())
                raise BrokerError(f"{partition}: the owner of the transaction could not be read: {why}")
            return candidate, proof
        for _, described in found.covered:
            name, state = described.transactional_id, described.state
            raise TxnwatchError(f"{partition}: it does not hang: {name} is {state} and holds the partition")
        for _, why in found.unproven:
            raise BrokerError(f"{partition}: could not read whether it hangs: {why}")
        absence = self.absence(partition)
        if absence is not None:
            raise BrokerError(f"{partition}: {absence}")
        reading = found.readings[partition]
        if reading.problem is not None:
            raise BrokerError(f"{partition}: expected its leader to describe its producers, found: {reading.problem}")
        rows = [row for row in reading.producers if row.txn_start_offset is not None]
        listed = sorted(f"one from offset {row.txn_start_offset} (producer id {row.producer_id})" for row in rows)
        raise TxnwatchError(
            f"{partition}: expected the requested open transaction, found {', '.join(listed) or 'none'}"
        )

    def _confirmed(self, candidate: SpanCandidate) -> SpanConfirmation:
        ((_, found),) = confirm_spans(self.admin, [candidate])
        if found.answer is Answer.REFUTED:
            raise TxnwatchError(f"{self.target.partition}: it does not hang: {found.why}")
        if found.answer is Answer.UNKNOWN:
            raise BrokerError(f"{self.target.partition}: could not read whether it hangs: {found.why}")
        return found


class _Delivery:
    """Publishes the events of one abort. After the announcement an error is kept: the operator must see the result."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self._is_announced = False
        self._problem: SinkError | None = None

    def publish(self, event: IncidentEvent) -> bool:
        """Returns whether the event is published; after a problem, nothing more is."""
        if self._problem is not None:
            return False
        try:
            self._publish(event)
        except SinkError as exc:
            if not self._is_announced:
                raise
            self._problem = exc
            return False
        self._is_announced = True
        return True

    def with_problem(self, result: MarkerResult) -> MarkerResult:
        """The result, with the problem of its event if there is one."""
        if self._problem is None:
            return result
        detail = f"{result.detail or 'closed'}; but the event could not be delivered: {self._problem}"
        return replace(result, detail=detail)
