"""When the page may be green: one table of conditions, in the order in which they decide.

Law: the page is never green by default. `judge` asks every condition, and the first one that is not met decides the
state. A value that is not known is None, and meets no condition. Only if all conditions are met, the state is `clear`.
The table is the same for the page of a watcher and for the page of several clusters.

The browser adds two conditions that only it can check: a message came within 3 s, and the last barrier is not older
than `judged_within_ms` at the moment of drawing. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from txnwatch.state.model.values import CoordinatorAccess, DurationMs, TimestampMs
from txnwatch.state.model.verdicts import VERDICTS, Severity, Verdict, undetected

# As long as `txnwatch_up` is 1. On a quiet cluster a barrier takes place every 5 s, so a shorter limit would flap.
JUDGED_WITHIN_MS: Final = DurationMs(15_000)
# These verdicts need nobody: an early warning ends by itself, and a stray write is in the past.
CALM: Final = frozenset(rule.verdict for rule in VERDICTS if rule.severity is Severity.INFO) | {Verdict.STRAY_WRITE}


class PageState(StrEnum):
    """What the page says at first sight."""

    CLEAR = "clear"
    LIMITED = "limited"  # nothing hangs, and some verdicts are not detected
    PARTIAL = "partial"  # no incident, and a part of the evidence is missing
    INCIDENT = "incident"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the state depends on; None is not known.

    Attributes:
        judged_ms: when the last evaluated barrier was listed, by the clock of `now_ms`. Not when its evaluation ended:
            a slow micro-batch says nothing about the time in which it runs.
        judged_within_ms: how long ago that may be.
        is_source_read: whether the watcher has told what the page is made from; of its own page always.
        access: how the coordinators' view is known.
        is_ready: whether the watch has read what it needs once.
        is_log_read: whether a part of the coordinators' log is read to its end.
        unproven: the number of partitions that are unproven for 30 s or since the start, hidden or not described; those
            of the coordinators' log included.
        undecided: how much open data fresh reads have neither confirmed nor refuted for 30 s.
        open_verdicts: the verdict of each open incident.
        undelivered: the number of events that the events topic lacks.
    """

    now_ms: TimestampMs
    judged_within_ms: DurationMs = JUDGED_WITHIN_MS
    is_source_read: bool | None = None
    judged_ms: TimestampMs | None = None
    access: CoordinatorAccess | None = None
    is_ready: bool | None = None
    is_log_read: bool | None = None
    unproven: int | None = None
    undecided: int | None = None
    open_verdicts: Sequence[Verdict] | None = None
    undelivered: int | None = None


class Condition(NamedTuple):
    """One row: what has to hold, and the state of the page if it does not."""

    name: str
    is_met: Callable[[Facts], bool]
    otherwise: PageState


def _is_judged_lately(facts: Facts) -> bool:
    return facts.judged_ms is not None and facts.now_ms - facts.judged_ms <= facts.judged_within_ms


def _sees_hangs(facts: Facts) -> bool:
    return facts.access is not None and Verdict.HANGING not in undetected(facts.access)


def _has_no_incident(facts: Facts) -> bool:
    return facts.open_verdicts is not None and CALM.issuperset(facts.open_verdicts)


def _sees_everything(facts: Facts) -> bool:
    return facts.access is not None and not undetected(facts.access)


CONDITIONS: Final[tuple[Condition, ...]] = (
    Condition("the source is read", lambda facts: facts.is_source_read is True, PageState.UNKNOWN),
    Condition("a barrier was evaluated", lambda facts: facts.judged_ms is not None, PageState.UNKNOWN),
    Condition("it was evaluated lately", _is_judged_lately, PageState.UNKNOWN),
    Condition("the view shows hangs", _sees_hangs, PageState.UNKNOWN),
    Condition("no incident is open", _has_no_incident, PageState.INCIDENT),
    Condition("the watch is ready", lambda facts: facts.is_ready is True, PageState.UNKNOWN),
    Condition("the coordinators' log is read", lambda facts: facts.is_log_read is True, PageState.UNKNOWN),
    Condition("all open data is decided", lambda facts: facts.undecided == 0, PageState.PARTIAL),
    Condition("every partition is proven", lambda facts: facts.unproven == 0, PageState.PARTIAL),
    Condition("the events topic has every event", lambda facts: facts.undelivered == 0, PageState.PARTIAL),
    Condition("every verdict is detected", _sees_everything, PageState.LIMITED),
)


class PageTruth(NamedTuple):
    """The state, and the name of the condition that is not met; None if all are."""

    state: PageState
    why: str | None


def judge(facts: Facts, conditions: Sequence[Condition] = CONDITIONS) -> PageTruth:
    """The state of the page: that of the first condition that is not met."""
    for condition in conditions:
        if not condition.is_met(facts):
            return PageTruth(condition.otherwise, condition.name)
    return PageTruth(PageState.CLEAR, None)
