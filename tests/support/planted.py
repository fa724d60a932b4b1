"""Evidence that no state has emitted and no fresh read has found: for tests of everything that comes after it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest import mock

from msgspec.structs import replace

from support.plans import at_once
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.evidence.proven_hang import ProvenHang
from txnwatch.state.incidents import automatic_abort as abort
from txnwatch.state.incidents.checking import candidate_of
from txnwatch.state.incidents.own_findings import key_of
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ports import ActiveProducer
from txnwatch.state.model.transaction import CoordinatorView, TransactionState


def plant(ledger: RunningLedger, event: IncidentEvent, row: ActiveProducer) -> None:
    """Makes the ledger believe that it has itself found the hang of an event."""
    ledger.remember([event])
    candidate = candidate_of(event)
    if event.transactional_id is not None:
        view = CoordinatorView(event.transactional_id, 0, 0, TransactionState.DEAD, 0, 60_000, None, 0, 0)
        candidate = replace(candidate, view=view)
    evidence = ProvenHang(candidate, row, event.expected_outcome, candidate.witness, since_ms=0)
    ledger.ledger.findings.spans[key_of(candidate)] = evidence
    ledger.ledger.findings.published_as(key_of(candidate), event.incident_id)


def as_it_was_found() -> AbstractContextManager[object]:
    """The outcome is not read once more before a marker."""
    return mock.patch.object(abort, "read_anew", lambda *found: at_once(found))
