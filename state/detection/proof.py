"""The proof that a span hangs: what one barrier shows about it, and the table of what follows.

The proof of `hanging` (why it needs two barriers and no grace time). D(k) are the ends of the data partitions at
barrier k; T(k) are the ends of the coordinators' log, listed after them. Kafka guarantees: (a) a partition is added to
the transaction, and that record is committed to `__transaction_state`, before the first transactional batch is
appended; (b) every participant's marker is committed before Complete* is written. Take a span that is open in the data
up to D(k). If it is healthy, then by (a) its transaction is in T(k): it is live and holds the partition, or it is
complete. If it is complete, then by (b) its marker was committed before T(k), so the marker is below any end D(k')
listed after T(k). Conclusion: if no live transaction holds the span at T(k), and the span is *still* open when the
partition is read to such a D(k'), then (a) or (b) was violated and no marker will come. The last look, at a T listed
after D(k'), is for one exception only: the producer's next transaction may have added the partition again, and then its
marker will also close the old data. An unclean election of the coordinators' log can cut off the record of that
transaction after its marker was written. So the last look does not count if the log had an election since the barrier
before, or between its listing and its reading; the next barrier lists D again.

Each reason why a look proves nothing is a `Look` value of its own. It is counted, and the span waits for the next look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from msgspec.structs import replace

from txnwatch.state.detection.broker_clocks import RESERVE_MS, Clocks, Leadership
from txnwatch.state.detection.reading import ALL_READ, Unread
from txnwatch.state.detection.view import is_shared
from txnwatch.state.model.facts import Barrier, Joined
from txnwatch.state.model.findings import Finding, SpanCandidate, StrayWrite
from txnwatch.state.model.pauses import doubled
from txnwatch.state.model.transaction import (
    CoordinatorView,
    Emission,
    LossProof,
    ProducerState,
    Span,
    TransactionState,
)
from txnwatch.state.model.values import (
    AT_ONCE,
    BarrierNumber,
    CoordinatorAccess,
    DurationMs,
    TimestampMs,
    TopicPartition,
)
from txnwatch.state.model.verdicts import DetectionPolicy, Threshold, Verdict, thresholds


class Look(StrEnum):
    """What one barrier shows about one span. Only UNCOVERED counts towards a verdict.

    COVERED is what the glossary calls held: a live transaction holds the span. UNCOVERED: by the log, none does.
    """

    COVERED = "covered"
    UNCOVERED = "uncovered"
    TOO_EARLY = "seen_after_the_barrier"
    ENDING = "a_census_did_not_show_it"
    COORDINATOR_UNPROVEN = "coordinator_log_not_read_to_its_end"
    COORDINATOR_NOT_SHOWN = "coordinator_log_not_shown"
    COORDINATOR_ASKED = "coordinator_log_not_used_coordinators_are_asked"
    COORDINATOR_NOT_USED = "coordinators_not_used"
    DATA_UNPROVEN = "partition_not_read_to_its_end"


def look_at(
    producer: ProducerState,
    partition: TopicPartition,
    span: Span,
    barrier: Barrier,
    unread_coordinator: AbstractSet[TopicPartition],
) -> Look:
    """What the coordinators' log, as far as it is proven at this barrier, shows about the owner of a span.

    `unread_coordinator` holds the partitions of `__transaction_state` with a gap. A known transactional id can only be
    in its own partition of that log; an unknown producer id can be in any of them.
    """
    if span.census_absent_at is not None:
        return Look.ENDING
    if not barrier.has_coordinator_log:
        return Look.COORDINATOR_NOT_SHOWN
    view = producer.view
    if view is None:
        unproven = bool(barrier.stale_coordinator) or bool(unread_coordinator)
    else:
        unproven = view.log in barrier.stale_coordinator or view.log in unread_coordinator
    if unproven:
        return Look.COORDINATOR_UNPROVEN
    if view is not None and view.holds(partition):
        return Look.COVERED
    return Look.UNCOVERED if barrier.number >= span.eligible_from else Look.TOO_EARLY


class Phase(StrEnum):
    """How far the proof about a span is; the value is used in the docs."""

    OPEN = "open"
    UNOWNED = "unowned"
    HANGING = "hanging"
    RESTARTED = "hanging, proof restarted"
    ABSORBED = "absorbed"
    UNOWNED_AGAIN = "absorbed, unowned again"


class BarrierShows(StrEnum):
    """What a barrier shows about a span if it proves anything; the value is used in the docs."""

    HELD = "held"
    HELD_STILL_OPEN = "held, and still open"
    UNOWNED = "unowned"
    UNOWNED_STILL_OPEN = "unowned, and still open"


class Output(StrEnum):
    """What follows, besides the next phase."""

    NOTHING = "nothing"
    WAIT = "wait"
    CANDIDATE = "candidate"
    STRAY_WRITE = "`stray_write`"


class Transition(NamedTuple):
    """One cell of the table."""

    phase: Phase
    output: Output = Output.NOTHING


PHASE_MEANS: dict[Phase, str] = {
    Phase.OPEN: "nothing is proven yet",
    Phase.UNOWNED: "one barrier has shown that no live transaction holds it",
    Phase.HANGING: "it was proven and reported; no live transaction held it when it was last evaluated",
    Phase.RESTARTED: "it was proven and reported; the proof begins again, because a transaction has held the partition "
    "since, or the log was truncated",
    Phase.ABSORBED: "it was reported, and the producer's next transaction holds it",
    Phase.UNOWNED_AGAIN: "it was absorbed; no live transaction held it when it was last evaluated",
}

# A barrier shows "still open" only after a first look without an owner: these phases have the columns with it.
TRANSITIONS: dict[tuple[Phase, BarrierShows], Transition] = {
    (Phase.OPEN, BarrierShows.HELD): Transition(Phase.OPEN),
    (Phase.OPEN, BarrierShows.UNOWNED): Transition(Phase.UNOWNED),
    (Phase.UNOWNED, BarrierShows.HELD): Transition(Phase.OPEN),
    (Phase.UNOWNED, BarrierShows.HELD_STILL_OPEN): Transition(Phase.ABSORBED, Output.STRAY_WRITE),
    (Phase.UNOWNED, BarrierShows.UNOWNED): Transition(Phase.UNOWNED, Output.WAIT),
    (Phase.UNOWNED, BarrierShows.UNOWNED_STILL_OPEN): Transition(Phase.HANGING, Output.CANDIDATE),
    (Phase.HANGING, BarrierShows.HELD): Transition(Phase.ABSORBED),
    (Phase.HANGING, BarrierShows.HELD_STILL_OPEN): Transition(Phase.ABSORBED),
    (Phase.HANGING, BarrierShows.UNOWNED): Transition(Phase.HANGING, Output.WAIT),
    (Phase.HANGING, BarrierShows.UNOWNED_STILL_OPEN): Transition(Phase.HANGING, Output.CANDIDATE),
    (Phase.RESTARTED, BarrierShows.HELD): Transition(Phase.ABSORBED),
    (Phase.RESTARTED, BarrierShows.UNOWNED): Transition(Phase.HANGING),
    (Phase.ABSORBED, BarrierShows.HELD): Transition(Phase.ABSORBED),
    (Phase.ABSORBED, BarrierShows.UNOWNED): Transition(Phase.UNOWNED_AGAIN),
    (Phase.UNOWNED_AGAIN, BarrierShows.HELD): Transition(Phase.ABSORBED),
    (Phase.UNOWNED_AGAIN, BarrierShows.HELD_STILL_OPEN): Transition(Phase.ABSORBED),
    (Phase.UNOWNED_AGAIN, BarrierShows.UNOWNED): Transition(Phase.UNOWNED_AGAIN, Output.WAIT),
    (Phase.UNOWNED_AGAIN, BarrierShows.UNOWNED_STILL_OPEN): Transition(Phase.HANGING, Output.CANDIDATE),
}


class _Stored(NamedTuple):
    """How a span stores its phase: whether `uncovered_at` is set, `was_proven_unowned` and `absorbed`."""

    is_unowned: bool
    was_proven_unowned: bool
    absorbed: bool


_STORED: dict[Phase, _Stored] = {
    Phase.OPEN: _Stored(is_unowned=False, was_proven_unowned=False, absorbed=False),
    Phase.UNOWNED: _Stored(is_unowned=True, was_proven_unowned=False, absorbed=False),
    Phase.HANGING: _Stored(is_unowned=True, was_proven_unowned=True, absorbed=False),
    Phase.RESTARTED: _Stored(is_unowned=False, was_proven_unowned=True, absorbed=False),
    Phase.ABSORBED: _Stored(is_unowned=False, was_proven_unowned=True, absorbed=True),
    Phase.UNOWNED_AGAIN: _Stored(is_unowned=True, was_proven_unowned=True, absorbed=True),
}
_PHASE = {stored: phase for phase, stored in _STORED.items()}


def phase_of(span: Span) -> Phase:
    """How far the proof about the span is."""
    return _PHASE[
        _Stored(span.uncovered_at is not None, span.was_proven_unowned, span.was_proven_unowned and span.absorbed)
    ]


def is_settled(span: Span, *, is_held: bool) -> bool:
    """Whether a look that proves something leaves the span in its phase; else it is still to come."""
    phase = phase_of(span)
    return TRANSITIONS[phase, BarrierShows.HELD if is_held else BarrierShows.UNOWNED].phase is phase


def in_phase(span: Span, phase: Phase, barrier_number: BarrierNumber) -> Span:
    """The span in a phase that it has reached at a barrier; the same object if the phase does not change."""
    if phase is phase_of(span):
        return span
    stored, was_unowned = _STORED[phase], span.uncovered_at is not None
    first_look = (span.uncovered_at if was_unowned else barrier_number) if stored.is_unowned else None
    return replace(
        span,
        uncovered_at=first_look,
        reseen_at=None if was_unowned and not stored.is_unowned else span.reseen_at,
        was_proven_unowned=stored.was_proven_unowned,
        absorbed=stored.absorbed,
    )


# The inputs for evaluating producers at one barrier, and what this barrier's listings cover.


@dataclass(frozen=True, slots=True)
class BarrierContext:
    """The inputs for evaluating every producer of a bucket at one barrier.

    Attributes:
        unread: what is not completely read, besides what the barrier names itself.
        clocks: the brokers' clocks.
        waiting: counts, filled during the evaluation, of looks that proved nothing.
        wanted: filled during the evaluation: partitions whose next census would help a proof.
    """

    barrier: Barrier
    policy: DetectionPolicy
    unread: Unread = ALL_READ
    clocks: Clocks = field(default_factory=Clocks)
    waiting: Counter[str] = field(default_factory=Counter)
    wanted: set[TopicPartition] = field(default_factory=set)
    _thresholds: dict[tuple[TransactionState, DurationMs], tuple[Threshold, ...]] = field(default_factory=dict)
    _ahead: dict[int, DurationMs] = field(default_factory=dict)

    @property
    def now_ms(self) -> TimestampMs:
        """Our clock at this barrier."""
        return self.barrier.coordinator_listed_ms

    @property
    def scan_interval_ms(self) -> DurationMs:
        """How often coordinators look for expired transactions."""
        return self.policy.scan_interval_ms(self.barrier.scan_interval_ms)

    def thresholds(self, view: CoordinatorView) -> tuple[Threshold, ...]:
        """The time-based verdicts of a live transaction; of many transactions the state and the timeout are equal."""
        kind = view.state, view.timeout_ms
        limits = self._thresholds.get(kind)
        if limits is None:
            limits = self._thresholds[kind] = thresholds(view, self.policy, self.scan_interval_ms)
        return limits

    def ahead_ms(self, view: CoordinatorView) -> DurationMs:
        """How far the clock of the view's coordinator is presumed to be ahead of ours."""
        ahead_ms = self._ahead.get(view.log_partition)
        if ahead_ms is None:
            ahead_ms = self._ahead[view.log_partition] = self.clocks.ahead_ms(view.log, self.now_ms)
        return ahead_ms

    def age_ms(self, view: CoordinatorView) -> DurationMs:
        """The minimum time that a live transaction has been in its state at this barrier."""
        return self.clocks.age_ms(view, self.now_ms)

    def assumed_age_ms(self, view: CoordinatorView, age_ms: DurationMs) -> DurationMs:
        """The age for due times: as if the bound of the coordinator's clock rose by RESERVE_MS (bucket.py)."""
        return age_ms if self.clocks.of(view) is None else DurationMs(age_ms + RESERVE_MS)

    def is_behind(self, partition: TopicPartition) -> bool:
        """Whether a limit stopped the reading of the partition before its end; then a census replaces the log."""
        return partition in self.barrier.limited_data or partition in self.unread.rests

    def is_unproven(self, partition: TopicPartition) -> bool:
        """Whether the log of the partition is not read to an end that this barrier has listed."""
        return partition in self.barrier.stale_data or partition in self.unread.gaps or self.is_behind(partition)

    def stands(self, partition: TopicPartition, span: Span) -> bool:
        """Whether the last stable offset has stood at the start of the span since a census has shown the span.

        No other transaction begins there, so the span was open when the offset was listed: before T of this barrier.
        """
        at = self.barrier.standing.get(partition)
        is_seen = at is not None and span.seen_at is not None and span.seen_at >= at.since
        return at is not None and is_seen and at.offset == span.start_offset

    def is_of_old_log(self, view: CoordinatorView | None) -> bool:
        """Whether the view is from a coordinators' log that was re-created since."""
        recreated = self.unread.recreated
        return bool(recreated) and view is not None and view.reading < recreated.get(view.log, 0)

    def is_known_to_log(self, view: CoordinatorView | None) -> bool:
        """Whether the coordinators' log has named the producer id and will show its next states."""
        return view is not None and not self.is_of_old_log(view) and view.log not in self.unread.logs

    def has_coordinator(self, view: CoordinatorView) -> bool:
        """Whether the coordinator can be asked: its log partition has a leader, even if that log cannot be read."""
        is_listed = view.log not in self.barrier.stale_coordinator
        return self.barrier.has_coordinator_log and is_listed and not self.is_of_old_log(view)

    def is_read(self, view: CoordinatorView) -> bool:
        """Whether the view's log is read to an end of this barrier: a backlog after a restart must not raise alerts."""
        return self.has_coordinator(view) and view.log not in self.unread.logs

    @property
    def is_log_read(self) -> bool:
        """Whether every partition of the coordinators' log was read to a listed end once, since its reading began.

        Then a producer id that the log names has no other owner than those that it names: evidence/confirmation.py has
        the argument. A partition may have no leader now, or a range that cannot be read.
        """
        is_used = self.policy.coordinator_access is CoordinatorAccess.LOG and self.barrier.has_coordinator_log
        return is_used and not (self.unread.never or self.unread.recreated)

    def had_election(self, view: CoordinatorView | None) -> bool:
        """Whether the log that can name the owner had an election after the last barrier and before it was read now.

        The owner of an unknown producer id can be in any partition of the coordinators' log.
        """
        reigns = self.clocks.reigns
        if view is None:
            return bool(self.barrier.elected) or any(reign.since == self.barrier.number for reign in reigns.values())
        reign = reigns.get(view.log)
        is_new = reign is not None and reign.since == self.barrier.number
        return is_new or view.log in self.barrier.elected

    def next_emission(self, emission: Emission | None) -> Emission:
        """When a candidate that is emitted now is due again; the pause doubles up to a maximum."""
        times = emission.times if emission is not None else 0
        pause_ms = doubled(self.policy.repeat_first_ms, self.policy.repeat_max_ms, times)
        return Emission(times + 1, self.now_ms + pause_ms)

    def is_due(self, emission: Emission | None) -> bool:
        """Whether a candidate that was emitted before is due again."""
        return emission is None or self.now_ms >= emission.next_ms


# Looks at one open span at a barrier: what the barrier shows, and the step of the proof that follows.

_SHOWN = {
    (Look.COVERED, False): BarrierShows.HELD,
    (Look.COVERED, True): BarrierShows.HELD_STILL_OPEN,
    (Look.UNCOVERED, False): BarrierShows.UNOWNED,
    (Look.UNCOVERED, True): BarrierShows.UNOWNED_STILL_OPEN,
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
    may_be_shared = is_shared(producer.view) or not context.is_log_read
    may_have_been_held = may_be_shared if look is Look.COVERED else context.had_election(producer.view)
    shows = _SHOWN[look, is_open_since and not may_have_been_held]
    next_phase, output = TRANSITIONS[phase_of(span), shows]
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
    look = look_at(producer, partition, span, context.barrier, context.unread.logs)
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
    reign = context.clocks.reigns.get(producer.view.log) if producer.view is not None else None
    is_begun_under_it = reign is not None and reign.since < span.began_after
    return SpanCandidate(
        verdict=Verdict.HANGING,
        producer_id=producer.producer_id,
        partition=partition,
        span=span,
        view=producer.view,
        first_barrier=first_barrier,
        second_barrier=context.barrier.number,
        data_listed_ms=context.barrier.data_listed_ms,
        coordinator_listed_ms=context.barrier.coordinator_listed_ms,
        log_epoch=reign.epoch if reign is not None else None,
        is_begun_under_it=is_begun_under_it,
        is_log_read=context.is_log_read,
        proof=loss_proof(producer.view, reign, is_begun_under_it=is_begun_under_it),
    )


def loss_proof(view: CoordinatorView | None, reign: Leadership | None, *, is_begun_under_it: bool) -> LossProof:
    """What shows at a barrier that the leader of the owner's log partition has lost no record of an owner.

    Where leader epochs do not show a restart, the record and the data must be of the reign that the barrier shows.
    """
    if view is None or reign is None or not reign.leader.connection:
        return LossProof.EPOCH
    is_of_reign = view.reign == reign.since and is_begun_under_it
    return LossProof.CONNECTION if is_of_reign else LossProof.NOTHING


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

    Either the log shows it, read to an end that this barrier has listed; or the last stable offset stands at its start;
    or one census before this barrier and the latest one do. If the log is read, but not to its end, one of these is
    sufficient.
    """
    if not span.by_census and not context.is_unproven(partition):
        return True
    if context.stands(partition, span):
        return span.uncovered_at is not None and span.uncovered_at < context.barrier.number
    number = context.barrier.number
    if span.reseen_at is None or span.seen_at is None:
        return False
    return span.reseen_at < number and span.seen_at >= number - 1


def _needs_census(partition: TopicPartition, span: Span, context: BarrierContext) -> bool:
    """Whether the proof, or its repetition, needs another census, because the partition's log proves nothing now."""
    if not span.by_census and not context.is_unproven(partition):
        return False
    if context.stands(partition, span):
        return False
    is_seen = span.seen_at is not None and span.seen_at >= context.barrier.number
    return span.reseen_at is None or (context.is_due(span.emission) and not is_seen)
