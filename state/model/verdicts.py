"""The verdicts: one table. Thresholds, ranks, incident families, metrics, events and docs derive from it.

A new verdict is a member of `Verdict` and a row of `VERDICTS`; for a verdict about the age of a live transaction, the
row has the rule. CONTRIBUTING.md names the texts and the tests that it needs besides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from functools import lru_cache
from typing import Final, NamedTuple
from zlib import crc32

from txnwatch.state.model.transaction import TransactionState, TransactionView
from txnwatch.state.model.values import CoordinatorAccess, DurationMs

# All thresholds of detection. The unit is in the name; Kafka's default is beside the value if there is one.

DEFAULT_SCAN_INTERVAL_MS = DurationMs(10_000)
TWO_PHASE_TIMEOUT_MS = DurationMs(2147483647)  # KIP-939: a transaction with this timeout is never aborted by time

CENSUS_READ_MS = DurationMs(10_000)  # data that a census shows may be younger than its batch, by the time of a batch


@dataclass(frozen=True, slots=True)
class DetectionPolicy:
    """Thresholds of the time-based rules. `hanging` has no threshold, because it is proven.

    Attributes:
        late_buffer_ms: added to a transaction's own timeout and the scan interval before it counts as late.
        coordinator_scan_interval_ms: `transaction.abort.timed.out.transaction.cleanup.interval.ms`; None uses the value
            that the brokers return, or Kafka's default (10 s) if they return none.
        stuck_prepare_ms: how long a transaction may be in Prepare* until its markers are written.
        long_running_fraction: fraction of its own timeout after which an open transaction gets an early warning.
        long_running_min_ms: the minimum age for this warning, so that a default client (60 s timeout), whose
            transaction the coordinator is about to abort, causes none.
        two_phase_check_ms: how often a coordinator is asked whether it still holds an old two-phase transaction.
        repeat_first_ms, repeat_max_ms: first and longest pause between repeats of an unresolved candidate; each
            doubles.
        listed_after_ms: a transaction that has been open this long is listed individually, for metrics, Redis, and to
            name the holder of a last stable offset. At most `blocked_offset_ms`: an unlisted transaction does not count
            as a holder.
        blocked_offset_ms: a last stable offset that has not moved for this long, and that no listed transaction holds,
            is examined by a census.
        owner_unread_ms: if part of the coordinators' log is not read, and data of an unknown producer id has been open
            for this long, the coordinators are asked for its owner.
        unreadable_tries, unreadable_ms: a range counts as lost after this many failures in a row over this time.
        idle_retention_ms: how long the state keeps the transactional id of a producer id that has nothing open.
        coordinator_access: how the coordinators' view is known.
        coordinator_ask_ms: with access `api`, the pause between two rounds of questions to the coordinators.
        longest_timeout_ms: `transaction.max.timeout.ms`, only used with access `none`; None if it is not known,
            or if no timeout limits a transaction. Then no data is late.
    """

    late_buffer_ms: DurationMs = DurationMs(5_000)
    coordinator_scan_interval_ms: DurationMs | None = None
    stuck_prepare_ms: DurationMs = DurationMs(30_000)
    long_running_fraction: float = 0.8
    long_running_min_ms: DurationMs = DurationMs(120_000)
    two_phase_check_ms: DurationMs = DurationMs(3_600_000)
    repeat_first_ms: DurationMs = DurationMs(1_000)
    repeat_max_ms: DurationMs = DurationMs(60_000)
    listed_after_ms: DurationMs = DurationMs(2_000)
    blocked_offset_ms: DurationMs = DurationMs(2_000)
    owner_unread_ms: DurationMs = DurationMs(2_000)
    unreadable_tries: int = 3
    unreadable_ms: DurationMs = DurationMs(10_000)
    idle_retention_ms: DurationMs = DurationMs(3_600_000)
    coordinator_access: CoordinatorAccess = CoordinatorAccess.LOG
    coordinator_ask_ms: DurationMs = DurationMs(5_000)
    longest_timeout_ms: DurationMs | None = None

    def open_too_long_ms(self, listed_scan_ms: DurationMs | None) -> DurationMs | None:
        """The age above which open data is older than any transaction may be; None if no limit is known."""
        if self.longest_timeout_ms is None:
            return None
        scan_ms = self.scan_interval_ms(listed_scan_ms)
        return self.longest_timeout_ms + scan_ms + self.late_buffer_ms + CENSUS_READ_MS

    def scan_interval_ms(self, listed_ms: DurationMs | None) -> DurationMs:
        """How often coordinators look for expired transactions; `listed_ms` is the value from the brokers."""
        choices = (self.coordinator_scan_interval_ms, listed_ms, DEFAULT_SCAN_INTERVAL_MS)
        return next(interval_ms for interval_ms in choices if interval_ms is not None)

    def digest(self, listed_ms: DurationMs | None) -> int:
        """A digest of all thresholds, with the scan interval that counts."""
        return _digest(self, self.scan_interval_ms(listed_ms))


@lru_cache(maxsize=4)  # each bucket asks at each barrier
def _digest(policy: DetectionPolicy, scan_interval_ms: DurationMs) -> int:
    return crc32(repr(replace(policy, coordinator_scan_interval_ms=scan_interval_ms)).encode())


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


class Family(StrEnum):
    """What a verdict is about. Verdicts of one family about one subject share an incident; its id hashes the value."""

    SPAN = "span"
    ONGOING = "ongoing"
    PREPARE = "prepare"


class EndsByItself(StrEnum):
    """Whether an open transaction ends by itself."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class WillEndBy(Enum):
    """What ends an open transaction; state/telling/ends.py has the sentences."""

    ABSORPTION = auto()  # by the producer's next transaction
    ABSORBED = auto()  # it has happened already
    MARKERS = auto()  # its outcome is decided
    CLIENT = auto()  # it has no timeout
    TIMEOUT = auto()
    TIMEOUT_IN_DOUBT = auto()  # it has passed by our clock, and it is not proven that the coordinator is late
    NO_START = auto()  # its coordinator returned no start
    LATE_COORDINATOR = auto()  # this is proven
    NO_OWNER = auto()
    REPAIR = auto()  # of its partitions, or of that of its coordinator's log: without it no marker can be written


ENDS_BY_ITSELF: Final = {
    WillEndBy.ABSORPTION: EndsByItself.NO,
    WillEndBy.ABSORBED: EndsByItself.YES,
    WillEndBy.MARKERS: EndsByItself.UNKNOWN,
    WillEndBy.CLIENT: EndsByItself.NO,
    WillEndBy.TIMEOUT: EndsByItself.YES,
    WillEndBy.TIMEOUT_IN_DOUBT: EndsByItself.UNKNOWN,
    WillEndBy.NO_START: EndsByItself.UNKNOWN,
    WillEndBy.LATE_COORDINATOR: EndsByItself.UNKNOWN,
    WillEndBy.NO_OWNER: EndsByItself.UNKNOWN,
    WillEndBy.REPAIR: EndsByItself.UNKNOWN,
}

AgeRule = Callable[[TransactionView, DetectionPolicy, DurationMs], DurationMs | None]
_DEFAULTS = DetectionPolicy()


def is_two_phase(view: TransactionView) -> bool:
    """Whether no timeout ends the transaction: it is two-phase, and its outcome is not decided."""
    return view.timeout_ms == TWO_PHASE_TIMEOUT_MS and not view.state.is_prepare


def _stuck_after_ms(_: TransactionView, policy: DetectionPolicy, __: DurationMs) -> DurationMs | None:
    return policy.stuck_prepare_ms


def late_after_ms(view: TransactionView, policy: DetectionPolicy, scan_interval_ms: DurationMs) -> DurationMs | None:
    """The age from which on the coordinator of an ongoing transaction is late; None if it has no timeout."""
    return None if is_two_phase(view) else view.timeout_ms + scan_interval_ms + policy.late_buffer_ms


def _long_running_after_ms(view: TransactionView, policy: DetectionPolicy, _: DurationMs) -> DurationMs | None:
    """None also if the age of the warning is not below the timeout: then the coordinator aborts first."""
    age_ms = max(DurationMs(int(view.timeout_ms * policy.long_running_fraction)), policy.long_running_min_ms)
    return age_ms if not is_two_phase(view) and age_ms < view.timeout_ms else None


class VerdictRule(NamedTuple):
    """One row of the verdict table.

    Attributes:
        when, meaning: text for the docs.
        ends_by: what ends a transaction with this verdict.
        age_rule: the age above which a live transaction of this family has the verdict, by its view, the policy and the
            scan interval of its coordinator; None if the verdict depends on more than the age, or does not apply.
        is_past_timeout: the verdict says that the timeout has passed, so the coordinator's own clock can refute it.
        needs_marker: no marker will come, so txnwatch may write one.
        is_read_again: a fresh read confirms it before it is published; else the log alone proves it.
    """

    verdict: Verdict
    family: Family
    severity: Severity
    when: str
    meaning: str
    ends_by: WillEndBy
    age_rule: AgeRule | None = None
    is_past_timeout: bool = False
    needs_marker: bool = False
    is_read_again: bool = True


# The order is the rank: the worst verdict is first.
VERDICTS: tuple[VerdictRule, ...] = (
    VerdictRule(
        Verdict.HANGING,
        Family.SPAN,
        Severity.CRITICAL,
        "open on a partition, held by no live transaction at two barriers, and confirmed by a fresh read",
        "no marker will ever come: read_committed consumers stop here until txnwatch or an administrator writes one",
        WillEndBy.ABSORPTION,
        needs_marker=True,
    ),
    VerdictRule(
        Verdict.STUCK_PREPARE,
        Family.PREPARE,
        Severity.CRITICAL,
        f"in Prepare* for longer than `stuck_prepare_ms` ({_DEFAULTS.stuck_prepare_ms // 1000} s)",
        "the outcome is decided, but the coordinator has not written all markers, or cannot write them",
        WillEndBy.MARKERS,
        age_rule=_stuck_after_ms,
    ),
    VerdictRule(
        Verdict.LATE,
        Family.ONGOING,
        Severity.WARNING,
        "in Ongoing for longer than its timeout, the brokers' scan interval and `late_buffer_ms` "
        f"({_DEFAULTS.late_buffer_ms // 1000} s) together; never for two-phase transactions, which have no timeout",
        "the coordinator should have aborted it by now, and has not aborted it",
        WillEndBy.LATE_COORDINATOR,
        age_rule=late_after_ms,
        is_past_timeout=True,
    ),
    VerdictRule(
        Verdict.LONG_RUNNING,
        Family.ONGOING,
        Severity.INFO,
        f"in Ongoing for longer than `long_running_fraction` ({_DEFAULTS.long_running_fraction}) of its own timeout, "
        f"and longer than `long_running_min_ms` ({_DEFAULTS.long_running_min_ms // 1000} s)",
        "early warning: the coordinator will abort it when its timeout is reached",
        WillEndBy.TIMEOUT,
        age_rule=_long_running_after_ms,
    ),
    VerdictRule(
        Verdict.STRAY_WRITE,
        Family.SPAN,
        Severity.WARNING,
        "the producer's next transaction absorbed data that no transaction owned, before the data was proven to hang",
        "nothing hangs, but exactly-once was broken there: the data is committed or aborted with a transaction that it "
        "does not belong to",
        WillEndBy.ABSORBED,
        is_read_again=False,
    ),
)

RULE_OF: dict[Verdict, VerdictRule] = {rule.verdict: rule for rule in VERDICTS}
_RANK = {rule.verdict: rank for rank, rule in enumerate(VERDICTS)}
_FAMILY_OF_STATE = {
    TransactionState.ONGOING: Family.ONGOING,
    TransactionState.PREPARE_COMMIT: Family.PREPARE,
    TransactionState.PREPARE_ABORT: Family.PREPARE,
}
_AGE_RULES: dict[TransactionState, tuple[tuple[Verdict, AgeRule], ...]] = {
    state: tuple(
        (rule.verdict, rule.age_rule) for rule in reversed(VERDICTS) if rule.family is family and rule.age_rule
    )
    for state, family in _FAMILY_OF_STATE.items()
}


def rank(verdict: Verdict) -> int:
    """The place of the verdict in the table: a lower one is worse."""
    return _RANK[verdict]


def family_of(view: TransactionView) -> Family | None:
    """The family of time-based verdicts that can apply in this state, None in an idle state."""
    return _FAMILY_OF_STATE[view.state] if view.is_live else None


class Threshold(NamedTuple):
    """The age above which a live transaction in its current state gets the verdict."""

    verdict: Verdict
    age_ms: DurationMs


def thresholds(view: TransactionView, policy: DetectionPolicy, scan_interval_ms: DurationMs) -> tuple[Threshold, ...]:
    """The time-based verdicts of a live transaction, by ascending age; broker_clocks.py has its minimum age."""
    reached = [
        Threshold(verdict, age_ms)
        for verdict, rule in _AGE_RULES.get(view.state, ())
        if (age_ms := rule(view, policy, scan_interval_ms)) is not None
    ]
    return tuple(sorted(reached, key=_age_ms))


def _age_ms(threshold: Threshold) -> DurationMs:
    return threshold.age_ms


def doubt_ms(view: TransactionView, policy: DetectionPolicy, scan_interval_ms: DurationMs) -> DurationMs:
    """The age from which on the coordinator is asked whether a live transaction still holds its spans."""
    of_view = thresholds(view, policy, scan_interval_ms)
    return of_view[-1].age_ms if of_view else policy.two_phase_check_ms


def overdue(of_view: tuple[Threshold, ...], age_ms: DurationMs) -> Threshold | None:
    """The highest threshold that a transaction has passed, or None."""
    return next((threshold for threshold in reversed(of_view) if age_ms > threshold.age_ms), None)


# What a watch does not detect in each coordinator view: the verdicts, and the text for its operator.
#
# docs/decisions/0027-coordinator-view.md has what each view proves.

# What a watch detects in each view. A new verdict belongs to the log until a lower view detects it, too.
_DETECTED: dict[CoordinatorAccess, frozenset[Verdict]] = {
    CoordinatorAccess.LOG: frozenset(Verdict),
    CoordinatorAccess.API: frozenset({Verdict.HANGING, Verdict.STRAY_WRITE}),
    CoordinatorAccess.NONE: frozenset({Verdict.LATE}),
}

# What else the views below the log lack.
_LACKS: dict[CoordinatorAccess, str] = {
    CoordinatorAccess.API: "the outcome of a hang is unknown, and nothing is aborted automatically",
    CoordinatorAccess.NONE: "no transactional id is known, and only data that is open for longer than any transaction "
    f"may be is reported, as {Verdict.LATE}",
}


def undetected(access: CoordinatorAccess) -> tuple[Verdict, ...]:
    """The verdicts that no watch detects in this coordinator view, the worst first."""
    return tuple(rule.verdict for rule in VERDICTS if rule.verdict not in _DETECTED[access])


def undetected_text(access: CoordinatorAccess) -> str:
    """What a watch does not detect in a view below the log, as text for its operator."""
    *first, last = undetected(access)
    return f"{', '.join(first)} and {last} are not detected; {_LACKS[access]}"
