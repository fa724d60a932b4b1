"""Decides what follows on the events topic when a fresh read has confirmed a candidate. Pure: no I/O, no clock."""

from __future__ import annotations

from enum import Enum, auto

from txnwatch.state.events.claims import differs
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.incident_payload import ExpectedOutcome
from txnwatch.state.model.verdicts import Verdict, rank


class NextStep(Enum):
    """What follows when a candidate is confirmed."""

    OPEN = auto()
    END_AND_OPEN = auto()
    CHANGE_VERDICT = auto()
    COMPARE = auto()


def step_of_span(known: IncidentEvent | None, found: IncidentEvent) -> NextStep:
    """What follows for a span; `known` is the open incident about the same producer on the same partition."""
    if known is None:
        return NextStep.OPEN
    if known.txn_start_offset != found.txn_start_offset:
        return NextStep.END_AND_OPEN
    return NextStep.CHANGE_VERDICT if known.verdict != found.verdict else NextStep.COMPARE


def step_of_transaction(known: IncidentEvent | None, verdict: Verdict) -> NextStep:
    """What follows for a transaction; `known` is the open incident about it. A verdict only becomes worse."""
    if known is None:
        return NextStep.OPEN
    return NextStep.CHANGE_VERDICT if rank(verdict) < rank(known.verdict) else NextStep.COMPARE


def is_update_of_span(known: IncidentEvent, found: IncidentEvent) -> bool:
    """Whether what was found about a published span is published too: it differs, or it adds the outcome or the id."""
    is_outcome_new = known.expected_outcome == ExpectedOutcome.UNKNOWN != found.expected_outcome
    is_owner_new = known.transactional_id is None is not found.transactional_id
    return differs(known, found) or is_outcome_new or is_owner_new


def needs_confirmation(known: IncidentEvent | None, verdict: Verdict, *, is_found: bool) -> bool:
    """Whether a candidate about a transaction is confirmed: it is new, or worse than what this process has found."""
    return known is None or not is_found or rank(verdict) < rank(known.verdict)
