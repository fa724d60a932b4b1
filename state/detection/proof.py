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

from collections.abc import Container
from enum import StrEnum
from typing import NamedTuple

from msgspec.structs import replace

from txnwatch.state.model.facts import Barrier
from txnwatch.state.model.ids import BarrierNumber, TopicPartition
from txnwatch.state.model.transaction import CoordinatorView, ProducerState, Span, TransactionState
from txnwatch.state.model.verdicts import Reason


class Look(StrEnum):
    """What one barrier shows about one span. Only UNCOVERED counts towards a verdict."""

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
    unread_coordinator: Container[int],
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
        unproven = view.log_partition in barrier.stale_coordinator or view.log_partition in unread_coordinator
    if unproven:
        return Look.COORDINATOR_UNPROVEN
    if view is not None and view.holds(partition):
        return Look.COVERED
    return Look.UNCOVERED if barrier.number >= span.eligible_from else Look.TOO_EARLY


def reason_of(view: CoordinatorView | None, partition: TopicPartition) -> Reason:
    """Why the span has no owner, according to the coordinators' log; the confirming read may find a better reason."""
    if view is None or view.state is TransactionState.DEAD:
        return Reason.NO_TRANSACTIONAL_ID
    if view.superseded_by is not None:
        return Reason.PRODUCER_ID_SUPERSEDED
    if view.is_live and partition not in view.participants:
        return Reason.NOT_A_PARTICIPANT
    if view.state is TransactionState.EMPTY:
        return Reason.NOT_STARTED
    return Reason.ALREADY_COMPLETED if partition in view.participants else Reason.NOT_A_PARTICIPANT


class Phase(StrEnum):
    """How far the proof about a span is; the value is used in the docs."""

    OPEN = "open"
    UNOWNED = "unowned"
    HANGING = "hanging"
    RESTARTED = "hanging, proof restarted"
    ABSORBED = "absorbed"
    UNOWNED_AGAIN = "absorbed, unowned again"


class Sight(StrEnum):
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

# A sight is "still open" only after a first look without an owner: these phases have the columns with it.
TRANSITIONS: dict[tuple[Phase, Sight], Transition] = {
    (Phase.OPEN, Sight.HELD): Transition(Phase.OPEN),
    (Phase.OPEN, Sight.UNOWNED): Transition(Phase.UNOWNED),
    (Phase.UNOWNED, Sight.HELD): Transition(Phase.OPEN),
    (Phase.UNOWNED, Sight.HELD_STILL_OPEN): Transition(Phase.ABSORBED, Output.STRAY_WRITE),
    (Phase.UNOWNED, Sight.UNOWNED): Transition(Phase.UNOWNED, Output.WAIT),
    (Phase.UNOWNED, Sight.UNOWNED_STILL_OPEN): Transition(Phase.HANGING, Output.CANDIDATE),
    (Phase.HANGING, Sight.HELD): Transition(Phase.ABSORBED),
    (Phase.HANGING, Sight.HELD_STILL_OPEN): Transition(Phase.ABSORBED),
    (Phase.HANGING, Sight.UNOWNED): Transition(Phase.HANGING, Output.WAIT),
    (Phase.HANGING, Sight.UNOWNED_STILL_OPEN): Transition(Phase.HANGING, Output.CANDIDATE),
    (Phase.RESTARTED, Sight.HELD): Transition(Phase.ABSORBED),
    (Phase.RESTARTED, Sight.UNOWNED): Transition(Phase.HANGING),
    (Phase.ABSORBED, Sight.HELD): Transition(Phase.ABSORBED),
    (Phase.ABSORBED, Sight.UNOWNED): Transition(Phase.UNOWNED_AGAIN),
    (Phase.UNOWNED_AGAIN, Sight.HELD): Transition(Phase.ABSORBED),
    (Phase.UNOWNED_AGAIN, Sight.HELD_STILL_OPEN): Transition(Phase.ABSORBED),
    (Phase.UNOWNED_AGAIN, Sight.UNOWNED): Transition(Phase.UNOWNED_AGAIN, Output.WAIT),
    (Phase.UNOWNED_AGAIN, Sight.UNOWNED_STILL_OPEN): Transition(Phase.HANGING, Output.CANDIDATE),
}


class _Stored(NamedTuple):
    """How a span stores its phase: whether `uncovered_at` is set, `stray` and `absorbed`."""

    is_unowned: bool
    stray: bool
    absorbed: bool


_STORED: dict[Phase, _Stored] = {
    Phase.OPEN: _Stored(is_unowned=False, stray=False, absorbed=False),
    Phase.UNOWNED: _Stored(is_unowned=True, stray=False, absorbed=False),
    Phase.HANGING: _Stored(is_unowned=True, stray=True, absorbed=False),
    Phase.RESTARTED: _Stored(is_unowned=False, stray=True, absorbed=False),
    Phase.ABSORBED: _Stored(is_unowned=False, stray=True, absorbed=True),
    Phase.UNOWNED_AGAIN: _Stored(is_unowned=True, stray=True, absorbed=True),
}
_PHASE = {stored: phase for phase, stored in _STORED.items()}


def phase_of(span: Span) -> Phase:
    """How far the proof about the span is."""
    return _PHASE[_Stored(span.uncovered_at is not None, span.stray, span.stray and span.absorbed)]


def is_settled(span: Span, *, is_held: bool) -> bool:
    """Whether a look that proves something leaves the span in its phase; else it is still to come."""
    phase = phase_of(span)
    return TRANSITIONS[phase, Sight.HELD if is_held else Sight.UNOWNED].phase is phase


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
        stray=stored.stray,
        absorbed=stored.absorbed,
    )
