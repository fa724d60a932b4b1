"""Evaluates one producer at a barrier: looks at its open spans, and the time-based rules.

Level-triggered: a candidate is emitted again, after one second and then with doubling pauses, until its span closes or
is covered. So a confirmation that could not run is tried again, and a refuted one needs no answer.
"""

from __future__ import annotations

from msgspec.structs import replace

from txnwatch.state.detection.ask_coordinators import ask_about_covers, ask_about_owner
from txnwatch.state.detection.barrier_context import BarrierContext
from txnwatch.state.detection.proof import is_settled
from txnwatch.state.detection.span_look import judge_span
from txnwatch.state.detection.span_transitions import dropped
from txnwatch.state.detection.step import Step
from txnwatch.state.detection.without_log import ask_without_log, next_due_ms, rests_until
from txnwatch.state.model.broker_clocks import was_listed
from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.state.model.findings import Finding, TransactionCandidate
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.quantities import AT_ONCE, NEVER_MS, NO_TIME, TimestampMs
from txnwatch.state.model.transaction import COVER, ProducerState, Span
from txnwatch.state.model.verdicts import doubt_ms, overdue, thresholds


def judge(producer: ProducerState, context: BarrierContext) -> Step:
    """The producer after one barrier, and the candidates that are due."""
    emitted: list[Finding] = []
    for partition in _over(producer, context):
        step = dropped(producer, partition)
        producer = step.producer
        emitted.extend(step.emitted)
    spans: dict[TopicPartition, Span] = {}
    for partition, span in producer.spans.items():
        judged, findings = judge_span(producer, partition, span, context)
        emitted.extend(findings)
        if judged is not span:
            spans[partition] = judged
    if spans:
        producer = replace(producer, spans={**producer.spans, **spans})
    producer = _listed(producer, context)
    for rule in (_judge_time, ask_about_covers, ask_about_owner, ask_without_log):
        producer, findings = rule(producer, context)
        emitted.extend(findings)
    return Step(producer, tuple(emitted))


def at_rest_until(producer: ProducerState, context: BarrierContext) -> TimestampMs | None:
    """The value of `due_ms` for a producer that `judge` would not change and not report; None if it might.

    This is the fast path for nearly all producers at nearly all barriers: idle ones, and those with a young transaction
    that holds everything open.
    """
    if producer.spans and context.policy.coordinator_access is not CoordinatorAccess.LOG:
        return rests_until(producer, context)
    view = producer.view
    if view is None or not view.is_live:
        is_idle = not producer.spans and (view is None or view.since_ms is not None)
        return NEVER_MS if is_idle else None
    if view.since_ms is None or producer.emissions or not context.is_read(view):
        return None
    for partition, span in producer.spans.items():
        has_history = (
            span.census_absent_at is not None
            or span.ended_at is not None
            or span.uncovered_at is not None
            or span.stray
        )
        if has_history or partition not in view.participants:
            return None
    found = thresholds(view, context.policy, context.scan_interval_ms)
    if not found or context.age_ms(view) > found[0].age_ms:
        return None  # the thresholds ascend, and the doubt begins with the last
    return context.now_ms + found[0].age_ms - context.assumed_age_ms(view)


def due_ms(producer: ProducerState, context: BarrierContext) -> TimestampMs:
    """When, by our clock, the producer must be evaluated next if no fact arrives before; 0 is at every barrier."""
    if context.policy.coordinator_access is not CoordinatorAccess.LOG:
        return next_due_ms(producer, context)
    view = producer.view
    if view is not None and view.since_ms is None:
        return AT_ONCE
    dues: list[TimestampMs] = []
    for partition, span in producer.spans.items():
        is_held = view is not None and view.holds(partition)
        if span.census_absent_at is not None or not is_settled(span, is_held=is_held):
            return AT_ONCE
        if not is_held:
            dues.append(AT_ONCE if span.emission is None else span.emission.next_ms)
    if view is not None and view.is_live:
        age_ms, assumed_ms = context.age_ms(view), context.assumed_age_ms(view)
        found = thresholds(view, context.policy, context.scan_interval_ms)
        passed = overdue(found, age_ms)
        if passed is not None:
            before = producer.emissions.get(passed.verdict)
            dues.append(AT_ONCE if before is None else before.next_ms)
        if any(view.holds(partition) for partition in producer.spans):
            doubted = producer.emissions.get(COVER)
            left_ms = doubt_ms(view, context.policy, context.scan_interval_ms) - assumed_ms
            dues.append(context.now_ms + max(NO_TIME, left_ms) if doubted is None else doubted.next_ms)
        dues.extend(context.now_ms + ahead.age_ms - assumed_ms for ahead in found if ahead.age_ms >= age_ms)
    return min(dues, default=NEVER_MS)


def _over(producer: ProducerState, context: BarrierContext) -> list[TopicPartition]:
    """Spans that a census no longer showed, on partitions read to an end that was listed after it."""
    return [
        partition
        for partition, span in producer.spans.items()
        if span.ended_at is not None and span.ended_at < context.barrier.number and not context.is_unproven(partition)
    ]


def _listed(producer: ProducerState, context: BarrierContext) -> ProducerState:
    """Sets `since_ms` at the first listing that can show a record that was read before any such listing."""
    view = producer.view
    if view is None or view.since_ms is not None or not was_listed(view, context.barrier):
        return producer
    return replace(producer, view=replace(view, since_ms=context.now_ms))


def _judge_time(producer: ProducerState, context: BarrierContext) -> Step:
    view = producer.view
    if view is None or not view.is_live or not context.is_read(view):
        return Step(producer)
    age_ms = context.age_ms(view)
    passed = overdue(thresholds(view, context.policy, context.scan_interval_ms), age_ms)
    if passed is None:
        return Step(producer)
    before = producer.emissions.get(passed.verdict)
    if not context.is_due(before):
        return Step(producer)
    candidate = TransactionCandidate(
        verdict=passed.verdict,
        producer_id=producer.producer_id,
        view=view,
        spans=tuple((partition, span.start_offset) for partition, span in sorted(producer.spans.items())),
        overdue_ms=age_ms - passed.age_ms,
        barrier=context.barrier.number,
        coordinator_listed_ms=context.barrier.coordinator_listed_ms,
        age_ms=age_ms,
    )
    emissions = {**producer.emissions, passed.verdict: context.next_emission(before)}
    return Step(replace(producer, emissions=emissions), (candidate,))
