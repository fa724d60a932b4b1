"""Incidents about transactions that their coordinator still has: stuck, late and long running ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from txnwatch.state.evidence import ending
from txnwatch.state.incidents import event_builder
from txnwatch.state.incidents.book import Book
from txnwatch.state.incidents.confirm import Answers, ConfirmationQueues, confirm_transactions
from txnwatch.state.incidents.event_order import differs, found_too, needs_confirmation
from txnwatch.state.incidents.life import Happening, NextStep, confirmed_transaction
from txnwatch.state.incidents.wanted import Change, Now, Plan, ask
from txnwatch.state.model.findings import Finding, TransactionCandidate, TransactionMoved
from txnwatch.state.model.incident import IncidentEvent, updated
from txnwatch.state.model.values import TimestampMs


@dataclass(slots=True)
class TransactionIncidents:
    """Opens, changes and ends incidents about whole transactions."""

    book: Book
    queues: ConfirmationQueues
    answers: Answers

    def moved(self, emitted: Sequence[Finding], now_ms: TimestampMs) -> Plan[None]:
        """Ends incidents whose transaction the coordinator has moved on."""
        book = self.book
        for moved in emitted:
            if isinstance(moved, TransactionMoved):
                first = book.transaction_id(moved.producer_id, moved.candidate_view, moved)
                incident = book.store.open_one(first)
                if incident is not None and book.step(incident, Happening.OVER) is NextStep.END:
                    yield Change(book.end_of(incident, ending.transaction_resolution(moved, now_ms), now_ms))

    def new(self, emitted: Sequence[Finding]) -> Plan[None]:
        """Publishes candidates that a fresh read confirms."""
        now_ms = yield from ask(Now())
        candidates = (one for one in emitted if isinstance(one, TransactionCandidate) and self._is_worse(one))
        new = [one for one in self.queues.transactions.next(candidates, now_ms) if self._is_worse(one)]
        for candidate, found in (yield from confirm_transactions(new)):
            name = candidate.view.transactional_id
            if (yield from self.answers.is_confirmed(candidate.verdict, name, found.answer, found.why)):
                now_ms = yield from ask(Now())
                event = event_builder.transaction_event(self.book.origin, candidate, found, now_ms)
                incident_id = yield from self._confirmed(event)
                self.book.findings.transactions[incident_id] = candidate

    def _confirmed(self, event: IncidentEvent) -> Plan[str]:
        """Makes the step of a confirmed candidate; returns the id of its incident."""
        store = self.book.store
        known = store.open_one(event.incident_id)
        then = self.book.step(known, confirmed_transaction(known, event))
        if known is None or then is NextStep.OPEN:
            event = replace(event, incident_id=store.unused(event.incident_id))
            yield Change(event)
            return event.incident_id
        if then is NextStep.CHANGE_VERDICT:
            worse = replace(known, verdict=event.verdict, severity=event.severity, overdue_ms=event.overdue_ms)
            yield Change(updated(worse, event.time_ms))
        else:
            ours = found_too(known, event)
            is_published = differs(known, ours) or known.incident_id in self.book.contested
            yield Change(updated(ours, event.time_ms) if is_published else ours, is_published=is_published)
        return known.incident_id

    def _is_worse(self, candidate: TransactionCandidate) -> bool:
        """Whether the candidate is new, or worse than the open incident: long_running that has become late."""
        first = self.book.transaction_id(candidate.producer_id, candidate.view, candidate)
        known = self.book.store.open_one(first)
        is_found = known is not None and known.incident_id in self.book.findings.transactions
        return needs_confirmation(known, candidate.verdict, is_found=is_found)
