"""Decides between an event on the events topic and what this process has found about the same incident.

Law: a claim never replaces a finding. The subject of an incident never changes. Of an event with another subject, or
about an incident of this process's own, only sequence, status, time, action and resolution are used. Only the log
proves that another writer's marker was successful. An open incident of another writer that this process has never found
is read again.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto

from txnwatch.state.evidence.known_outcome import Outcome, with_outcome
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.ids import NO_BARRIER
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.incident_payload import Action, ActionResult, ExpectedOutcome
from txnwatch.state.model.quantities import LONG_AGO, Offset, TimestampMs
from txnwatch.state.model.transaction import Span
from txnwatch.state.model.verdicts import RULE_OF, Reason, Verdict, rank

_IDENTITY = ("topic", "partition", "topic_id", "producer_id", "txn_start_offset", "transactional_id")


class Response(Enum):
    """What follows from a new event of another writer."""

    NOTHING = auto()
    CORRECT = auto()
    READ_AGAIN = auto()


def response_to(event: IncidentEvent, known: IncidentEvent, *, is_found: bool) -> Response:
    """The response to another writer's event; `known` is what is stored now, `is_found` whether this process found it.

    If an event ends an incident that this process has found, it is read again. An event that differs is corrected.
    """
    if not is_found or known.is_by_hand:
        return Response.NOTHING
    if not known.is_open:
        return Response.READ_AGAIN
    return Response.CORRECT if differs(event, known) else Response.NOTHING


def is_own(incident: IncidentEvent, start_offset: Offset | None, published_as: str | None) -> bool:
    """Whether an incident about a span has the content that this process has built.

    Args:
        incident: the incident.
        start_offset: where the span begins that this process has found there; None if it has found none.
        published_as: the incident that this process has published about that span; None for none.
    """
    is_found_there = start_offset is not None and start_offset == incident.txn_start_offset
    return is_found_there and published_as == incident.incident_id


def is_same_span(one: IncidentEvent, other: IncidentEvent) -> bool:
    """Whether two events of one incident are about the same span, or both about no span."""
    return (one.span, one.txn_start_offset) == (other.span, other.txn_start_offset)


def outcome_as_found(event: IncidentEvent, found: Outcome) -> IncidentEvent:
    """The event to publish. Of a hanging span only the found outcome counts; the one in the event may be forged."""
    return with_outcome(event, found) if event.verdict == Verdict.HANGING else event


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


def keeps_content(event: IncidentEvent, known: IncidentEvent, *, is_found: bool) -> bool:
    """Whether the stored content of an incident stays: it is our finding, or the event has another subject."""
    return is_found or is_elsewhere(event, known)


def with_claim(known: IncidentEvent, event: IncidentEvent, acted: Action | None, now_ms: TimestampMs) -> IncidentEvent:
    """The stored content with the sequence, status, time, action and resolution of an event."""
    return replace(
        known,
        sequence=event.sequence,
        status=event.status,
        time_ms=min(event.time_ms, now_ms),
        action=believed_action(event, known, acted),
        resolution=event.resolution,
    )


def claimed(
    event: IncidentEvent, known: IncidentEvent | None, acted: Action | None, now_ms: TimestampMs
) -> IncidentEvent:
    """The content of an event, if this process has none of its own. Its time is never in the future."""
    return replace(event, action=believed_action(event, known, acted), time_ms=min(event.time_ms, now_ms))


def believed_action(event: IncidentEvent, known: IncidentEvent | None, acted: Action | None) -> Action | None:
    """The last decision: our own version, `acted`, if it is ours; of another writer's, without a claimed success."""
    claim = event.action
    if acted is not None and (claim is None or claim.by == acted.by):
        return acted
    if claim is None:
        return known.action if known is not None else None
    return replace(claim, result=None) if claim.result is ActionResult.VERIFIED else claim


def differs(published: IncidentEvent, found: IncidentEvent) -> bool:
    """Whether an event differs, in a relevant field, from what this process has found about the same subject.

    A value that one of two honest instances does not know yet is no difference.
    """
    if is_elsewhere(published, found):
        return True
    if found.verdict == Verdict.HANGING and published.verdict != found.verdict:
        return True
    verdict = published.verdict
    if rank(verdict) > rank(found.verdict) or published.severity != RULE_OF[verdict].severity:
        return True  # milder than found: also the case for an instance that is behind, which is corrected
    return found.expected_outcome not in {ExpectedOutcome.UNKNOWN, published.expected_outcome}


def is_elsewhere(one: IncidentEvent, other: IncidentEvent) -> bool:
    """Whether two events of one incident have different subjects."""
    pairs = [(getattr(one, name), getattr(other, name)) for name in _IDENTITY]
    has_other = any(first != second and None not in {first, second} for first, second in pairs)
    return has_other or (one.topic is None) is not (other.topic is None)


def found_too(known: IncidentEvent, event: IncidentEvent) -> IncidentEvent:
    """A published incident with the content that this process has found, and the earlier of both start times."""
    return replace(
        with_newer_verdict(known, event),
        open_since_ms=min(known.open_since_ms, event.open_since_ms),
        detected_at_ms=known.detected_at_ms,
        detection_latency_ms=known.detection_latency_ms,
        action=known.action,
        resolution=known.resolution,
    )


def with_newer_verdict(known: IncidentEvent, event: IncidentEvent) -> IncidentEvent:
    """A newer verdict about the same span, with the identity, the start and the last sequence of the incident."""
    return replace(
        event,
        incident_id=known.incident_id,
        sequence=known.sequence,
        status=known.status,
        txn_start_offset=known.txn_start_offset,
        open_since_ms=known.open_since_ms,
        open_since_clock=known.open_since_clock,
        age_ms=known.age_ms,
        time_ms=known.time_ms,
    )
