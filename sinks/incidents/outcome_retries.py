"""Finds outcomes that were not known when their incident was opened, by retries with backoff.

An incident is published without waiting for its outcome. A missing answer is requested again after growing pauses, for
a limited number of spans per batch, first those that have waited longest. A read that is not finished continues in the
next batch. An outcome that cannot be known is not requested again until the state emits other values for the span, and
the incident says why. An outcome is published only if a fresh read shows the same data that this process confirmed
before.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from txnwatch.sinks.incidents.commands import Origin, end_hanging
from txnwatch.sinks.incidents.confirm import confirm_spans
from txnwatch.sinks.incidents.follow_up import where
from txnwatch.sinks.incidents.incident_store import IncidentStore
from txnwatch.sinks.incidents.own_findings import Findings, key_of
from txnwatch.state.abort.case import ProvenHang
from txnwatch.state.abort.proven_outcome import agreed, is_same_data, unconfirmed
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.known_outcome import (
    Outcome,
    is_settled,
    is_without_outcome,
    known_outcome,
    outcome_basis,
    with_outcome,
)
from txnwatch.state.model.backoff import NO_ATTEMPT, Attempts
from txnwatch.state.model.findings import Finding, SpanCandidate
from txnwatch.state.model.incident import IncidentEvent, updated
from txnwatch.state.model.incident_payload import ExpectedOutcome
from txnwatch.state.model.ports import SpanHistory, SpanStart, TransactionAdmin
from txnwatch.state.model.quantities import TimestampMs

AT_A_TIME = 200


@dataclass(slots=True)
class _Awaited:
    """A span whose outcome may still be found, with its latest candidate."""

    candidate: SpanCandidate
    attempts: Attempts = NO_ATTEMPT

    def later(self, now_ms: TimestampMs, *, is_under_way: bool = False) -> None:
        self.attempts = self.attempts._replace(due_ms=now_ms) if is_under_way else self.attempts.next(now_ms)


@dataclass(slots=True)
class OutcomeRetries:
    """Open incidents whose outcome is awaited, and those whose outcome cannot be known."""

    origin: Origin
    admin: TransactionAdmin
    store: IncidentStore
    findings: Findings
    _awaited: dict[str, _Awaited] = field(default_factory=dict)
    _settled: dict[str, Hashable] = field(default_factory=dict)

    def opened(self, incident: IncidentEvent, candidate: SpanCandidate, outcome: Outcome) -> None:
        """Registers a published incident whose outcome is not known."""
        if outcome.outcome == ExpectedOutcome.UNKNOWN:
            self._take(incident, _Awaited(candidate), outcome, incident.time_ms)

    def found(self, emitted: Iterable[Finding], now_ms: TimestampMs) -> Iterator[IncidentEvent]:
        """The next events of incidents whose outcomes are now known."""
        for candidate in emitted:
            if isinstance(candidate, SpanCandidate):
                known = self.store.open_span(candidate.span.topic_id, candidate.partition, candidate.producer_id)
                if is_without_outcome(known):
                    self._repeated(known.incident_id, candidate, now_ms)
        due = [incident for incident in self._due(now_ms) if self._evidence(incident) is not None]
        starts = {incident.incident_id: self._start(incident) for incident in due}
        histories = self.admin.read_span_histories(starts.values()) if due else {}
        readable: list[tuple[IncidentEvent, SpanHistory]] = []
        for incident in due:
            history = histories[starts[incident.incident_id]]
            if history.problem is None:
                readable.append((incident, history))
            else:
                self._awaited[incident.incident_id].later(now_ms, is_under_way=history.is_being_read)
        candidates = [self._awaited[incident.incident_id].candidate for incident, _ in readable]
        for (incident, history), (_, fresh) in zip(readable, confirm_spans(self.admin, candidates), strict=True):
            outcome = self._judge(incident, replace(fresh, history=history), now_ms)
            is_answered = fresh.answer is Answer.CONFIRMED and is_settled(incident, outcome)
            if is_answered or outcome.outcome != ExpectedOutcome.UNKNOWN:
                yield self.store.enter(self._next(incident, outcome, now_ms))

    def _repeated(self, incident_id: str, candidate: SpanCandidate, now_ms: TimestampMs) -> None:
        """Handles a repeated candidate of an open incident, which may have more information than before."""
        known = self._awaited.get(incident_id)
        if known is not None:
            known.candidate = candidate
        elif self._settled.get(incident_id) != outcome_basis(candidate):
            self._awaited[incident_id] = _Awaited(candidate, Attempts(0, now_ms))

    def _due(self, now_ms: TimestampMs) -> list[IncidentEvent]:
        known = self.store.known
        self._awaited = {one: awaited for one, awaited in self._awaited.items() if is_without_outcome(known.get(one))}
        self._settled = {one: basis for one, basis in self._settled.items() if is_without_outcome(known.get(one))}
        due = ((awaited.attempts.due_ms, one) for one, awaited in self._awaited.items())
        line = sorted((due_ms, one) for due_ms, one in due if due_ms <= now_ms)
        return [known[one] for _, one in line[:AT_A_TIME]]

    def _start(self, incident: IncidentEvent) -> SpanStart:
        """The start of the span that this process has found; the one in an event may be forged."""
        candidate, evidence = self._awaited[incident.incident_id].candidate, self._evidence(incident)
        assert evidence is not None
        return SpanStart(candidate.partition, candidate.producer_id, evidence.start_offset)

    def _evidence(self, incident: IncidentEvent) -> ProvenHang | None:
        return self.findings.get(key_of(self._awaited[incident.incident_id].candidate))

    def _judge(self, incident: IncidentEvent, fresh: SpanConfirmation, now_ms: TimestampMs) -> Outcome:
        awaited = self._awaited.pop(incident.incident_id)
        if is_same_data(self.findings.get(key_of(awaited.candidate)), fresh):
            evidence = self.findings.confirmed(awaited.candidate, fresh, now_ms)
            outcome = agreed(known_outcome(awaited.candidate, fresh), evidence)
        else:
            outcome = unconfirmed(fresh)
        if outcome.outcome == ExpectedOutcome.UNKNOWN:
            self._take(incident, awaited, outcome, now_ms)
        return outcome

    def _next(self, incident: IncidentEvent, outcome: Outcome, now_ms: TimestampMs) -> IncidentEvent:
        start = incident.txn_start_offset
        assert start is not None
        command = end_hanging(self.origin, where(incident), start, outcome.outcome)
        return updated(replace(with_outcome(incident, outcome), suggested_command=command), now_ms)

    def _take(self, incident: IncidentEvent, awaited: _Awaited, outcome: Outcome, now_ms: TimestampMs) -> None:
        if not outcome.is_awaited:
            self._settled[incident.incident_id] = outcome_basis(awaited.candidate)
        else:
            awaited.later(now_ms, is_under_way=outcome.is_being_read)
            self._awaited[incident.incident_id] = awaited
