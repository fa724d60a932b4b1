"""The outcome of a proven hang, as more is read about it. Pure: no I/O, no clock."""

from __future__ import annotations

from dataclasses import replace

from txnwatch.state.abort.case import ProvenHang, StoredEvidence, data_of
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.known_outcome import Outcome, known_outcome
from txnwatch.state.evidence.outcome import expected_outcome
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident_payload import ExpectedOutcome
from txnwatch.state.model.ports import ActiveProducer, SpanHistory
from txnwatch.state.model.quantities import TimestampMs


def proven(
    candidate: SpanCandidate,
    found: SpanConfirmation,
    before: ProvenHang | None,
    stored: StoredEvidence | None,
    now_ms: TimestampMs,
) -> ProvenHang:
    """The evidence of a confirmed span, combined with that of this start and with that from before it.

    The time that an abort waits counts from the first confirmation of the same span since this start.
    """
    assert found.producer is not None
    new = ProvenHang(candidate, found.producer, known_outcome(candidate, found).outcome, candidate.view, now_ms)
    if before is not None and before.start_offset == new.start_offset:
        new = replace(new, since_ms=before.since_ms)
    return combined(combined(new, before), stored)


def is_same_data(evidence: ProvenHang | None, fresh: SpanConfirmation) -> bool:
    """Whether a fresh read confirms the span, and nothing was appended to it since the evidence was found."""
    if evidence is None or fresh.answer is not Answer.CONFIRMED or fresh.producer is None:
        return False
    return evidence.data == data_of(fresh.producer)


def agreed(found: Outcome, evidence: ProvenHang) -> Outcome:
    """The outcome after another read of the same data: that of all reads together, as the evidence has it."""
    return found if evidence.outcome == found.outcome else found._replace(outcome=evidence.outcome)


def unconfirmed(fresh: SpanConfirmation) -> Outcome:
    """The outcome after a read that does not confirm the same data: awaited only if the read has no answer."""
    return Outcome(ExpectedOutcome.UNKNOWN, fresh.why if fresh.answer is Answer.UNKNOWN else None)


def combined(new: ProvenHang, earlier: ProvenHang | StoredEvidence | None) -> ProvenHang:
    """Combines evidence of the same data: a known outcome stays known, and two different ones give UNKNOWN."""
    if earlier is None or earlier.data != new.data or earlier.outcome == ExpectedOutcome.UNKNOWN:
        return new
    if new.outcome == ExpectedOutcome.UNKNOWN:
        return replace(new, outcome=earlier.outcome, witness=earlier.witness)
    return new if new.outcome == earlier.outcome else replace(new, outcome=ExpectedOutcome.UNKNOWN)


def with_history(evidence: ProvenHang, row: ActiveProducer, history: SpanHistory) -> ProvenHang:
    """The evidence after another read of the partition's log.

    The outcome stays only if the log leads to it again, and if the state's current view of the coordinator does not
    lead to another one.
    """
    candidate = evidence.candidate
    place, epoch, coordinator_epoch = candidate.partition, row.producer_epoch, row.coordinator_epoch
    again = expected_outcome(place, epoch, evidence.witness, history, coordinator_epoch)
    now = expected_outcome(place, epoch, candidate.view, history, coordinator_epoch)
    is_same = again == evidence.outcome and now in {ExpectedOutcome.UNKNOWN, again}
    return evidence if is_same else replace(evidence, outcome=ExpectedOutcome.UNKNOWN)
