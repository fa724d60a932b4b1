"""Events about transactions that their coordinator still has: stuck, late and long running ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from txnwatch.sinks.incidents import event_builder
from txnwatch.sinks.incidents.claims import Claims
from txnwatch.sinks.incidents.commands import Origin
from txnwatch.sinks.incidents.confirm import confirm_transactions
from txnwatch.sinks.incidents.confirmation_queue import Answers, ConfirmationQueues
from txnwatch.sinks.incidents.incident_store import IncidentStore
from txnwatch.sinks.incidents.own_findings import Findings
from txnwatch.state.events.claims import differs, found_too
from txnwatch.state.events.next_step import NextStep, needs_confirmation, step_of_transaction
from txnwatch.state.evidence import incident_end
from txnwatch.state.model.findings import Finding, TransactionCandidate, TransactionMoved
from txnwatch.state.model.incident import IncidentEvent, updated
from txnwatch.state.model.ports import TransactionAdmin
from txnwatch.state.model.quantities import TimestampMs


@dataclass(slots=True)
class TransactionIncidents:
    """Opens, changes and ends incidents about whole transactions."""

    origin: Origin
    admin: TransactionAdmin
    claims: Claims
    store: IncidentStore
    findings: Findings
    queues: ConfirmationQueues
    answers: Answers
    now_ms: Callable[[], TimestampMs]

    def moved(self, emitted: Sequence[Finding], now_ms: TimestampMs) -> Iterable[IncidentEvent]:
        """The ends of incidents whose transaction the coordinator has moved on."""
        for moved in emitted:
            if isinstance(moved, TransactionMoved):
                incident = self.store.open_one(
                    self.claims.transaction_id(moved.producer_id, moved.candidate_view, moved)
                )
                if incident is not None:
                    yield self.claims.end(incident, incident_end.transaction_resolution(moved, now_ms), now_ms)

    def new(self, emitted: Sequence[Finding]) -> Iterable[IncidentEvent]:
        """Events about candidates that a fresh read confirms."""
        candidates = (one for one in emitted if isinstance(one, TransactionCandidate) and self._is_worse(one))
        new = [one for one in self.queues.transactions.next(candidates, self.now_ms()) if self._is_worse(one)]
        for candidate, found in confirm_transactions(self.admin, new):
            if not self.answers.is_confirmed(
                candidate.verdict, candidate.view.transactional_id, found.answer, found.why, self.now_ms()
            ):
                continue
            event = event_builder.transaction_event(self.origin, candidate, found, self.now_ms())
            known = self.store.open_one(event.incident_id)
            if known is None:
                event = self.store.enter(replace(event, incident_id=self.store.unused(event.incident_id)))
                yield event
            elif step_of_transaction(known, candidate.verdict) is NextStep.CHANGE_VERDICT:
                worse = replace(known, verdict=event.verdict, severity=event.severity, overdue_ms=event.overdue_ms)
                event = self.store.enter(updated(worse, event.time_ms))
                yield event
            else:  # published already
                ours = found_too(known, event)
                if differs(known, ours):
                    ours = updated(ours, event.time_ms)
                    yield ours
                event = self.store.enter(ours)
            self.findings.transactions[event.incident_id] = candidate

    def _is_worse(self, candidate: TransactionCandidate) -> bool:
        """Whether the candidate is new, or worse than the open incident: long_running that has become late."""
        known = self.store.open_one(self.claims.transaction_id(candidate.producer_id, candidate.view, candidate))
        is_found = known is not None and known.incident_id in self.findings.transactions
        return needs_confirmation(known, candidate.verdict, is_found=is_found)
