"""Evaluates one producer at a barrier: looks at its open spans, and the time-based rules.

Level-triggered: a candidate is emitted again, after one second and then with doubling pauses, until its span closes or
is covered. So a confirmation that could not run is tried again, and a refuted one needs no message back to here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from txnwatch.state.detection.transitions import Step, dropped
from txnwatch.state.model.backoff import doubled
from txnwatch.state.model.broker_clocks import NOT_LISTED_MS, Clocks, was_listed
from txnwatch.state.model.facts import Barrier, Joined
from txnwatch.state.model.findings import (
    CoverInDoubt,
    Emitted,
    OwnerInDoubt,
    SpanCandidate,
    StrayWrite,
    TransactionCandidate,
)
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.policy import TWO_PHASE_TIMEOUT_MS, DetectionPolicy
from txnwatch.state.model.transaction import COVER, CoordinatorView, Emission, ProducerState, Span
from txnwatch.state.model.verdicts import (
    Look,
    Verdict,
    doubt_ms,
    look_at,
    overdue,
    reason_of,
    thresholds,
)


@dataclass(frozen=True, slots=True)
class BarrierContext:
    """The inputs for evaluating every producer of a bucket at one barrier.

    Attributes:
        gaps, coordinator_gaps: partitions with a range that was listed and could not be read.
        left: partitions that a batch did not read to their ends because of its read limit.
        clocks: the brokers' clocks.
        recreated_logs: partitions of a re-created coordinators' log that is not completely read yet, with the number
            of the new reading; views of an earlier reading do not count.
        waiting: counts, filled during the evaluation, of looks that proved nothing.
        wanted: filled during the evaluation: partitions whose next census would help a proof.
    """

    barrier: Barrier
    policy: DetectionPolicy
    gaps: Container[TopicPartition] = ()
    coordinator_gaps: Container[int] = ()
    left: Container[TopicPartition] = ()
    clocks: Clocks = field(default_factory=Clocks)
    recreated_logs: Mapping[int, int] = field(default_factory=dict)
    waiting: Counter[str] = field(default_factory=Counter)
    wanted: set[TopicPartition] = field(default_factory=set)

    def is_behind(self, partition: TopicPartition) -> bool:
        """Whether a limit stopped the reading of the partition before its end; then a census replaces the log."""
        return partition in self.barrier.limited_data or partition in self.left

    @property
    def now_ms(self) -> int:
        """Our clock at this barrier."""
        return self.barrier.coordinator_listed_ms

    @property
    def scan_interval_ms(self) -> int:
        """How often coordinators look for expired transactions."""
        return self.policy.scan_interval_ms(self.barrier.scan_interval_ms)

    def age_ms(self, view: CoordinatorView) -> int:
        """The minimum time that a live transaction has been in its state at this barrier."""
        return self.clocks.age_ms(view, self.now_ms)


def judge(producer: ProducerState, bench: BarrierContext) -> Step:
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
    producer = _listed(producer, bench)
    for rule in (_judge_time, _doubt_covers, _doubt_owner):
        producer, said = rule(producer, bench)
        emitted.extend(said)
    return Step(producer, tuple(emitted))


def at_rest_until(producer: ProducerState, bench: BarrierContext) -> int | None:
    """The value of `due_ms` for a producer that `judge` would not change and not report; None if it might.

    This is the fast path for nearly all producers at nearly all barriers: idle ones, and those with a young transaction
    that holds everything open.
    """
    view = producer.view
    if view is None or not view.is_live:
        is_idle = not producer.spans and (view is None or view.since_ms != NOT_LISTED_MS)
        return NEVER_MS if is_idle else None
    if view.since_ms == NOT_LISTED_MS or producer.said or not _is_read(view, bench):
        return None
    for partition, span in producer.spans.items():
        is_told = (
            span.census_absent_at is not None
            or span.ended_at is not None
            or span.uncovered_at is not None
            or span.stray
        )
        if is_told or partition not in view.participants:
            return None
    age_ms, found = bench.age_ms(view), thresholds(view, bench.policy, bench.scan_interval_ms)
    if not found or age_ms > found[0].age_ms:
        return None  # the thresholds ascend, and the doubt begins with the last
    return bench.now_ms + found[0].age_ms - age_ms


def _over(producer: ProducerState, bench: BarrierContext) -> list[TopicPartition]:
    """Spans that a census no longer showed, on partitions read to an end that was listed after it."""
    return [
        partition
        for partition, span in producer.spans.items()
        if span.ended_at is not None and span.ended_at < bench.barrier.number and not _data_unproven(partition, bench)
    ]


def _judge_span(
    producer: ProducerState, partition: TopicPartition, span: Span, bench: BarrierContext
) -> tuple[Span, tuple[Emitted, ...]]:
    look = _look(producer, partition, span, bench)
    if look is Look.COVERED:
        return _covered(producer, partition, span, bench)
    if look is Look.UNCOVERED:
        if span.seen_at >= 0 and _needs_census(partition, span, bench):
            bench.wanted.add(partition)
        if span.uncovered_at is None:
            return replace(span, uncovered_at=bench.barrier.number), ()
        if _is_still_open(partition, span, bench):
            return _proven(producer, partition, span, bench, span.uncovered_at)
        look = Look.DATA_UNPROVEN
    if look is Look.ENDING and span.ended_at is None and not bench.is_behind(partition):
        bench.wanted.add(partition)
    bench.waiting[look] += 1
    return span, ()


def _look(producer: ProducerState, partition: TopicPartition, span: Span, bench: BarrierContext) -> Look:
    look = look_at(producer, partition, span, bench.barrier, bench.coordinator_gaps)
    is_told = look in {Look.COVERED, Look.UNCOVERED, Look.TOO_EARLY}
    return Look.COORDINATOR_UNPROVEN if is_told and _is_of_old_log(producer.view, bench) else look


def _is_told_by_its_log(view: CoordinatorView | None, bench: BarrierContext) -> bool:
    """Whether the coordinators' log has named the producer id and will show its next states."""
    return view is not None and not _is_of_old_log(view, bench) and view.log_partition not in bench.coordinator_gaps


def _is_of_old_log(view: CoordinatorView | None, bench: BarrierContext) -> bool:
    return view is not None and view.reading < bench.recreated_logs.get(view.log_partition, 0)


def _proven(
    producer: ProducerState, partition: TopicPartition, span: Span, bench: BarrierContext, first_barrier: int
) -> tuple[Span, tuple[Emitted, ...]]:
    if span.said is not None and bench.now_ms < span.said.next_ms:
        return span, ()
    candidate = _candidate(producer, partition, span, bench, first_barrier)
    return replace(span, said=_again(span.said, bench), stray=True, absorbed=False), (candidate,)


def _covered(
    producer: ProducerState, partition: TopicPartition, span: Span, bench: BarrierContext
) -> tuple[Span, tuple[Emitted, ...]]:
    """A live transaction holds the span now. If it was proven that none did before, this one has absorbed it."""
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
    return replace(anew, stray=True, absorbed=True, said=Emission(0, 0)), (stray,)


def _is_still_open(partition: TopicPartition, span: Span, bench: BarrierContext) -> bool:
    """Whether the span was seen open after the look that found it uncovered, and before this look.

    Either the log shows it, read to an end that this barrier has listed; or one census before this barrier and the
    latest one do. If the log is read, but not to its end, one of the two is sufficient.
    """
    if not span.by_census and not _data_unproven(partition, bench):
        return True
    number = bench.barrier.number
    return span.reseen_at is not None and span.reseen_at < number and span.seen_at >= number - 1


def _needs_census(partition: TopicPartition, span: Span, bench: BarrierContext) -> bool:
    """Whether the proof, or its repetition, needs another census, because the partition's log proves nothing now."""
    if not span.by_census and not _data_unproven(partition, bench):
        return False
    is_due = span.said is None or span.said.next_ms <= bench.now_ms
    return span.reseen_at is None or (is_due and span.seen_at < bench.barrier.number)


def _data_unproven(partition: TopicPartition, bench: BarrierContext) -> bool:
    return partition in bench.barrier.stale_data or partition in bench.gaps or bench.is_behind(partition)


def _candidate(
    producer: ProducerState, partition: TopicPartition, span: Span, bench: BarrierContext, first_barrier: int
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


def _listed(producer: ProducerState, bench: BarrierContext) -> ProducerState:
    """Sets `since_ms` at the first listing that can show a record that was read before any such listing."""
    view = producer.view
    if view is None or view.since_ms != NOT_LISTED_MS or not was_listed(view, bench.barrier):
        return producer
    return replace(producer, view=replace(view, since_ms=bench.now_ms))


def _judge_time(producer: ProducerState, bench: BarrierContext) -> Step:
    view = producer.view
    if view is None or not view.is_live or not _is_read(view, bench):
        return Step(producer)
    age_ms = bench.age_ms(view)
    passed = overdue(thresholds(view, bench.policy, bench.scan_interval_ms), age_ms)
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
        overdue_ms=age_ms - passed.age_ms,
        barrier=bench.barrier.number,
        coordinator_listed_ms=bench.barrier.coordinator_listed_ms,
        age_ms=age_ms,
    )
    return Step(replace(producer, said={**producer.said, passed.verdict: _again(said, bench)}), (candidate,))


def _is_read(view: CoordinatorView, bench: BarrierContext) -> bool:
    """Whether the view's log is read to an end of this barrier: a backlog after a restart must not raise alerts."""
    log_partition = view.log_partition
    is_unread = log_partition in bench.barrier.stale_coordinator or log_partition in bench.coordinator_gaps
    return bench.barrier.has_coordinator_log and not is_unread and not _is_of_old_log(view, bench)


def _has_coordinator(view: CoordinatorView, bench: BarrierContext) -> bool:
    is_listed = view.log_partition not in bench.barrier.stale_coordinator
    return bench.barrier.has_coordinator_log and is_listed and not _is_of_old_log(view, bench)


def _doubt_covers(producer: ProducerState, bench: BarrierContext) -> Step:
    """Asks the coordinator about spans held by an overdue transaction: an old view must not hide a hang for ever.

    The coordinator can be asked if its log partition has a leader, even if that log cannot be read.
    """
    view = producer.view
    if view is None or not view.is_live or not _has_coordinator(view, bench):
        return Step(producer)
    if bench.age_ms(view) <= doubt_ms(view, bench.policy, bench.scan_interval_ms):
        return Step(producer)
    said = producer.said.get(COVER)
    if said is not None and bench.now_ms < said.next_ms:
        return Step(producer)
    held = {partition: span for partition, span in sorted(producer.spans.items()) if view.holds(partition)}
    if not held:
        return Step(producer)
    next_ms = bench.now_ms + bench.policy.two_phase_check_ms
    again = Emission(1, next_ms) if _is_two_phase(view) else _again(said, bench)
    return _in_doubt(CoverInDoubt, producer, held, again, bench)


def _doubt_owner(producer: ProducerState, bench: BarrierContext) -> Step:
    """Asks for the owner of open data whose producer id is in no read part of the log, while another part is unread.

    A log that was re-created since names no owner. Nor does a part that its leader lists and cannot read: the
    coordinator answers from its memory. Data that a live transaction held may still be held, until the transaction's
    timeout is over.
    """
    view = producer.view
    if not producer.spans or _is_told_by_its_log(view, bench):
        return Step(producer)
    is_old = view is None or _is_of_old_log(view, bench)
    held = {} if is_old else {at: span for at, span in producer.spans.items() if view is not None and view.holds(at)}
    others = {at: span for at, span in producer.spans.items() if at not in held}
    step = _ask_for_owner(replace(producer, view=None, spans=others), bench)
    return Step(replace(step.producer, view=view, spans={**step.producer.spans, **held}), step.emitted)


def _ask_for_owner(producer: ProducerState, bench: BarrierContext) -> Step:
    said = producer.said.get(COVER)
    if said is not None and bench.now_ms < said.next_ms:
        return Step(producer)
    unread = {
        partition: span
        for partition, span in sorted(producer.spans.items())
        if bench.now_ms - span.first_seen_ms >= bench.policy.owner_unread_ms
        and _look(producer, partition, span, bench) is Look.COORDINATOR_UNPROVEN
    }
    return _in_doubt(OwnerInDoubt, producer, unread, _again(said, bench), bench) if unread else Step(producer)


def _in_doubt(
    kind: type[CoverInDoubt | OwnerInDoubt],
    producer: ProducerState,
    spans: dict[TopicPartition, Span],
    again: Emission,
    bench: BarrierContext,
) -> Step:
    """Asks the coordinators. The ledger may report these spans, so their ends are always emitted."""
    number = bench.barrier.number
    asked = tuple(kind(_candidate(producer, partition, span, bench, number)) for partition, span in spans.items())
    doubted = {partition: replace(span, said=span.said or Emission(0, 0)) for partition, span in spans.items()}
    return Step(replace(producer, said={**producer.said, COVER: again}, spans={**producer.spans, **doubted}), asked)


def _is_two_phase(view: CoordinatorView) -> bool:
    return view.timeout_ms == TWO_PHASE_TIMEOUT_MS and not view.state.is_prepare


def _again(said: Emission | None, bench: BarrierContext) -> Emission:
    times = said.times if said is not None else 0
    pause = doubled(bench.policy.repeat_first_ms, bench.policy.repeat_max_ms, times)
    return Emission(times + 1, bench.now_ms + pause)


def due_ms(producer: ProducerState, bench: BarrierContext) -> int:
    """When, by our clock, the producer must be evaluated next if no fact arrives before; 0 is at every barrier."""
    view = producer.view
    dues: list[int] = [
        0 if span.said is None or span.census_absent_at is not None else span.said.next_ms
        for partition, span in producer.spans.items()
        if view is None or not view.holds(partition) or span.census_absent_at is not None
    ]
    if view is not None and view.is_live:
        if view.since_ms == NOT_LISTED_MS:
            return 0
        age_ms = bench.age_ms(view)
        found = thresholds(view, bench.policy, bench.scan_interval_ms)
        passed = overdue(found, age_ms)
        if passed is not None:
            said = producer.said.get(passed.verdict)
            dues.append(0 if said is None else said.next_ms)
        if any(view.holds(partition) for partition in producer.spans):
            doubted = producer.said.get(COVER)
            left_ms = doubt_ms(view, bench.policy, bench.scan_interval_ms) - age_ms
            dues.append(bench.now_ms + max(0, left_ms) if doubted is None else doubted.next_ms)
        dues.extend(bench.now_ms + ahead.age_ms - age_ms for ahead in found if ahead.age_ms >= age_ms)
    return min(dues, default=NEVER_MS)


NEVER_MS = 2**63 - 1
