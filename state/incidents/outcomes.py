"""What an open incident learns later: its outcome, an outcome that no longer counts, and the name of its owner.

An incident is published without waiting for them. A missing answer is requested again after growing pauses, for a
limited number of spans per batch, first those that have waited longest. A read that is not finished continues in the
next batch. An outcome that cannot be known is not requested again until the state emits other values for the span, and
the incident says why. An outcome is published only if a fresh read shows the same data that this process confirmed
before.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace

from txnwatch.state.abort.case import ProvenHang, agreed, is_same_data, unconfirmed
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.outcome import (
    Outcome,
    is_settled,
    is_without_outcome,
    known_outcome,
    outcome_basis,
    with_outcome,
)
from txnwatch.state.incidents.book import Book
from txnwatch.state.incidents.commands import data_of, end_hanging
from txnwatch.state.incidents.confirm import confirm_spans
from txnwatch.state.incidents.own_findings import key_of
from txnwatch.state.incidents.wanted import Change, Plan, ReadFormerOwners, ReadHistories, ask
from txnwatch.state.model.findings import Finding, SpanCandidate
from txnwatch.state.model.incident import ExpectedOutcome, IncidentEvent, updated
from txnwatch.state.model.ports import SpanHistory, SpanStart
from txnwatch.state.model.transaction import DescribedTransaction
from txnwatch.state.model.values import NO_ATTEMPT, Attempts, TimestampMs
from txnwatch.state.model.verdicts import Reason, Verdict

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

    book: Book
    _awaited: dict[str, _Awaited] = field(default_factory=dict)
    _settled: dict[str, Hashable] = field(default_factory=dict)

    def opened(self, incident: IncidentEvent, candidate: SpanCandidate, outcome: Outcome) -> None:
        """Registers a published incident whose outcome is not known."""
        if outcome.outcome == ExpectedOutcome.UNKNOWN:
            self._take(incident, _Awaited(candidate), outcome, incident.time_ms)

    def found(self, emitted: Iterable[Finding], now_ms: TimestampMs) -> Plan[None]:
        """Changes incidents whose outcomes are now known, or certainly not."""
        for candidate in emitted:
            if isinstance(candidate, SpanCandidate):
                known = self.book.open_about(candidate)
                if is_without_outcome(known):
                    self._repeated(known.incident_id, candidate, now_ms)
        due = [incident for incident in self._due(now_ms) if self._evidence(incident) is not None]
        starts = {incident.incident_id: self._start(incident) for incident in due}
        histories = (yield from ask(ReadHistories(list(starts.values())))) if due else {}
        readable: list[tuple[IncidentEvent, SpanHistory]] = []
        for incident in due:
            history = histories[starts[incident.incident_id]]
            if history.problem is None:
                readable.append((incident, history))
            else:
                self._awaited[incident.incident_id].later(now_ms, is_under_way=history.is_being_read)
        confirmed = yield from confirm_spans([self._awaited[one.incident_id].candidate for one, _ in readable])
        for (incident, history), (_, fresh) in zip(readable, confirmed, strict=True):
            outcome = self._judge(incident, replace(fresh, history=history), now_ms)
            is_answered = fresh.answer is Answer.CONFIRMED and is_settled(incident, outcome)
            if is_answered or outcome.outcome != ExpectedOutcome.UNKNOWN:
                yield Change(self._next(incident, outcome, fresh.description, now_ms), may_wait=True)

    def withdrawn(self, now_ms: TimestampMs) -> Plan[None]:
        """Changes incidents with a published outcome that no longer counts."""
        for incident in self.book.open_incidents:
            if incident.verdict == Verdict.HANGING and self.book.is_found(incident):
                found = self.book.as_found(incident)
                if found.expected_outcome == ExpectedOutcome.UNKNOWN != incident.expected_outcome:
                    yield Change(updated(found, now_ms))

    def _repeated(self, incident_id: str, candidate: SpanCandidate, now_ms: TimestampMs) -> None:
        """Handles a repeated candidate of an open incident, which may have more information than before."""
        known = self._awaited.get(incident_id)
        if known is not None:
            known.candidate = candidate
        elif self._settled.get(incident_id) != outcome_basis(candidate):
            self._awaited[incident_id] = _Awaited(candidate, Attempts(0, now_ms))

    def _due(self, now_ms: TimestampMs) -> list[IncidentEvent]:
        known = self.book.store.known
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
        return self.book.findings.get(key_of(self._awaited[incident.incident_id].candidate))

    def _judge(self, incident: IncidentEvent, fresh: SpanConfirmation, now_ms: TimestampMs) -> Outcome:
        awaited = self._awaited.pop(incident.incident_id)
        if is_same_data(self.book.findings.get(key_of(awaited.candidate)), fresh):
            evidence = self.book.findings.confirmed(awaited.candidate, fresh, now_ms)
            outcome = agreed(known_outcome(awaited.candidate, fresh), evidence)
        else:
            outcome = unconfirmed(fresh)
        if outcome.outcome == ExpectedOutcome.UNKNOWN:
            self._take(incident, awaited, outcome, now_ms)
        return outcome

    def _next(
        self, incident: IncidentEvent, outcome: Outcome, owner: DescribedTransaction | None, now_ms: TimestampMs
    ) -> IncidentEvent:
        data = data_of(incident)._replace(expected_outcome=outcome.outcome)
        command = end_hanging(self.book.origin, data, owner)
        return updated(replace(with_outcome(incident, outcome), suggested_command=command), now_ms)

    def _take(self, incident: IncidentEvent, awaited: _Awaited, outcome: Outcome, now_ms: TimestampMs) -> None:
        if not outcome.is_awaited:
            self._settled[incident.incident_id] = outcome_basis(awaited.candidate)
        else:
            awaited.later(now_ms, is_under_way=outcome.is_being_read)
            self._awaited[incident.incident_id] = awaited


@dataclass(slots=True)
class OwnerSearch:
    """Names the owner of a hang that no coordinator knows: its transactional id has expired, and the log still has it.

    The log is read once for each incident. If it could not be read to its end, it is read again after growing pauses.

    Attributes:
        may_read: whether the coordinators' log can be read; without it no owner is found.
    """

    book: Book
    may_read: bool
    _settled: set[str] = field(default_factory=set)
    _attempts: Attempts = NO_ATTEMPT

    def found(self, now_ms: TimestampMs) -> Plan[None]:
        """Changes incidents whose owners are known now."""
        nameless = {one.incident_id: one for one in self.book.open_incidents if self._is_nameless(one)}
        self._settled &= nameless.keys()
        left = [one for one in nameless.values() if one.incident_id not in self._settled]
        if not self.may_read or not left or now_ms < self._attempts.due_ms:
            return
        answer = yield from ask(ReadFormerOwners({one.producer_id for one in left}))
        self._attempts = NO_ATTEMPT if answer.problem is None else self._attempts.next(now_ms)
        for incident in left:
            if incident.producer_id in answer.names:
                self._settled.add(incident.incident_id)
                name = answer.names[incident.producer_id]
                if name is not None:
                    named = updated(replace(incident, transactional_id=name), now_ms)
                    yield Change(self.book.as_found(named), may_wait=True)

    def _is_nameless(self, incident: IncidentEvent) -> bool:
        is_without_owner = incident.transactional_id is None and incident.reason == Reason.NO_TRANSACTIONAL_ID
        return is_without_owner and self.book.is_found(incident)
