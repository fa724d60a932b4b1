"""Evaluates one producer at a barrier: looks at its open spans, and the time-based rules.

Apart: it is about one producer, and bucket.py about all producers of a bucket.

Level-triggered: a candidate is emitted again, after one second and then with doubling pauses, until its span closes or
a live transaction holds it. So a confirmation that could not run is tried again, and a refuted one needs no answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from txnwatch.state.detection.proof import BarrierContext, Look, candidate_of, is_settled, judge_span, look_through
from txnwatch.state.detection.span import Step, dropped
from txnwatch.state.model.findings import CoverInDoubt, Finding, OwnerInDoubt, TransactionCandidate
from txnwatch.state.model.transaction import COVER, Emission, ProducerState, Span
from txnwatch.state.model.values import (
    AT_ONCE,
    NEVER_MS,
    NO_TIME,
    CoordinatorAccess,
    DurationMs,
    TimestampMs,
    TopicPartition,
)
from txnwatch.state.model.verdicts import Verdict, doubt_ms, is_two_phase, overdue

# Asks the coordinators about open spans: their log may be older than their memory, or not readable.
#
# The answer comes from the ledger's fresh read. The ledger may report these spans, so their ends are always emitted.


def _ask_about_covers(producer: ProducerState, context: BarrierContext) -> Step:
    """Asks the coordinator about spans held by an overdue transaction: an old view must not hide a hang for ever.

    The coordinator can be asked if its log partition has a leader, even if that log cannot be read.
    """
    view = producer.view
    if view is None or not view.is_live or not context.has_coordinator(view):
        return Step(producer)
    if context.age_ms(view) <= doubt_ms(view, context.policy, context.scan_interval_ms):
        return Step(producer)
    before = producer.emissions.get(COVER)
    is_due = context.is_due(before)
    held = {
        partition: span
        for partition, span in sorted(producer.spans.items())
        if view.holds(partition) and (is_due or _is_new(span, context))
    }
    if not held:
        return Step(producer)
    next_ms = context.now_ms + context.policy.two_phase_check_ms
    after = Emission(1, next_ms) if is_two_phase(view) else context.next_emission(before)
    return _in_doubt(CoverInDoubt, producer, held, _repeat(before, after, context), context)


def _ask_about_owner(producer: ProducerState, context: BarrierContext) -> Step:
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
    asked = step.emitted if view is None else tuple(map(_without_log, step.emitted))
    return Step(replace(step.producer, view=view, spans={**step.producer.spans, **held}), asked)


def _without_log(asked: Finding) -> Finding:
    """A question in which the known owner is left out: an id that a coordinator lists is not the only one then."""
    assert isinstance(asked, OwnerInDoubt)
    return OwnerInDoubt(replace(asked.candidate, is_log_read=False))


def _ask_for_owner(producer: ProducerState, context: BarrierContext) -> Step:
    before = producer.emissions.get(COVER)
    is_due = context.is_due(before)
    unread = {
        partition: span
        for partition, span in sorted(producer.spans.items())
        if (is_due or span.emission is None)
        and context.now_ms >= _old_enough_ms(span, context)
        and look_through(producer, partition, span, context) is Look.COORDINATOR_UNPROVEN
    }
    if not unread:
        return Step(producer)
    after = context.next_emission(before)
    return _in_doubt(OwnerInDoubt, producer, unread, _repeat(before, after, context), context)


def _repeat(before: Emission | None, after: Emission, context: BarrierContext) -> Emission:
    """When the questions of a producer are repeated: one about a new span does not put off the others."""
    return after if before is None or context.is_due(before) else before


def _is_new(span: Span, context: BarrierContext) -> bool:
    """Whether nobody has asked about a span that is not young; such a question does not wait for an earlier one."""
    return span.emission is None and context.now_ms >= _old_enough_ms(span, context)


def _old_enough_ms(span: Span, context: BarrierContext) -> TimestampMs:
    return TimestampMs(span.first_seen_ms + context.policy.owner_unread_ms)


def _in_doubt(
    kind: type[CoverInDoubt | OwnerInDoubt],
    producer: ProducerState,
    spans: dict[TopicPartition, Span],
    emission: Emission,
    context: BarrierContext,
) -> Step:
    """Asks about spans; `emission` is when the questions of this producer are repeated."""
    number = context.barrier.number
    asked = tuple(kind(candidate_of(producer, partition, span, context, number)) for partition, span in spans.items())
    doubted = {
        partition: replace(span, emission=span.emission or Emission(0, AT_ONCE)) for partition, span in spans.items()
    }
    return Step(
        replace(producer, emissions={**producer.emissions, COVER: emission}, spans={**producer.spans, **doubted}), asked
    )


# Finds open data without the coordinators' log: to ask the coordinators about it, or because it is too old.
#
# Law: without the log, a barrier proves nothing about an owner, so nothing here is a verdict. With access `api` the
# open data is a candidate, and the ledger's fresh reads are the whole proof (docs/decisions/0027). With access `none`
# the data is late if it is older than any transaction may be; the ledger reads the partition again before it is
# published.
#
# All questions about open data are due at the same times, once in every `coordinator_ask_ms`. So a round costs the same
# requests for one open transaction and for two hundred.


def _ask_without_log(producer: ProducerState, context: BarrierContext) -> Step:
    """The producer with its open data asked about, or reported as late, where that is due."""
    if context.policy.coordinator_access is CoordinatorAccess.LOG:
        return Step(producer)
    emitted: list[Finding] = []
    spans: dict[TopicPartition, Span] = {}
    for partition, span in _candidates(producer, context):
        emitted.append(_finding(producer, partition, span, context))
        spans[partition] = replace(span, emission=_next_emission(span, context))
    return Step(replace(producer, spans={**producer.spans, **spans}) if spans else producer, tuple(emitted))


def _rests_until(producer: ProducerState, context: BarrierContext) -> TimestampMs | None:
    """When open data of a producer is due without the log; None if it is due now, or a census did not show it."""
    next_ms = _next_due_ms(producer, context)
    return None if next_ms <= context.now_ms else next_ms


def _next_due_ms(producer: ProducerState, context: BarrierContext) -> TimestampMs:
    """When, by our clock, the open data of a producer must be evaluated next."""
    return min((_due_ms(span, context) for span in producer.spans.values()), default=NEVER_MS)


def _candidates(producer: ProducerState, context: BarrierContext) -> Iterable[tuple[TopicPartition, Span]]:
    for partition, span in sorted(producer.spans.items()):
        if span.census_absent_at is None and _due_ms(span, context) <= context.now_ms:
            yield partition, span


def _due_ms(span: Span, context: BarrierContext) -> TimestampMs:
    if span.census_absent_at is not None or span.ended_at is not None:
        return AT_ONCE
    if span.emission is not None:
        return span.emission.next_ms
    policy = context.policy
    if policy.coordinator_access is CoordinatorAccess.API:
        return _next_round_ms(span.first_seen_ms + policy.owner_unread_ms, policy.coordinator_ask_ms)
    too_long_ms = policy.open_too_long_ms(context.barrier.scan_interval_ms)
    return span.first_seen_ms + too_long_ms if too_long_ms is not None else NEVER_MS


def _next_emission(span: Span, context: BarrierContext) -> Emission:
    if context.policy.coordinator_access is not CoordinatorAccess.API:
        return context.next_emission(span.emission)
    times = span.emission.times if span.emission is not None else 0
    return Emission(times + 1, _next_round_ms(context.now_ms, context.policy.coordinator_ask_ms))


def _next_round_ms(time_ms: TimestampMs, pause_ms: DurationMs) -> TimestampMs:
    """The first round after a time; rounds are at the multiples of the pause."""
    return TimestampMs((time_ms // pause_ms + 1) * pause_ms)


def _finding(producer: ProducerState, partition: TopicPartition, span: Span, context: BarrierContext) -> Finding:
    ownerless = replace(producer, view=None)
    candidate = candidate_of(ownerless, partition, span, context, context.barrier.number)
    if context.policy.coordinator_access is CoordinatorAccess.API:
        return OwnerInDoubt(candidate)
    return replace(candidate, verdict=Verdict.LATE)


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
    for rule in (_judge_time, _ask_about_covers, _ask_about_owner, _ask_without_log):
        producer, findings = rule(producer, context)
        emitted.extend(findings)
    return Step(producer, tuple(emitted))


def at_rest_until(producer: ProducerState, context: BarrierContext) -> TimestampMs | None:
    """The value of `due_ms` for a producer that `judge` would not change and not report; None if it might.

    This is the fast path for nearly all producers at nearly all barriers: idle ones, and those with a young transaction
    that holds everything open.
    """
    if producer.spans and context.policy.coordinator_access is not CoordinatorAccess.LOG:
        return _rests_until(producer, context)
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
            or span.was_proven_unowned
        )
        if has_history or partition not in view.participants:
            return None
    thresholds = context.thresholds(view)
    age_ms = context.age_ms(view)
    if not thresholds or age_ms > thresholds[0].age_ms:
        return None  # the thresholds ascend, and the doubt begins with the last
    return context.now_ms + thresholds[0].age_ms - context.assumed_age_ms(view, age_ms)


def due_ms(producer: ProducerState, context: BarrierContext) -> TimestampMs:
    """When, by our clock, the producer must be evaluated next if no fact arrives before; 0 is at every barrier."""
    if context.policy.coordinator_access is not CoordinatorAccess.LOG:
        return _next_due_ms(producer, context)
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
        age_ms = context.age_ms(view)
        assumed_ms = context.assumed_age_ms(view, age_ms)
        thresholds = context.thresholds(view)
        passed = overdue(thresholds, age_ms)
        if passed is not None:
            before = producer.emissions.get(passed.verdict)
            dues.append(AT_ONCE if before is None else before.next_ms)
        held = [span for partition, span in producer.spans.items() if view.holds(partition)]
        if held:
            doubted = producer.emissions.get(COVER)
            doubt_from_ms = context.now_ms + max(
                NO_TIME, doubt_ms(view, context.policy, context.scan_interval_ms) - assumed_ms
            )
            dues.append(doubt_from_ms if doubted is None else doubted.next_ms)
            dues.extend(max(doubt_from_ms, _old_enough_ms(span, context)) for span in held if span.emission is None)
        dues.extend(context.now_ms + ahead.age_ms - assumed_ms for ahead in thresholds if ahead.age_ms >= age_ms)
    return min(dues, default=NEVER_MS)


def _over(producer: ProducerState, context: BarrierContext) -> list[TopicPartition]:
    """Spans that a census no longer showed, on partitions read to an end that was listed after it."""
    return [
        partition
        for partition, span in producer.spans.items()
        if span.ended_at is not None and span.ended_at < context.barrier.number and not context.is_unproven(partition)
    ]


def _judge_time(producer: ProducerState, context: BarrierContext) -> Step:
    view = producer.view
    if view is None or not view.is_live or not context.is_read(view):
        return Step(producer)
    age_ms = context.age_ms(view)
    passed = overdue(context.thresholds(view), age_ms)
    if passed is None:
        return Step(producer)
    before = producer.emissions.get(passed.verdict)
    if not context.is_due(before):
        return Step(producer)
    candidate = TransactionCandidate(
        verdict=passed.verdict,
        producer_id=producer.producer_id,
        view=view,
        overdue_ms=age_ms - passed.age_ms,
        barrier=context.barrier.number,
        coordinator_listed_ms=context.barrier.coordinator_listed_ms,
        age_ms=age_ms,
    )
    emissions = {**producer.emissions, passed.verdict: context.next_emission(before)}
    return Step(replace(producer, emissions=emissions), (candidate,))
