"""What a barrier makes of one producer: looks at its open spans, and the rules that rest on time.

Level-triggered: a candidate is said again, after one second and then with doubling pauses, until its span closes
or is covered. A confirmation that could not run is so tried again, and a refuted one needs no way back to here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field, replace

from txnwatch.state.emitted import CoverInDoubt, Emitted, SpanCandidate, StrayWrite, TransactionCandidate
from txnwatch.state.facts import Barrier, Joined
from txnwatch.state.ids import TopicPartition
from txnwatch.state.machine import Step, dropped
from txnwatch.state.policy import TWO_PHASE_TIMEOUT_MS, DetectionPolicy
from txnwatch.state.transaction import COVER, CoordinatorView, ProducerState, Said, Span
from txnwatch.state.verdict import (
    Look,
    Verdict,
    doubt_ms,
    look_at,
    overdue,
    reason_of,
    thresholds,
)


@dataclass(frozen=True, slots=True)
class Bench:
    """What every producer of a bucket is judged by at one barrier.

    Attributes:
        gaps, coordinator_gaps: partitions with a range that was listed and could not be read.
        clock_offset_ms: the broker's clock minus ours, the latest estimate.
        waiting: counts, filled while judging, of looks that proved nothing.
        wanted: filled while judging: partitions whose next census would prove something.
    """

    barrier: Barrier
    policy: DetectionPolicy
    gaps: Container[TopicPartition] = ()
    coordinator_gaps: Container[int] = ()
    clock_offset_ms: int = 0
    waiting: Counter[str] = field(default_factory=Counter)
    wanted: set[TopicPartition] = field(default_factory=set)

    @property
    def now_ms(self) -> int:
        """Our clock at this barrier."""
        return self.barrier.coordinator_listed_ms

    @property
    def broker_now_ms(self) -> int:
        """The broker's clock at this barrier, as far as it is known."""
        return self.now_ms + self.clock_offset_ms


def judge(producer: ProducerState, bench: Bench) -> Step:
    """The producer after one barrier, and the candidates that are due."""
    emitted: list[Emitted] = []
    for partition in _over(producer, bench):
        step = dropped(producer, partition)
        producer = step.producer
        emitted.extend(step.emitted)
    spans: dict[TopicPartition, Span] = {}
    for partition, span in producer.spans.items():
        judged, said = _judge_span(producer, partition, span, bench)
        emitted.extend(said)
        if judged is not span:
            spans[partition] = judged
    if spans:
        producer = replace(producer, spans={**producer.spans, **spans})
    step = _judge_time(producer, bench)
    doubted = _doubt_covers(step.producer, bench)
    return Step(doubted.producer, (*emitted, *step.emitted, *doubted.emitted))


def _over(producer: ProducerState, bench: Bench) -> list[TopicPartition]:
    """Spans that a census no longer showed, on partitions read to an end that was listed after it."""
    return [
        partition
        for partition, span in producer.spans.items()
        if span.over_at is not None and span.over_at < bench.barrier.number and not _data_unproven(partition, bench)
    ]


def _judge_span(
    producer: ProducerState, partition: TopicPartition, span: Span, bench: Bench
) -> tuple[Span, tuple[Emitted, ...]]:
    look = look_at(producer, partition, span, bench.barrier, bench.coordinator_gaps)
    if look is Look.COVERED:
        return _covered(producer, partition, span, bench)
    if look is Look.UNCOVERED:
        if span.by_census and _needs_census(span, bench):
            bench.wanted.add(partition)
        if span.uncovered_at is None:
            return replace(span, uncovered_at=bench.barrier.number), ()
        if _is_still_open(partition, span, bench):
            return _proven(producer, partition, span, bench, span.uncovered_at)
        look = Look.DATA_UNPROVEN
    if look is Look.ENDING and span.over_at is None:
        bench.wanted.add(partition)
    bench.waiting[look] += 1
    return span, ()


def _proven(
    producer: ProducerState, partition: TopicPartition, span: Span, bench: Bench, first_barrier: int
) -> tuple[Span, tuple[Emitted, ...]]:
    if span.said is not None and bench.now_ms < span.said.next_ms:
        return span, ()
    candidate = _candidate(producer, partition, span, bench, first_barrier)
    return replace(span, said=_again(span.said, bench), stray=True, absorbed=False), (candidate,)


def _covered(
    producer: ProducerState, partition: TopicPartition, span: Span, bench: Bench
) -> tuple[Span, tuple[Emitted, ...]]:
    """A live transaction holds the span now. If it was proven that none did before, that one has absorbed it."""
    if span.uncovered_at is None:
        return (replace(span, absorbed=True) if span.stray and not span.absorbed else span), ()
    anew = replace(span, uncovered_at=None, reseen_at=None, absorbed=span.stray)
    if span.stray or not _is_still_open(partition, span, bench):
        return anew, ()
    stray = StrayWrite(
        producer_id=producer.producer_id,
        partition=partition,
        topic_id=span.topic_id,
        joined=Joined(span.start_offset, span.oldest_epoch, -1, span.epoch),
        view=producer.view,
        last_timestamp_ms=span.last_timestamp_ms,
        first_seen_ms=span.first_seen_ms,
        first_barrier=span.uncovered_at,
        second_barrier=bench.barrier.number,
    )
    return replace(anew, stray=True, absorbed=True, said=Said(0, 0)), (stray,)


def _is_still_open(partition: TopicPartition, span: Span, bench: Bench) -> bool:
    """Whether the span was seen open after the look that found it uncovered, and before this look.

    In the log, read to an end that this barrier has listed; or by a census before this barrier, and just now.
    """
    if not span.by_census:
        return not _data_unproven(partition, bench)
    number = bench.barrier.number
    return span.reseen_at is not None and span.reseen_at < number and span.seen_at >= number - 1


def _needs_census(span: Span, bench: Bench) -> bool:
    """Whether the proof, or its repetition, waits for another look at a partition that is not scanned."""
    is_due = span.said is None or span.said.next_ms <= bench.now_ms
    return span.reseen_at is None or (is_due and span.seen_at < bench.barrier.number)


def _data_unproven(partition: TopicPartition, bench: Bench) -> bool:
    barrier = bench.barrier
    return partition in barrier.stale_data or partition in barrier.limited_data or partition in bench.gaps


def _candidate(
    producer: ProducerState, partition: TopicPartition, span: Span, bench: Bench, first_barrier: int
) -> SpanCandidate:
    return SpanCandidate(
        verdict=Verdict.HANGING,
        reason=reason_of(producer.view, partition),
        producer_id=producer.producer_id,
        partition=partition,
        span=span,
        view=producer.view,
        first_barrier=first_barrier,
        second_barrier=bench.barrier.number,
        data_listed_ms=bench.barrier.data_listed_ms,
        coordinator_listed_ms=bench.barrier.coordinator_listed_ms,
    )


def _judge_time(producer: ProducerState, bench: Bench) -> Step:
    view = producer.view
    if view is None or not view.is_live or not _is_read(view, bench):
        return Step(producer)
    passed = overdue(thresholds(view, bench.policy, bench.clock_offset_ms), bench.broker_now_ms)
    if passed is None:
        return Step(producer)
    said = producer.said.get(passed.verdict)
    if said is not None and bench.now_ms < said.next_ms:
        return Step(producer)
    candidate = TransactionCandidate(
        verdict=passed.verdict,
        producer_id=producer.producer_id,
        view=view,
        spans=tuple((partition, span.start_offset) for partition, span in sorted(producer.spans.items())),
        overdue_ms=bench.broker_now_ms - passed.at_ms,
        barrier=bench.barrier.number,
        coordinator_listed_ms=bench.barrier.coordinator_listed_ms,
        broker_now_ms=bench.broker_now_ms,
    )
    return Step(replace(producer, said={**producer.said, passed.verdict: _again(said, bench)}), (candidate,))


def _is_read(view: CoordinatorView, bench: Bench) -> bool:
    """Whether its log is read to an end of this barrier: hours of backlog after a restart must not raise a storm."""
    log_partition = view.log_partition
    return log_partition not in bench.barrier.stale_coordinator and log_partition not in bench.coordinator_gaps


def _doubt_covers(producer: ProducerState, bench: Bench) -> Step:
    """What a transaction that has outlived its time holds: a view gone stale must not cover a hang for ever."""
    view = producer.view
    if view is None or not view.is_live or not _is_read(view, bench):
        return Step(producer)
    if bench.broker_now_ms <= doubt_ms(view, bench.policy, bench.clock_offset_ms):
        return Step(producer)
    said = producer.said.get(COVER)
    if said is not None and bench.now_ms < said.next_ms:
        return Step(producer)
    held = [(partition, span) for partition, span in sorted(producer.spans.items()) if view.holds(partition)]
    if not held:
        return Step(producer)
    number = bench.barrier.number
    asked = tuple(CoverInDoubt(_candidate(producer, partition, span, bench, number)) for partition, span in held)
    next_ms = bench.now_ms + bench.policy.two_phase_check_ms
    again = Said(1, next_ms) if _is_two_phase(view) else _again(said, bench)
    # It may be told now, without our being told; so its end will be said.
    doubted = {partition: replace(span, said=span.said or Said(0, 0)) for partition, span in held}
    return Step(
        replace(producer, said={**producer.said, COVER: again}, spans={**producer.spans, **doubted}),
        asked,
    )


def _is_two_phase(view: CoordinatorView) -> bool:
    return view.timeout_ms == TWO_PHASE_TIMEOUT_MS and not view.state.is_prepare


def _again(said: Said | None, bench: Bench) -> Said:
    times = said.times if said is not None else 0
    pause = min(bench.policy.repeat_first_ms * 2**times, bench.policy.repeat_max_ms)
    return Said(times + 1, bench.now_ms + pause)


def due_ms(producer: ProducerState, bench: Bench) -> int:
    """When, on our clock, the producer must be looked at next if no fact touches it before; 0 is at every barrier."""
    view = producer.view
    dues: list[int] = [
        0 if span.said is None or span.absent_at is not None else span.said.next_ms
        for partition, span in producer.spans.items()
        if view is None or not view.holds(partition) or span.absent_at is not None
    ]
    if view is not None and view.is_live:
        found = thresholds(view, bench.policy, bench.clock_offset_ms)
        passed = overdue(found, bench.broker_now_ms)
        if passed is not None:
            said = producer.said.get(passed.verdict)
            dues.append(0 if said is None else said.next_ms)
        if any(view.holds(partition) for partition in producer.spans):
            doubted = producer.said.get(COVER)
            from_ms = doubt_ms(view, bench.policy, bench.clock_offset_ms) - bench.clock_offset_ms
            dues.append(from_ms if doubted is None else doubted.next_ms)
        dues.extend(ahead.at_ms - bench.clock_offset_ms for ahead in found if ahead.at_ms >= bench.broker_now_ms)
    return min(dues, default=NEVER_MS)


NEVER_MS = 2**63 - 1
