"""Asks the coordinators about open spans: their log may be older than their memory, or not readable.

The answer comes from the ledger's fresh read. The ledger may report these spans, so their ends are always emitted.
"""

from __future__ import annotations

from msgspec.structs import replace

from txnwatch.state.detection.barrier_context import BarrierContext
from txnwatch.state.detection.proof import Look
from txnwatch.state.detection.span_look import candidate_of, look_through
from txnwatch.state.detection.step import Step
from txnwatch.state.model.findings import CoverInDoubt, OwnerInDoubt
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.quantities import AT_ONCE
from txnwatch.state.model.transaction import COVER, Emission, ProducerState, Span
from txnwatch.state.model.verdicts import doubt_ms, is_two_phase


def ask_about_covers(producer: ProducerState, context: BarrierContext) -> Step:
    """Asks the coordinator about spans held by an overdue transaction: an old view must not hide a hang for ever.

    The coordinator can be asked if its log partition has a leader, even if that log cannot be read.
    """
    view = producer.view
    if view is None or not view.is_live or not context.has_coordinator(view):
        return Step(producer)
    if context.age_ms(view) <= doubt_ms(view, context.policy, context.scan_interval_ms):
        return Step(producer)
    before = producer.emissions.get(COVER)
    if not context.is_due(before):
        return Step(producer)
    held = {partition: span for partition, span in sorted(producer.spans.items()) if view.holds(partition)}
    if not held:
        return Step(producer)
    next_ms = context.now_ms + context.policy.two_phase_check_ms
    emission = Emission(1, next_ms) if is_two_phase(view) else context.next_emission(before)
    return _in_doubt(CoverInDoubt, producer, held, emission, context)


def ask_about_owner(producer: ProducerState, context: BarrierContext) -> Step:
    """Asks for the owner of open data whose producer id is in no read part of the log, while another part is unread.

    A log that was re-created since names no owner. A part that its leader lists and cannot read names none either: the
    coordinator answers from its memory. Data that a live transaction held may still be held, until the transaction's
    timeout is over.
    """
    view = producer.view
    if not producer.spans or context.is_known_to_log(view):
        return Step(producer)
    is_old = view is None or context.is_of_old_log(view)
    held = {} if is_old else {at: span for at, span in producer.spans.items() if view is not None and view.holds(at)}
    others = {at: span for at, span in producer.spans.items() if at not in held}
    step = _ask_for_owner(replace(producer, view=None, spans=others), context)
    return Step(replace(step.producer, view=view, spans={**step.producer.spans, **held}), step.emitted)


def _ask_for_owner(producer: ProducerState, context: BarrierContext) -> Step:
    before = producer.emissions.get(COVER)
    if not context.is_due(before):
        return Step(producer)
    unread = {
        partition: span
        for partition, span in sorted(producer.spans.items())
        if context.now_ms - span.first_seen_ms >= context.policy.owner_unread_ms
        and look_through(producer, partition, span, context) is Look.COORDINATOR_UNPROVEN
    }
    if not unread:
        return Step(producer)
    return _in_doubt(OwnerInDoubt, producer, unread, context.next_emission(before), context)


def _in_doubt(
    kind: type[CoverInDoubt | OwnerInDoubt],
    producer: ProducerState,
    spans: dict[TopicPartition, Span],
    emission: Emission,
    context: BarrierContext,
) -> Step:
    number = context.barrier.number
    asked = tuple(kind(candidate_of(producer, partition, span, context, number)) for partition, span in spans.items())
    doubted = {
        partition: replace(span, emission=span.emission or Emission(0, AT_ONCE)) for partition, span in spans.items()
    }
    return Step(
        replace(producer, emissions={**producer.emissions, COVER: emission}, spans={**producer.spans, **doubted}), asked
    )
