"""What this process has found about a hanging transaction, and how its outcome changes as more is read. Pure.

Law: an outcome that was found stays while its data is the same: the same start, epoch, last sequence and last
timestamp at the leader, also over a restart of this process. So does a contradiction between two reads. There is one
exception. `none` says that no transaction owned the data. Once a view shows
that a transaction has begun under its epoch, `none` no longer counts, whatever the partitions of that transaction
are.

Law: where leader epochs do not show a restart, an outcome that a read has shown counts once a later barrier still
shows its reign. The batch of barrier b reads the logs, and the fresh read is made in it. Both are later than the
listings of b, so the leader may have lost its power in between: then records of the owner may be missing in what was
read. A later barrier of the same reign is listed after the fresh read, so all of this was read from one leader.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.outcome import Doubt, Outcome, expected_outcome, known_outcome, read_outcome, unknown
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import ExpectedOutcome, OutcomeDoubt, SpanKey
from txnwatch.state.model.ports import ActiveProducer, SpanHistory
from txnwatch.state.model.transaction import CoordinatorView, LossProof, Span, SpanData, Witness
from txnwatch.state.model.values import NO_BARRIER, BarrierNumber, Offset, ProducerEpoch, TimestampMs


class PendingOutcome(NamedTuple):
    """An outcome that a read has shown, and that counts once a later barrier still shows the reign.

    Attributes:
        reign: the barrier since which the reign is known.
        read_at: the barrier in whose batch the read was made.
    """

    outcome: ExpectedOutcome
    reign: BarrierNumber
    read_at: BarrierNumber

    def is_proven_by(self, candidate: SpanCandidate) -> bool:
        """Whether a later candidate shows that the reign has lasted until after the read."""
        if candidate.proof is not LossProof.CONNECTION or candidate.view is None:
            return False
        return candidate.view.reign == self.reign and candidate.second_barrier > self.read_at


@dataclass(frozen=True, slots=True)
class ProvenHang:
    """What this process itself has found about a hanging transaction. Events and other stores are never a source.

    Attributes:
        candidate: the last candidate from the state.
        row: the producer's row at the partition's leader when the outcome was found.
        outcome: the expected outcome; it applies to the data that `row` describes.
        witness: what the coordinators' log showed when the outcome was derived. The coordinator may have moved on
            since.
        since_ms: when this process confirmed the hang for the first time, by our clock.
        doubt: why the outcome is unknown; None if it is known.
        pending: what the last read has shown, if it counts only later.
    """

    candidate: SpanCandidate
    row: ActiveProducer
    outcome: ExpectedOutcome
    witness: Witness | None
    since_ms: TimestampMs
    doubt: Doubt | None = None
    pending: PendingOutcome | None = None

    @property
    def start_offset(self) -> Offset:
        """The first offset of the open data."""
        return self.row.start_offset

    @property
    def known(self) -> Outcome:
        """The outcome with its doubt."""
        return Outcome(self.outcome, self.doubt)

    @property
    def data(self) -> SpanData:
        """What identifies the data; if it is unchanged, nothing was appended."""
        return self.row.data

    @property
    def for_good(self) -> OutcomeDoubt | None:
        """Why the outcome stays unknown, whatever is read of this data later; None if it may become known."""
        return self.doubt.kind if self.doubt is not None and self.doubt.kind in _FOR_GOOD else None


@dataclass(frozen=True, slots=True)
class StoredEvidence:
    """What outlives a process about a hanging transaction: its outcome. It counts after a fresh read of the same data.

    Attributes:
        key: the span.
        data, outcome, witness: as in ProvenHang.
        for_good: why the outcome stays unknown, whatever is read of this data later; None if it may become known.
    """

    key: SpanKey
    data: SpanData
    outcome: ExpectedOutcome
    witness: Witness | None
    for_good: OutcomeDoubt | None = None


Marked = tuple[str, TimestampMs]  # incident id, and when its marker was announced


class StoredFindings(NamedTuple):
    """What outlives the process: evidence, and the markers of the last hour."""

    evidence: tuple[StoredEvidence, ...] = ()
    markers: tuple[Marked, ...] = ()


_FOR_GOOD = frozenset({OutcomeDoubt.CONTRADICTION, OutcomeDoubt.BEGUN_SINCE})


def proven(
    candidate: SpanCandidate,
    confirmation: SpanConfirmation,
    before: ProvenHang | None,
    stored: StoredEvidence | None,
    now_ms: TimestampMs,
    batch: BarrierNumber = NO_BARRIER,
) -> ProvenHang:
    """The evidence of a confirmed span, combined with that of this start and with that from before it.

    The time that an abort waits counts from the first confirmation of the same span since this start. `batch` is the
    barrier in whose batch the span was read.
    """
    assert confirmation.producer is not None
    outcome = known_outcome(candidate, confirmation)
    new = ProvenHang(candidate, confirmation.producer, outcome.outcome, candidate.witness, now_ms, outcome.doubt)
    if outcome.doubt is not None and outcome.doubt.kind is OutcomeDoubt.LISTING_AWAITED:
        new = _after_pending(new, before, read_outcome(candidate, confirmation).outcome, batch)
    if before is not None and before.start_offset == new.start_offset:
        new = replace(new, since_ms=before.since_ms)
    return combined(combined(new, before), stored)


def _after_pending(
    new: ProvenHang, before: ProvenHang | None, outcome: ExpectedOutcome, batch: BarrierNumber
) -> ProvenHang:
    """The evidence of a read whose outcome is pending; it is known if that of an earlier read counts now."""
    view = new.candidate.view
    assert view is not None
    assert view.reign is not None
    earlier = before.pending if before is not None and before.data == new.data else None
    if earlier is not None and earlier.outcome == outcome and earlier.is_proven_by(new.candidate):
        return replace(new, outcome=outcome, doubt=None)
    return replace(new, pending=PendingOutcome(outcome, view.reign, batch))


def is_same_data(evidence: ProvenHang | None, fresh: SpanConfirmation) -> bool:
    """Whether a fresh read confirms the span, and nothing was appended to it since the evidence was found."""
    if evidence is None or fresh.answer is not Answer.CONFIRMED or fresh.producer is None:
        return False
    return evidence.data == fresh.producer.data


def agreed(own: Outcome, evidence: ProvenHang) -> Outcome:
    """The outcome after another read of the same data: that of all reads together, as the evidence has it."""
    if evidence.outcome == own.outcome:
        return own
    return own._replace(outcome=evidence.outcome, doubt=evidence.doubt)


def unconfirmed(fresh: SpanConfirmation) -> Outcome:
    """The outcome after a read that does not confirm the same data: awaited only if the read has no answer."""
    return unknown(OutcomeDoubt.NOT_READ if fresh.answer is Answer.UNKNOWN else OutcomeDoubt.DATA_MIXED, fresh.why)


def combined(new: ProvenHang, earlier: ProvenHang | StoredEvidence | None) -> ProvenHang:
    """Combines evidence of the same data: a known outcome stays known, and two different ones give UNKNOWN for good."""
    if earlier is None or earlier.data != new.data:
        return new
    if earlier.for_good is not None:
        return _doubted(new, earlier.for_good)
    if earlier.outcome == ExpectedOutcome.UNKNOWN:
        return new
    if new.outcome == ExpectedOutcome.UNKNOWN:
        return seen_again(replace(new, outcome=earlier.outcome, witness=earlier.witness, doubt=None), new.candidate)
    return new if new.outcome == earlier.outcome else _doubted(new, OutcomeDoubt.CONTRADICTION)


def seen_again(evidence: ProvenHang, candidate: SpanCandidate) -> ProvenHang:
    """The evidence with a repeated candidate: data may have been appended since, or a transaction may have begun."""
    witness, view = evidence.witness, candidate.view
    is_grown = has_grown(evidence, candidate.span)
    evidence = replace(evidence, candidate=candidate)
    if evidence.outcome != ExpectedOutcome.UNKNOWN and is_grown:
        return _doubted(evidence, OutcomeDoubt.WRITTEN_SINCE)
    if evidence.outcome != ExpectedOutcome.NONE or witness is None or view is None:
        return evidence
    is_used = has_begun(evidence.row.producer_epoch, witness.view, view)
    return _doubted(evidence, OutcomeDoubt.BEGUN_SINCE) if is_used else evidence


def has_grown(evidence: ProvenHang, span: Span) -> bool:
    """Whether a newer candidate shows data that is neither in the earlier candidate nor at the leader at that time."""
    row, before = evidence.row, evidence.candidate.span
    if (span.epoch, span.last_offset) == (before.epoch, before.last_offset):
        return False
    return (span.epoch, span.last_timestamp_ms) != (row.producer_epoch, row.last_timestamp_ms)


def has_begun(epoch: ProducerEpoch, before: CoordinatorView, now: CoordinatorView) -> bool:
    """Whether a newer view shows that a transaction has begun under an epoch since an earlier view."""
    if now.data_epoch == epoch != before.data_epoch:
        return True
    if now.start_ms is None or now.start_ms == before.start_ms:
        return False
    return epoch == (now.data_epoch if now.data_epoch is not None else now.producer_epoch)


def _doubted(evidence: ProvenHang, kind: OutcomeDoubt) -> ProvenHang:
    return replace(evidence, outcome=ExpectedOutcome.UNKNOWN, doubt=Doubt(kind))


def with_history(evidence: ProvenHang, row: ActiveProducer, history: SpanHistory) -> ProvenHang:
    """The evidence after another read of the partition's log.

    The outcome stays only if the log leads to it again, and if the state's current view of the coordinator does not
    lead to another one.
    """
    candidate = evidence.candidate
    place, epoch, coordinator_epoch = candidate.partition, row.producer_epoch, row.coordinator_epoch
    again = expected_outcome(place, epoch, evidence.witness, history, coordinator_epoch)
    now = expected_outcome(place, epoch, candidate.witness, history, coordinator_epoch)
    if isinstance(again, Doubt):
        return replace(evidence, outcome=ExpectedOutcome.UNKNOWN, doubt=again)
    is_same = again == evidence.outcome and (isinstance(now, Doubt) or now == again)
    return evidence if is_same else _doubted(evidence, OutcomeDoubt.CONTRADICTION)
