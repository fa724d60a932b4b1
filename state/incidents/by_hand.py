"""The abort by hand: finds one hanging transaction and its outcome, ends it, and publishes the events.

It has the proof, the rules and the protocol of the automatic abort, with the policy of an operator. It decides only by
what the brokers and the logs show, never by the events topic. sinks/abort/run_abort.py carries out the plans.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from txnwatch.state.abort.abort_policy import AbortPolicy
from txnwatch.state.abort.rules import AbortSpec, Case, Refused, Usage, decide_abort
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.proven_hang import ProvenHang, proven
from txnwatch.state.evidence.screening import Search
from txnwatch.state.incidents.abort_protocol import (
    BY_HAND,
    FRESH_READ_BY_HAND_MS,
    MarkerProtocol,
    MarkerResult,
    action,
    resolution,
    too_old,
)
from txnwatch.state.incidents.claims import found_too
from txnwatch.state.incidents.confirm import confirm_spans, read_anew
from txnwatch.state.incidents.event_builder import named, span_event
from txnwatch.state.incidents.wanted import Now, Plan, Wanted, ask
from txnwatch.state.model.errors import BrokerError, SinkError, TxnwatchError
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import (
    ActionResult,
    Decision,
    ExpectedOutcome,
    IncidentEvent,
    Initiator,
    Refusal,
    resolved,
)
from txnwatch.state.model.ports import NotSent
from txnwatch.state.model.values import NO_TIME, Offset, PartitionOffset, ProducerId, TopicPartition
from txnwatch.state.telling.commands import Origin
from txnwatch.state.text import cut

# What the abort by hand wants beside fresh reads. It publishes on the incident that a watch has opened, so nobody is
# paged a second time. Of the record on the topic it uses what identifies the incident, and the outcome if it is not
# known here. It decides by its own reads.
#
# Law: who has opened an incident ends it. Two writers of one end would end it twice. So once the marker may have closed
# the transaction, the command publishes nothing more on the incident of a watch: the watch does, or the next one.


@dataclass(frozen=True, slots=True)
class SearchPartition(Wanted[Search]):
    """The search of find-hanging, for the open spans of a partition that a filter selects."""

    partition: TopicPartition
    is_wanted: Callable[[SpanCandidate], bool]


@dataclass(frozen=True, slots=True)
class FindAbsence(Wanted[str | None]):
    """Why a partition is not shown; None if it is shown."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class PauseBetweenReads(Wanted[None]):
    """A wait between the two reads."""


@dataclass(frozen=True, slots=True)
class ReadOpenIncident(Wanted[IncidentEvent | None]):
    """The last event of the open incident about the same transaction on the events topic; None if there is none."""

    incident: IncidentEvent


@dataclass(frozen=True, slots=True)
class PublishAtOnce(Wanted[None]):
    """An event to publish now, unless its incident has ended.

    SinkError: it is not certain that it arrived, or another writer's event came first.
    """

    event: IncidentEvent


@dataclass(frozen=True, slots=True)
class ManualTarget:
    """The transaction to end, and by which marker; exactly one of `start_offset` and `producer_id` is given."""

    partition: TopicPartition
    start_offset: Offset | None
    producer_id: ProducerId | None
    is_commit: bool
    may_lose: bool
    may_be_unknown: bool

    def is_wanted(self, span: SpanCandidate) -> bool:
        """Whether an open span is the requested one."""
        return span.span.start_offset == self.start_offset or span.producer_id == self.producer_id

    @property
    def policy(self) -> AbortPolicy:
        """The policy of an operator: no waiting time, lists or budgets.

        `may_be_unknown` allows a marker for data whose outcome is unknown: the person knows it. `may_lose` allows this
        too, and an ABORT marker for data whose commit was acknowledged.
        """
        outcomes = {ExpectedOutcome.ABORT, ExpectedOutcome.NONE}
        if self.may_be_unknown or self.may_lose:
            outcomes.add(ExpectedOutcome.UNKNOWN)
        if self.may_lose:
            outcomes.add(ExpectedOutcome.COMMIT)
        return AbortPolicy(
            after_ms=NO_TIME,
            budget_per_hour=None,
            breaker_incidents=None,
            outcomes=frozenset(outcomes),
            commit=self.is_commit,
        )


class FoundHang(NamedTuple):
    """The hanging transaction as an incident, its proof from a first read, and the fresh read."""

    incident: IncidentEvent
    evidence: ProvenHang
    confirmation: SpanConfirmation


@dataclass(frozen=True, slots=True)
class AbortByHand:
    """Ends one transaction by hand; `operator` is the name of the user and the host, for the events."""

    target: ManualTarget
    origin: Origin
    operator: str

    def find(self) -> Plan[FoundHang]:
        """Finds the transaction by two reads; the second is the fresh read.

        Raises:
            TxnwatchError: there is no such open transaction, it does not hang, or a reading failed.
        """
        candidate, first = yield from self._found()
        yield PauseBetweenReads()
        second, now_ms = (yield from self._confirmed(candidate)), (yield from ask(Now()))
        evidence = proven(candidate, first, None, None, now_ms)
        opened = span_event(self.origin, candidate, first, None, now_ms, evidence.known)
        event = named(opened, self.origin.owners, self.origin.cluster)
        return FoundHang(event, evidence, second)

    def decide(self, evidence: ProvenHang, confirmation: SpanConfirmation) -> Plan[AbortSpec | Refused]:
        """The decision of the automatic abort, with the policy of an operator."""
        now_ms = yield from ask(Now())
        return decide_abort(Case(evidence, confirmation, self.target.policy, Usage(), now_ms))

    def end(self, incident: IncidentEvent, evidence: ProvenHang) -> Plan[MarkerResult | Refused]:
        """Reads once more, because the operator may have waited, and runs the protocol.

        Raises:
            SinkError: the announcement could not be published; no marker was written.
        """
        published = yield from ask(ReadOpenIncident(incident))
        read_ms = yield from ask(Now())
        confirmed = yield from self._confirmed(evidence.candidate)
        again, confirmation = yield from read_anew(evidence, confirmed)
        spec = _unless_outcome_changed(evidence, again, (yield from self.decide(again, confirmation)))
        spec = unless_published_otherwise(self.target, published, again.outcome, spec)
        if isinstance(spec, Refused):
            return spec
        assert confirmation.reading is not None
        begun = action(
            Decision.COMMIT if self.target.is_commit else Decision.ABORT,
            self.operator,
            (yield from ask(Now())),
            detail=BY_HAND if again.outcome is not ExpectedOutcome.UNKNOWN else _ACCEPTED,
            spec=spec,
            stable_before=incident.last_stable_offset,
            initiator=Initiator.OPERATOR,
        )
        shown = incident if published is None else _continues(published, incident)
        delivery = _Announced()
        protocol = MarkerProtocol(
            delivery.publish,
            lambda: too_old(read_ms, FRESH_READ_BY_HAND_MS),
            reports=lambda result: published is None or not _may_be_over(result),
            is_published=published is not None,
        )
        event, performed = yield from protocol.run(shown, spec, begun, confirmation.reading)
        result = _not_sent(event) if isinstance(performed, NotSent) else performed
        if published is None:
            now_ms = yield from ask(Now())
            yield from delivery.publish(resolved(event, now_ms, resolution(spec.marker, result, now_ms)))
        if result.is_denied:
            return Refused(Refusal.NOT_AUTHORIZED, result.detail or "")
        return delivery.with_problem(result)

    def _found(self) -> Plan[tuple[SpanCandidate, SpanConfirmation]]:
        """The search of find-hanging, for the requested transaction only."""
        partition = self.target.partition
        search = yield from ask(SearchPartition(partition, self.target.is_wanted))
        for candidate, proof in search.hanging:
            if candidate.view is None and search.not_checked:
                why = "; ".join(f"{what}: {why}" for what, why in search.not_checked.items())
                raise BrokerError(f"{partition}: the owner of the transaction could not be read: {why}")
            return candidate, proof
        for _, described in search.covered:
            name, state = described.transactional_id, described.state
            raise TxnwatchError(f"{partition}: it does not hang: {cut(name)} is {state} and holds the partition")
        for _, why in search.unproven:
            raise BrokerError(f"{partition}: could not read whether it hangs: {why}")
        absence = yield from ask(FindAbsence(partition))
        if absence is not None:
            raise BrokerError(f"{partition}: {absence}")
        reading = search.readings[partition]
        if reading.problem is not None:
            raise BrokerError(f"{partition}: expected its leader to describe its producers, found: {reading.problem}")
        rows = [row for row in reading.producers if row.txn_start_offset is not None]
        listed = sorted(f"one from offset {row.txn_start_offset} (producer id {row.producer_id})" for row in rows)
        none = "none"
        if self.target.start_offset is not None:
            place = PartitionOffset(partition, self.target.start_offset)
            none = f"none; `txnwatch explain {place}` tells what is at this offset"
        raise TxnwatchError(f"{partition}: expected the requested open transaction, found {', '.join(listed) or none}")

    def _confirmed(self, candidate: SpanCandidate) -> Plan[SpanConfirmation]:
        ((_, confirmation),) = yield from confirm_spans([candidate])
        if confirmation.answer is Answer.REFUTED:
            raise TxnwatchError(f"{self.target.partition}: it does not hang: {confirmation.why}")
        if confirmation.answer is Answer.UNKNOWN:
            raise BrokerError(f"{self.target.partition}: could not read whether it hangs: {confirmation.why}")
        return confirmation


# What a watcher has published, against the marker of a person who accepts an unknown outcome; by `is_commit`.
_REFUSED_BY_OTHERS: Final[dict[bool, dict[ExpectedOutcome, Refusal]]] = {
    False: {ExpectedOutcome.COMMIT: Refusal.OUTCOME_WAS_COMMIT},
    True: dict.fromkeys((ExpectedOutcome.ABORT, ExpectedOutcome.NONE), Refusal.COMMIT_NOT_PROVEN),
}


def unless_published_otherwise(
    target: ManualTarget, published: IncidentEvent | None, outcome: ExpectedOutcome, decision: AbortSpec | Refused
) -> AbortSpec | Refused:
    """A refusal if a watcher says that the end was of the other kind, and this reading does not know the outcome.

    Anyone who may write the events topic can say so: it prevents a marker, and never allows one.
    """
    if published is None or outcome is not ExpectedOutcome.UNKNOWN or isinstance(decision, Refused):
        return decision
    refusal = _REFUSED_BY_OTHERS[target.is_commit].get(published.expected_outcome)
    if refusal is None or (refusal is Refusal.OUTCOME_WAS_COMMIT and target.may_lose):
        return decision
    return Refused(
        refusal, f"{published.outcome_by or 'a watcher'} has published the outcome {published.expected_outcome}"
    )


_ACCEPTED = f"{BY_HAND}: the outcome is unknown, and the operator has accepted that"


def _may_be_over(result: MarkerResult) -> bool:
    """Whether the transaction is closed, or may be."""
    return result.is_closed or (result.result is ActionResult.UNKNOWN and not result.is_denied)


def _not_sent(event: IncidentEvent) -> MarkerResult:
    """The result of an abort whose marker no broker has received."""
    assert event.action is not None
    detail = f"{event.action.detail}; run the command again, nearer to the brokers if they answer slowly"
    return MarkerResult(ActionResult.FAILED, detail)


def _continues(published: IncidentEvent, event: IncidentEvent) -> IncidentEvent:
    """What was found here, as the next event of a watch's incident; an outcome that is not known here stays."""
    ours = replace(
        found_too(published, event),
        cluster_name=published.cluster_name,
        consumer_groups=published.consumer_groups,
        waiting_groups=published.waiting_groups,
        connect=published.connect,
        lso_standing_ms=published.lso_standing_ms,
        cleanup_policy=published.cleanup_policy,
        transactional_id=event.transactional_id or published.transactional_id,
    )
    if event.expected_outcome != ExpectedOutcome.UNKNOWN:
        return ours
    return replace(
        ours,
        expected_outcome=published.expected_outcome,
        outcome_doubt=published.outcome_doubt,
        outcome_detail=published.outcome_detail,
    )


class _Announced:
    """Publishes the events of one abort. After the announcement an error is kept: the operator must see the result."""

    def __init__(self) -> None:
        self._is_announced = False
        self._problem: SinkError | None = None

    def publish(self, event: IncidentEvent) -> Plan[bool]:
        """Returns whether the event is published; after a problem, nothing more is."""
        if self._problem is not None:
            return False
        try:
            yield PublishAtOnce(event)
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


def _unless_outcome_changed(shown: ProvenHang, again: ProvenHang, decision: AbortSpec | Refused) -> AbortSpec | Refused:
    """The decision on a second read; a refusal if the outcome is no longer the one that the operator has seen."""
    if again.outcome == shown.outcome or isinstance(decision, Refused):
        return decision
    detail = f"the outcome was {shown.outcome}, and is {again.outcome} now: run the command again to see it"
    return Refused(Refusal.OUTCOME_UNKNOWN, detail)
