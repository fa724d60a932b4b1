"""Reads again what the events topic claims, if it contradicts this process or if nobody here has found it.

An incident that another writer has ended and that still hangs is opened again under another id. An incident that
another writer has opened and that a fresh read contradicts ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from txnwatch.state.evidence import ending
from txnwatch.state.evidence.confirmation import Answer
from txnwatch.state.incidents.book import Book
from txnwatch.state.incidents.confirm import CANDIDATES_AT_A_TIME, confirm_spans, confirm_transactions
from txnwatch.state.incidents.own_findings import key_of
from txnwatch.state.incidents.wanted import DescribeTransactions, Plan, ask
from txnwatch.state.model.findings import SpanCandidate, TransactionCandidate
from txnwatch.state.model.incident import IncidentEvent, Resolution, SpanKey
from txnwatch.state.model.transaction import DescribedTransaction, Span, TransactionDescription
from txnwatch.state.model.values import LONG_AGO, NO_BARRIER, DurationMs, TimestampMs
from txnwatch.state.model.verdicts import RULE_OF, Reason, Verdict

_EARLY_MS = DurationMs(5_000)  # how much two clocks may differ
Ends = list[tuple[IncidentEvent, Resolution]]


@dataclass(slots=True)
class Doubts:
    """What must be read again.

    Attributes:
        spans: the spans whose incident an event of another writer has ended.
    """

    book: Book
    spans: dict[SpanKey, None] = field(default_factory=dict)
    _transactions: dict[str, TransactionCandidate] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.spans or self._transactions)

    def add(self, incident: IncidentEvent) -> None:
        """Plans a fresh read of an incident that another writer has ended."""
        candidate = self.book.findings.transactions.pop(incident.incident_id, None)
        if candidate is not None:
            first = self.book.transaction_id(candidate.producer_id, candidate.view, candidate)
            self._transactions[first] = candidate
        elif incident.span is not None:
            self.spans[incident.span] = None

    def gone_on(self) -> Plan[list[SpanCandidate | TransactionCandidate]]:
        """Candidates that others have ended and a fresh read confirms; read again until they are open, or over."""
        spans = yield from self._spans_gone_on()
        transactions = yield from self._transactions_gone_on()
        return [*spans, *transactions]

    def _spans_gone_on(self) -> Plan[list[SpanCandidate]]:
        findings = self.book.findings
        left = {key: findings.get(key) for key in self.spans if not self._is_published_by_us(key)}
        asked = [evidence.candidate for evidence in left.values() if evidence is not None][:CANDIDATES_AT_A_TIME]
        self.spans = {key: None for key, evidence in left.items() if evidence is not None}
        confirmed = []
        for candidate, now in (yield from confirm_spans(asked)):
            key = key_of(candidate)
            if now.answer is Answer.CONFIRMED:
                confirmed.append(candidate)
            elif now.answer is Answer.REFUTED:
                del self.spans[key]
                findings.over(key)
        return confirmed

    def _is_published_by_us(self, key: SpanKey) -> bool:
        known = self.book.store.open_span(*key)
        return known is not None and self.book.is_found(known)

    def _transactions_gone_on(self) -> Plan[list[TransactionCandidate]]:
        is_open = self.book.store.open_one
        self._transactions = {one: found for one, found in self._transactions.items() if is_open(one) is None}
        asked = dict(list(self._transactions.items())[:CANDIDATES_AT_A_TIME])
        answers = yield from confirm_transactions(list(asked.values()))
        confirmed = []
        for incident_id, (candidate, now) in zip(asked, answers, strict=True):
            if now.answer is Answer.CONFIRMED:
                confirmed.append(candidate)
            elif now.answer is Answer.REFUTED:
                del self._transactions[incident_id]
        return confirmed

    def contradicted(self, incidents: Sequence[IncidentEvent], now_ms: TimestampMs) -> Plan[Ends]:
        """The ends of incidents that this process has not found, and that a fresh read contradicts."""
        spans = [one for one in incidents if is_doubtful_span(one, was_found=self.book.was_found(one))]
        spans = spans[:CANDIDATES_AT_A_TIME]
        ends: Ends = []
        answers = yield from confirm_spans([candidate_of(one) for one in spans])
        for one, (_, found) in zip(spans, answers, strict=True):
            if found.answer is Answer.REFUTED and found.description is not None:
                ends.append((one, ending.refuted(now_ms, found.description)))
        late = [one for one in incidents if is_doubtful_transaction(one, is_found=self.book.is_found(one))]
        names = [one.transactional_id or "" for one in late]
        owners = (yield from ask(DescribeTransactions(names))) if late else {}
        for one in late:
            owner = owners[one.transactional_id or ""]
            if isinstance(owner, DescribedTransaction) and _is_premature(owner, one, now_ms):
                ends.append((one, ending.refuted(now_ms, owner)))
        return ends


def is_doubtful_span(incident: IncidentEvent, *, was_found: bool) -> bool:
    """Whether another writer published a hang that this process has not found, not even before a restart."""
    if incident.verdict != Verdict.HANGING or incident.is_by_hand or incident.txn_start_offset is None:
        return False
    return incident.span is not None and not was_found


def is_doubtful_transaction(incident: IncidentEvent, *, is_found: bool) -> bool:
    """Whether another writer published an overdue transaction that this process has not found."""
    return RULE_OF[incident.verdict].is_past_timeout and not is_found and incident.transactional_id is not None


def candidate_of(incident: IncidentEvent) -> SpanCandidate:
    """A published incident as a candidate for a fresh read: does this producer's transaction hang there?"""
    assert incident.span is not None
    assert incident.txn_start_offset is not None
    (topic_id, partition, producer_id), start = incident.span, incident.txn_start_offset
    epoch = incident.producer_epoch
    return SpanCandidate(
        verdict=Verdict.HANGING,
        reason=Reason.NO_TRANSACTIONAL_ID,
        producer_id=producer_id,
        partition=partition,
        span=Span(topic_id, start, epoch, epoch, start, LONG_AGO, LONG_AGO, NO_BARRIER),
        view=None,
        first_barrier=NO_BARRIER,
        second_barrier=NO_BARRIER,
        data_listed_ms=LONG_AGO,
        coordinator_listed_ms=LONG_AGO,
    )


def _is_premature(owner: TransactionDescription, incident: IncidentEvent, now_ms: TimestampMs) -> bool:
    """Whether a transaction reported as overdue certainly is not: its coordinator has it, within its timeout."""
    if not isinstance(owner, DescribedTransaction) or not ending.is_same_transaction(owner, incident):
        return False
    if owner.start_ms is None:
        return False
    return now_ms + _EARLY_MS < owner.start_ms + owner.timeout_ms
