"""Compares events on the events topic with what this process has found. A claim never replaces a finding.

Anyone who may write the topic can write an `opened` about a healthy transaction, a `resolved` about a hanging one, any
outcome and any command. So an event of another writer causes a fresh read at once. An incident that was reported as
resolved and still hangs is opened again under another id. An incident that was reported as open and is not ends. If an
event differs from this process's finding in a relevant field, the next event has the finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from txnwatch.sinks.incidents.confirm import CANDIDATES_AT_A_TIME, confirm_spans, confirm_transactions
from txnwatch.sinks.incidents.event_builder import Origin, suggested
from txnwatch.sinks.incidents.incident_store import IncidentStore
from txnwatch.sinks.incidents.own_findings import Findings
from txnwatch.state.evidence import ending
from txnwatch.state.evidence.confirmation import Answer
from txnwatch.state.evidence.ending import is_premature
from txnwatch.state.evidence.outcome import unknown
from txnwatch.state.incidents.event_order import (
    Response,
    candidate_of,
    claimed,
    is_doubtful_span,
    is_doubtful_transaction,
    is_own,
    is_same_span,
    keeps_content,
    outcome_as_found,
    response_to,
    with_claim,
)
from txnwatch.state.model.findings import SpanCandidate, TransactionCandidate, TransactionMoved
from txnwatch.state.model.incident import (
    Action,
    IncidentEvent,
    OutcomeDoubt,
    Resolution,
    SpanKey,
    resolved,
    transaction_incident_id,
    updated,
)
from txnwatch.state.model.ports import TransactionAdmin
from txnwatch.state.model.transaction import DescribedTransaction, TransactionView
from txnwatch.state.model.values import ProducerId, TimestampMs


@dataclass(slots=True)
class Claims:
    """Compares events of other writers with findings of this process.

    Attributes:
        ended_by_others: the spans whose incident an event of another writer has ended; they are checked again.
    """

    origin: Origin
    admin: TransactionAdmin
    findings: Findings
    now_ms: Callable[[], TimestampMs]
    store: IncidentStore = field(init=False)
    _acted: dict[str, Action] = field(default_factory=dict)
    ended_by_others: dict[SpanKey, None] = field(default_factory=dict)
    _transactions_ended_by_others: dict[str, TransactionCandidate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = IncidentStore(self.origin.cluster_id, self.ours, self.is_found)

    def is_found(self, incident: IncidentEvent) -> bool:
        """Whether this process has found the subject of the incident itself, and built the incident's content."""
        if incident.topic is None:
            return incident.incident_id in self.findings.transactions
        key = incident.span
        if key is None:
            return False
        evidence = self.findings.get(key)
        start = evidence.start_offset if evidence is not None else None
        return is_own(incident, start, self.findings.incident_of(key))

    def as_found(self, event: IncidentEvent) -> IncidentEvent:
        """A hanging event with the outcome that this process has found; the one in the event may be forged."""
        evidence = self.findings.get(event.span) if event.span is not None and self.is_found(event) else None
        found = outcome_as_found(
            event, evidence.known if evidence is not None else unknown(OutcomeDoubt.NOT_FOUND_HERE)
        )
        if event.expected_outcome == found.expected_outcome:
            return found
        return replace(found, suggested_command=suggested(self.origin, found))

    def ours(self, event: IncidentEvent) -> IncidentEvent:
        """What to store of an event from the topic: its content only if this process has none of its own.

        The subject of an incident never changes. Of an event with another subject, or about an incident of this
        process's own, only sequence, status, time, action and resolution are used.
        """
        known = self.store.known.get(event.incident_id)
        acted = self._acted.get(event.incident_id)
        if known is not None and keeps_content(event, known, is_found=self.is_found(known)):
            return with_claim(known, event, acted, self.now_ms())
        command = suggested(self.origin, self.as_found(event))
        return replace(claimed(event, known, acted, self.now_ms()), suggested_command=command)

    def acted(self, event: IncidentEvent) -> None:
        """Remembers a decision of this process, as it is published."""
        if event.action is not None:
            self._acted[event.incident_id] = event.action

    def compare(self, event: IncidentEvent, now_ms: TimestampMs) -> IncidentEvent | None:
        """Handles a new event of another writer; returns a correction if it differs from what was found here."""
        known = self.store.known[event.incident_id]
        response = response_to(event, known, is_found=self.is_found(known))
        if response is Response.READ_AGAIN:
            self._doubt(known)
        elif response is Response.CORRECT:
            return self.store.enter(self.as_found(updated(known, now_ms)))
        return None

    def transaction_id(
        self, producer_id: ProducerId, view: TransactionView, finding: TransactionCandidate | TransactionMoved
    ) -> str:
        """The id of the first incident about a transaction."""
        cluster_id, name = self.origin.cluster_id, view.transactional_id
        return transaction_incident_id(cluster_id, name, producer_id, view.start_ms, finding.verdict)

    def is_published(self, event: IncidentEvent) -> bool:
        """Whether the same subject was published before, and not another subject under its id."""
        known = self.store.known.get(event.incident_id)
        if known is None:
            return self.store.has_ended(event.incident_id) and not self.store.is_spent(event.incident_id)
        return is_same_span(known, event)

    def end(self, incident: IncidentEvent, resolution: Resolution, now_ms: TimestampMs) -> IncidentEvent:
        """The `resolved` event of an incident whose end this process has found, with the outcome that it has found."""
        as_found = self.as_found(incident)
        self.findings.transactions.pop(incident.incident_id, None)
        self._acted.pop(incident.incident_id, None)
        return self.store.enter(resolved(as_found, now_ms, resolution))

    def _doubt(self, incident: IncidentEvent) -> None:
        candidate = self.findings.transactions.pop(incident.incident_id, None)
        if candidate is not None:
            self._transactions_ended_by_others[
                self.transaction_id(candidate.producer_id, candidate.view, candidate)
            ] = candidate
        elif incident.span is not None:
            self.ended_by_others[incident.span] = None

    def doubt_spent(self, ends: Iterable[IncidentEvent]) -> None:
        """Plans fresh reads for incidents that end because their ids are spent: they may still hang."""
        for incident in ends:
            self._doubt(incident)

    def gone_on(self) -> list[SpanCandidate | TransactionCandidate]:
        """Candidates that others have ended and a fresh read confirms; read again until they are open, or over."""
        return [*self._spans_gone_on(), *self._transactions_gone_on()]

    def _spans_gone_on(self) -> Iterator[SpanCandidate]:
        left = [key for key in self.ended_by_others if not self._is_published_by_us(key)]
        found = {key: self.findings.get(key) for key in left}
        asked = [evidence.candidate for evidence in found.values() if evidence is not None][:CANDIDATES_AT_A_TIME]
        self.ended_by_others = {key: None for key, evidence in found.items() if evidence is not None}
        for candidate, now in confirm_spans(self.admin, asked):
            key = (candidate.span.topic_id, candidate.partition, candidate.producer_id)
            if now.answer is Answer.CONFIRMED:
                yield candidate
            elif now.answer is Answer.REFUTED:
                del self.ended_by_others[key]
                self.findings.over(key)

    def _is_published_by_us(self, key: SpanKey) -> bool:
        known = self.store.open_span(*key)
        return known is not None and self.is_found(known)

    @property
    def has_doubts(self) -> bool:
        """Whether incidents that others have ended still need a fresh read."""
        return bool(self.ended_by_others or self._transactions_ended_by_others)

    def _transactions_gone_on(self) -> Iterator[TransactionCandidate]:
        left = {
            one: candidate
            for one, candidate in self._transactions_ended_by_others.items()
            if self.store.open_one(one) is None
        }
        self._transactions_ended_by_others = left
        asked = dict(list(left.items())[:CANDIDATES_AT_A_TIME])
        answers = confirm_transactions(self.admin, list(asked.values()))
        for incident_id, (candidate, now) in zip(asked, answers, strict=True):
            if now.answer is Answer.CONFIRMED:
                yield candidate
            elif now.answer is Answer.REFUTED:
                del self._transactions_ended_by_others[incident_id]

    def refuted(
        self, incidents: Sequence[IncidentEvent], now_ms: TimestampMs
    ) -> Iterator[tuple[IncidentEvent, Resolution]]:
        """Open incidents to end: duplicates, and those not found by this process that a fresh read contradicts."""
        spans = [one for one in incidents if is_doubtful_span(one, was_found=self._was_found(one))]
        spans = spans[:CANDIDATES_AT_A_TIME]
        for one in incidents:
            if self.store.is_double(one):
                yield one, ending.no_longer_open(now_ms, "another open incident is about the same transaction")
        answers = confirm_spans(self.admin, [candidate_of(one) for one in spans])
        for one, (_, found) in zip(spans, answers, strict=True):
            if found.answer is Answer.REFUTED and found.description is not None:
                yield one, ending.refuted(now_ms, found.description)
        late = [one for one in incidents if is_doubtful_transaction(one, is_found=self.is_found(one))]
        owners = self.admin.describe_transactions([one.transactional_id or "" for one in late]) if late else {}
        for one in late:
            owner = owners[one.transactional_id or ""]
            if isinstance(owner, DescribedTransaction) and is_premature(owner, one, now_ms):
                yield one, ending.refuted(now_ms, owner)

    def _was_found(self, incident: IncidentEvent) -> bool:
        """Whether this process has found the incident's span, now or before its last restart."""
        return incident.span is not None and self.findings.has_known(incident.span)
