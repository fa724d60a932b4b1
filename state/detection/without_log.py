"""Finds open data without the coordinators' log: to ask the coordinators about it, or because it is too old.

Law: without the log, a barrier proves nothing about an owner, so nothing here is a verdict. With access `api` the open
data is a candidate, and the ledger's fresh reads are the whole proof (docs/decisions/0027). With access `none` the data
is late if it is older than any transaction may be; the ledger reads the partition again before it is published.

All questions about open data are due at the same times, once in every `coordinator_ask_ms`. So a round costs the same
requests for one open transaction and for two hundred.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from txnwatch.state.detection.barrier_context import BarrierContext
from txnwatch.state.detection.span_look import candidate_of
from txnwatch.state.detection.step import Step
from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.state.model.findings import Finding, OwnerInDoubt
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.quantities import AT_ONCE, NEVER_MS, DurationMs, TimestampMs
from txnwatch.state.model.transaction import Emission, ProducerState, Span
from txnwatch.state.model.verdicts import Verdict


def ask_without_log(producer: ProducerState, context: BarrierContext) -> Step:
    """The producer with its open data asked about, or reported as late, where that is due."""
    if context.policy.coordinator_access is CoordinatorAccess.LOG:
        return Step(producer)
    emitted: list[Finding] = []
    spans: dict[TopicPartition, Span] = {}
    for partition, span in _candidates(producer, context):
        emitted.append(_finding(producer, partition, span, context))
        spans[partition] = replace(span, emission=_next_emission(span, context))
    return Step(replace(producer, spans={**producer.spans, **spans}) if spans else producer, tuple(emitted))


def rests_until(producer: ProducerState, context: BarrierContext) -> TimestampMs | None:
    """When open data of a producer is due without the log; None if it is due now, or a census did not show it."""
    next_ms = next_due_ms(producer, context)
    return None if next_ms <= context.now_ms else next_ms


def next_due_ms(producer: ProducerState, context: BarrierContext) -> TimestampMs:
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
