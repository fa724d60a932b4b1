"""Looks at one open span at a barrier: what the barrier shows, and the step of the proof (proof.py) that follows."""

from __future__ import annotations

from msgspec.structs import replace

from txnwatch.state.detection.barrier_context import BarrierContext
from txnwatch.state.detection.proof import TRANSITIONS, Look, Output, Sight, in_phase, look_at, phase_of, reason_of
from txnwatch.state.detection.shared_ids import is_shared
from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.state.model.facts import Joined
from txnwatch.state.model.findings import Finding, SpanCandidate, StrayWrite
from txnwatch.state.model.ids import BarrierNumber, TopicPartition
from txnwatch.state.model.quantities import AT_ONCE
from txnwatch.state.model.transaction import Emission, ProducerState, Span
from txnwatch.state.model.verdicts import Verdict

_SIGHTS = {
    (Look.COVERED, False): Sight.HELD,
    (Look.COVERED, True): Sight.HELD_STILL_OPEN,
    (Look.UNCOVERED, False): Sight.UNOWNED,
    (Look.UNCOVERED, True): Sight.UNOWNED_STILL_OPEN,
}
_WITHOUT_LOG = {
    CoordinatorAccess.API: Look.COORDINATOR_ASKED,
    CoordinatorAccess.NONE: Look.COORDINATOR_NOT_USED,
}
_RESTS_ON_THE_VIEW = frozenset({Look.COVERED, Look.UNCOVERED, Look.TOO_EARLY})


def judge_span(
    producer: ProducerState, partition: TopicPartition, span: Span, context: BarrierContext
) -> tuple[Span, tuple[Finding, ...]]:
    """The span after this barrier's look, the same object if nothing changes; and the finding that is due."""
    look = look_through(producer, partition, span, context)
    if look is Look.ENDING and span.ended_at is None and not context.is_behind(partition):
        context.wanted.add(partition)
    if look is Look.UNCOVERED and span.seen_at is not None and _needs_census(partition, span, context):
        context.wanted.add(partition)
    if look not in {Look.COVERED, Look.UNCOVERED}:
        context.waiting[look] += 1
        return span, ()
    is_open_since = span.uncovered_at is not None and is_still_open(partition, span, context)
    # An election of the log can cut off the record of a transaction that has taken the span and has ended it.
    # Or the span has always been held, by the transaction of another id with the same producer id.
    may_have_been_held = is_shared(producer.view) if look is Look.COVERED else context.had_election(producer.view)
    sight = _SIGHTS[look, is_open_since and not may_have_been_held]
    next_phase, output = TRANSITIONS[phase_of(span), sight]
    judged = in_phase(span, next_phase, context.barrier.number)
    match output:
        case Output.CANDIDATE:
            assert span.uncovered_at is not None
            if not context.is_due(span.emission):
                return span, ()
            candidate = candidate_of(producer, partition, span, context, span.uncovered_at)
            return replace(judged, emission=context.next_emission(span.emission)), (candidate,)
        case Output.STRAY_WRITE:
            return replace(judged, emission=Emission(0, AT_ONCE)), (_stray_write(producer, partition, span, context),)
        case Output.WAIT:
            context.waiting[Look.DATA_UNPROVEN] += 1
            return judged, ()
        case Output.NOTHING:
            return judged, ()


def look_through(producer: ProducerState, partition: TopicPartition, span: Span, context: BarrierContext) -> Look:
    """What this barrier shows about the owner; a view from a log that was re-created since proves nothing."""
    if span.census_absent_at is None and context.policy.coordinator_access is not CoordinatorAccess.LOG:
        return _WITHOUT_LOG[context.policy.coordinator_access]
    look = look_at(producer, partition, span, context.barrier, context.coordinator_gaps)
    is_old = look in _RESTS_ON_THE_VIEW and context.is_of_old_log(producer.view)
    return Look.COORDINATOR_UNPROVEN if is_old else look


def candidate_of(
    producer: ProducerState,
    partition: TopicPartition,
    span: Span,
    context: BarrierContext,
    first_barrier: BarrierNumber,
) -> SpanCandidate:
    """The span as a candidate for a fresh read."""
    reign = context.clocks.reigns.get(producer.view.log_partition) if producer.view is not None else None
    return SpanCandidate(
        verdict=Verdict.HANGING,
        reason=reason_of(producer.view, partition),
        producer_id=producer.producer_id,
        partition=partition,
        span=span,
        view=producer.view,
        first_barrier=first_barrier,
        second_barrier=context.barrier.number,
        data_listed_ms=context.barrier.data_listed_ms,
        coordinator_listed_ms=context.barrier.coordinator_listed_ms,
        log_epoch=reign.epoch if reign is not None else None,
        is_begun_under_it=reign is not None and reign.since < span.began_after,
    )


def _stray_write(producer: ProducerState, partition: TopicPartition, span: Span, context: BarrierContext) -> StrayWrite:
    """A live transaction holds the span now, and it was proven that none did before: this one has absorbed it."""
    assert span.uncovered_at is not None
    return StrayWrite(
        producer_id=producer.producer_id,
        partition=partition,
        topic_id=span.topic_id,
        joined=Joined(span.start_offset, span.oldest_epoch, None, span.epoch),
        view=producer.view,
        last_timestamp_ms=span.last_timestamp_ms,
        first_seen_ms=span.first_seen_ms,
        looks=(span.uncovered_at, context.barrier.number),
    )


def is_still_open(partition: TopicPartition, span: Span, context: BarrierContext) -> bool:
    """Whether the span was seen open after the look that found it uncovered, and before this look.

    Either the log shows it, read to an end that this barrier has listed; or one census before this barrier and the
    latest one do. If the log is read, but not to its end, one of the two is sufficient.
    """
    if not span.by_census and not context.is_unproven(partition):
        return True
    number = context.barrier.number
    if span.reseen_at is None or span.seen_at is None:
        return False
    return span.reseen_at < number and span.seen_at >= number - 1


def _needs_census(partition: TopicPartition, span: Span, context: BarrierContext) -> bool:
    """Whether the proof, or its repetition, needs another census, because the partition's log proves nothing now."""
    if not span.by_census and not context.is_unproven(partition):
        return False
    is_seen = span.seen_at is not None and span.seen_at >= context.barrier.number
    return span.reseen_at is None or (context.is_due(span.emission) and not is_seen)
