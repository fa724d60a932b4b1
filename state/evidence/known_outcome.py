"""What is known about the outcome of a confirmed hang, and whether another read can show more.

There are two kinds of `unknown`. In the first, an answer is missing: the partition's log was not read, or the span was
written to after the listing that the outcome needs. The read is repeated. In the second, `unknown` is the answer: the
information is gone, or never existed. Only a new candidate of the state can change it.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import NamedTuple, TypeGuard

from txnwatch.state.evidence.confirmation import SpanConfirmation
from txnwatch.state.evidence.outcome import expected_outcome
from txnwatch.state.evidence.outcome_doubts import Doubt
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.incident_payload import ExpectedOutcome, OutcomeDoubt
from txnwatch.state.model.ports import ActiveProducer
from txnwatch.state.model.problem import Problem
from txnwatch.state.model.verdicts import Verdict

_READ_AGAIN = frozenset({OutcomeDoubt.NOT_READ, OutcomeDoubt.WRITTEN_MEANWHILE})


class Outcome(NamedTuple):
    """An expected outcome, or why it is unknown.

    Attributes:
        doubt: None if the outcome is known.
        is_being_read: the missing answer is being read, so it can be requested again at once.
    """

    outcome: ExpectedOutcome
    doubt: Doubt | None = None
    is_being_read: bool = False

    @property
    def is_awaited(self) -> bool:
        """Whether an answer is missing, so another read of the same data can show the outcome."""
        return self.doubt is not None and self.doubt.kind in _READ_AGAIN


def unknown(kind: OutcomeDoubt, detail: str = "", *, is_being_read: bool = False) -> Outcome:
    """An unknown outcome, and why."""
    return Outcome(ExpectedOutcome.UNKNOWN, Doubt(kind, detail), is_being_read)


def known_outcome(candidate: SpanCandidate, found: SpanConfirmation) -> Outcome:
    """What is known about the outcome, if it applies to all the data found; `found` includes the span's history."""
    row, history = found.producer, found.history
    doubt = Doubt(OutcomeDoubt.NOT_READ) if row is None else _of_reading(candidate, found, row)
    if row is None or doubt is not None:
        return Outcome(ExpectedOutcome.UNKNOWN, doubt)
    outcome = expected_outcome(
        candidate.partition, row.producer_epoch, candidate.witness, history, row.coordinator_epoch
    )
    if not isinstance(outcome, Doubt):
        return Outcome(outcome)
    if history.problem is not None:
        return unknown(OutcomeDoubt.NOT_READ, history.problem, is_being_read=history.is_being_read)
    return Outcome(ExpectedOutcome.UNKNOWN, outcome)


def _of_reading(candidate: SpanCandidate, found: SpanConfirmation, row: ActiveProducer) -> Doubt | None:
    """Why what the candidate rests on does not apply to the data that the fresh read shows.

    The fresh read may show data that was appended after the listing T of the candidate. If a transaction owns it, its
    record was committed before that data was appended. Its coordinator has this record, and describes that transaction,
    unless an election has removed it meanwhile. So the answer must be the view of the candidate, and the log partition
    must still have the same leader after the whole read.
    """
    span = candidate.span
    if span.absorbed or row.txn_start_offset != span.start_offset:
        return Doubt(OutcomeDoubt.DATA_MIXED)  # other data, or more data than the candidate covers
    if not found.is_unchanged:
        return Doubt(OutcomeDoubt.WRITTEN_MEANWHILE)
    if isinstance(found.log_epoch, Problem):
        return Doubt(OutcomeDoubt.NOT_READ, str(found.log_epoch))
    if not found.is_settled:
        return Doubt(_of_coordinator(candidate, found))
    if candidate.view is not None and found.log_epoch != candidate.log_epoch:
        then, now = candidate.log_epoch, found.log_epoch
        return Doubt(OutcomeDoubt.LOG_ELECTION, f"during the read: leader epoch {then} then, {now} now")
    return None


def _of_coordinator(candidate: SpanCandidate, found: SpanConfirmation) -> OutcomeDoubt:
    """Why the coordinator's answer is not the view of the candidate."""
    if candidate.view is None:
        return OutcomeDoubt.NO_RECORD
    if found.description is None:
        return OutcomeDoubt.ID_EXPIRED
    is_superseded = found.description.producer_id != candidate.producer_id
    return OutcomeDoubt.PRODUCER_ID_SUPERSEDED if is_superseded else OutcomeDoubt.COORDINATOR_MOVED_ON


def with_outcome(event: IncidentEvent, outcome: Outcome) -> IncidentEvent:
    """An event with an outcome; a doubt is only about a hanging transaction."""
    doubt = outcome.doubt if event.verdict == Verdict.HANGING else None
    return replace(
        event,
        expected_outcome=outcome.outcome,
        outcome_doubt=doubt.kind if doubt is not None else None,
        outcome_detail=doubt.text if doubt is not None else None,
    )


def is_without_outcome(incident: IncidentEvent | None) -> TypeGuard[IncidentEvent]:
    """Whether this is an open incident about a hang with an unknown outcome."""
    if incident is None or not incident.is_open or incident.verdict != Verdict.HANGING:
        return False
    return incident.expected_outcome == ExpectedOutcome.UNKNOWN


def is_settled(incident: IncidentEvent, outcome: Outcome) -> bool:
    """Whether an incident says that its outcome is being read, and a read has shown that it cannot be known."""
    return incident.outcome_doubt in _READ_AGAIN and outcome.doubt is not None and not outcome.is_awaited


def outcome_basis(candidate: SpanCandidate) -> Hashable:
    """All values of the state that an outcome depends on: an outcome that is settled changes only with them."""
    span = candidate.span
    return candidate.witness, span.start_offset, span.absorbed, span.epoch, span.last_timestamp_ms
