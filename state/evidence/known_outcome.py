"""What is known about the outcome of a confirmed hang, and whether another read can show more.

There are two kinds of `unknown`. In the first, an answer is missing: the partition's log was not read, or the span was
written to during the read. The read is repeated as long as the data is the same. In the second, `unknown` is the
answer: the information is gone, or never existed. Only a new candidate of the state can change it.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, TypeGuard

from txnwatch.state.evidence.confirmation import SpanConfirmation
from txnwatch.state.evidence.outcome import expected_outcome
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.incident_payload import ExpectedOutcome
from txnwatch.state.model.verdicts import Verdict

WRITTEN_MEANWHILE = "data was appended during the read"


class Outcome(NamedTuple):
    """An expected outcome, and the missing answer.

    Attributes:
        awaited: the missing answer; None if the outcome is known, or can never be known.
        is_being_read: the missing answer is being read, so it can be requested again at once.
    """

    outcome: ExpectedOutcome
    awaited: str | None = None
    is_being_read: bool = False


def known_outcome(candidate: SpanCandidate, found: SpanConfirmation) -> Outcome:
    """What is known about the outcome, if it applies to all the data found; `found` includes the span's history."""
    row, history = found.producer, found.history
    if row is None or candidate.span.absorbed or row.txn_start_offset != candidate.span.start_offset:
        return Outcome(ExpectedOutcome.UNKNOWN)  # other data, or more data than the candidate covers
    if not found.is_unchanged:
        return Outcome(ExpectedOutcome.UNKNOWN, WRITTEN_MEANWHILE)
    if not found.is_settled:
        return Outcome(ExpectedOutcome.UNKNOWN)
    outcome = expected_outcome(candidate.partition, row.producer_epoch, candidate.view, history, row.coordinator_epoch)
    return (
        Outcome(outcome, history.problem, history.is_being_read)
        if outcome == ExpectedOutcome.UNKNOWN
        else Outcome(outcome)
    )


def is_without_outcome(incident: IncidentEvent | None) -> TypeGuard[IncidentEvent]:
    """Whether this is an open incident about a hang with an unknown outcome."""
    if incident is None or not incident.is_open or incident.verdict != Verdict.HANGING:
        return False
    return incident.expected_outcome == ExpectedOutcome.UNKNOWN


def outcome_basis(candidate: SpanCandidate) -> Hashable:
    """All values of the state that an outcome depends on: an outcome that is settled changes only with them."""
    return candidate.view, candidate.span.start_offset, candidate.span.absorbed
