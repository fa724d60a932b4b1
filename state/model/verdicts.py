"""The verdicts: one table, and the pure rules for them. Docs and event types are generated from the table.

The proof of `hanging` (why it needs two barriers and no grace time). D(k) are the ends of the data partitions at
barrier k; T(k) are the ends of the coordinators' log, listed after them. Kafka guarantees: (a) a partition is added to
the transaction, and that record is committed to `__transaction_state`, before the first transactional batch is
appended; (b) every participant's marker is committed before Complete* is written. Take a span that is open in the data
up to D(k). If it is healthy, then by (a) its transaction is in T(k): it is live and holds the partition, or it is
complete. If it is complete, then by (b) its marker was committed before T(k), so the marker is below any end D(k')
listed after T(k). Conclusion: if no live transaction holds the span at T(k), and the span is *still* open when the
partition is read to such a D(k'), then (a) or (b) was violated and no marker will come. The last look, at a T listed
after D(k'), is for one exception only: the producer's next transaction may have added the partition again, and then its
marker will also close the old data.

Each reason why a look proves nothing is a `Look` value of its own. It is counted, and the span waits for the next look.
"""

from __future__ import annotations

from collections.abc import Container
from enum import StrEnum
from typing import NamedTuple

from txnwatch.state.model.facts import Barrier
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.policy import TWO_PHASE_TIMEOUT_MS, DetectionPolicy
from txnwatch.state.model.transaction import CoordinatorView, ProducerState, Span, TransactionState


class Verdict(StrEnum):
    """What is wrong with a transaction; the value is used in events and on the command line."""

    HANGING = "hanging"
    STUCK_PREPARE = "stuck_prepare"
    LATE = "late"
    LONG_RUNNING = "long_running"
    STRAY_WRITE = "stray_write"


class Severity(StrEnum):
    """How urgent a verdict is."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Reason(StrEnum):
    """Why no marker will come for a hanging span."""

    NO_TRANSACTIONAL_ID = "no_transactional_id"
    NOT_STARTED = "not_started"
    ALREADY_COMPLETED = "already_completed"
    NOT_A_PARTICIPANT = "not_a_participant"
    PRODUCER_ID_SUPERSEDED = "producer_id_superseded"


REASON_MEANS: dict[Reason, str] = {
    Reason.NO_TRANSACTIONAL_ID: "no transactional id has this producer id any more (it expired, or was lost)",
    Reason.NOT_STARTED: "the id was initialised, but no transaction was begun: the data is a stray write",
    Reason.ALREADY_COMPLETED: "the transaction is complete: its marker was lost, or the data came after its marker",
    Reason.NOT_A_PARTICIPANT: "this partition is not a participant of the id's last transaction",
    Reason.PRODUCER_ID_SUPERSEDED: "the id has another producer id now",
}


class VerdictRule(NamedTuple):
    """One row of the verdict table."""

    verdict: Verdict
    family: str
    severity: Severity
    when: str
    says: str
    ends_by_itself: str


VERDICTS: tuple[VerdictRule, ...] = (
    VerdictRule(
        Verdict.HANGING,
        "span",
        Severity.CRITICAL,
        "open on a partition, held by no live transaction at two barriers, and confirmed by a fresh read",
        "no marker will ever come: read_committed consumers stop here until txnwatch or an administrator writes one",
        "no, unless the producer's next transaction absorbs it",
    ),
    VerdictRule(
        Verdict.STUCK_PREPARE,
        "prepare",
        Severity.CRITICAL,
        "in Prepare* for longer than `stuck_prepare_ms` (30 s)",
        "the outcome is decided, but the coordinator has not written all markers, or cannot write them",
        "yes, when the leaders of the partitions accept the markers; no, if a leader has refused one",
    ),
    VerdictRule(
        Verdict.LATE,
        "ongoing",
        Severity.WARNING,
        "in Ongoing for longer than its timeout, the brokers' scan interval and a buffer together; never for two-phase "
        "transactions",
        "the coordinator should have aborted it by now, and has not aborted it",
        "yes, but it is not known when: the coordinator still owns it",
    ),
    VerdictRule(
        Verdict.LONG_RUNNING,
        "ongoing",
        Severity.INFO,
        "in Ongoing for longer than 0.8 of its own timeout, and longer than two minutes",
        "early warning: the coordinator will abort it when its timeout is reached",
        "yes, at its timeout",
    ),
    VerdictRule(
        Verdict.STRAY_WRITE,
        "span",
        Severity.WARNING,
        "the producer's next transaction absorbed data that no transaction owned, before the data was proven to hang",
        "nothing hangs, but exactly-once was broken there: the data is committed or aborted with a transaction that it "
        "does not belong to",
        "yes, with the transaction that absorbed it",
    ),
)

RULE_OF: dict[Verdict, VerdictRule] = {rule.verdict: rule for rule in VERDICTS}
ONGOING, PREPARE = "ongoing", "prepare"


class Look(StrEnum):
    """What one barrier shows about one span. Only UNCOVERED counts towards a verdict."""

    COVERED = "covered"
    UNCOVERED = "uncovered"
    TOO_EARLY = "seen_after_the_barrier"
    ENDING = "a_census_did_not_show_it"
    COORDINATOR_UNPROVEN = "coordinator_log_not_read_to_its_end"
    COORDINATOR_NOT_SHOWN = "coordinator_log_not_shown"
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


class Threshold(NamedTuple):
    """The age above which a live transaction in its current state gets the verdict."""

    verdict: Verdict
    age_ms: int


def thresholds(view: CoordinatorView, policy: DetectionPolicy, scan_interval_ms: int) -> tuple[Threshold, ...]:
    """The time-based verdicts of a live transaction, by ascending age; broker_clocks.py has its minimum age."""
    if view.state.is_prepare:
        return (Threshold(Verdict.STUCK_PREPARE, policy.stuck_prepare_ms),)
    if view.state is not TransactionState.ONGOING or view.timeout_ms == TWO_PHASE_TIMEOUT_MS:
        return ()
    late = view.timeout_ms + scan_interval_ms + policy.late_buffer_ms
    warn = max(int(view.timeout_ms * policy.long_running_fraction), policy.long_running_min_ms)
    found = (Threshold(Verdict.LONG_RUNNING, warn), Threshold(Verdict.LATE, late))
    return found if warn < view.timeout_ms else found[1:]


def doubt_ms(view: CoordinatorView, policy: DetectionPolicy, scan_interval_ms: int) -> int:
    """The age from which on the coordinator is asked whether a live transaction still holds its spans."""
    found = thresholds(view, policy, scan_interval_ms)
    return found[-1].age_ms if found else policy.two_phase_check_ms


def overdue(found: tuple[Threshold, ...], age_ms: int) -> Threshold | None:
    """The highest threshold that a transaction has passed, or None."""
    return next((threshold for threshold in reversed(found) if age_ms > threshold.age_ms), None)
