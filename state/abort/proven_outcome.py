"""The outcome of a proven hang, as more is read about it. Pure: no I/O, no clock."""

from __future__ import annotations

from dataclasses import replace

from txnwatch.state.abort.case import ProvenHang, StoredEvidence
from txnwatch.state.evidence.outcome import expected_outcome
from txnwatch.state.model.incident_payload import ExpectedOutcome
from txnwatch.state.model.ports import ActiveProducer, SpanHistory


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
