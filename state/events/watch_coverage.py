"""Decides from heartbeats which clusters have an active watcher, and where no active watcher proves anything.

Law:
  * A heartbeat that is not plausible never replaces a plausible one, and its watcher is never active.
  * To be active and to cover a partition are two things. A watcher that evaluates barriers is active. The partitions
    about which it proves nothing are not covered.
  * Every watcher of a cluster reads the same coordinators' log. So it is enough that one of them has read all of it:
    another one may have just started. A watcher that does not use that log has not read it. Topics may be divided
    between watchers, so the data partitions of each one count.
  * A verdict that the coordinator view of a watcher does not detect leaves no partition uncovered: the view is chosen,
    and the verdict is named. `hanging` is the exception: without it an empty list does not show that nothing hangs.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import NamedTuple

from txnwatch.state.events.heartbeat import Heartbeat
from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC
from txnwatch.state.model.quantities import TimestampMs
from txnwatch.state.model.undetected import undetected as undetected_in
from txnwatch.state.model.verdicts import Verdict

_OF_LOG = f"{TRANSACTION_STATE_TOPIC}-"


class Missing(Enum):
    """What a watcher does not cover."""

    EVERYTHING = auto()
    HANGS = auto()
    LOG = auto()
    DATA = auto()


class Uncovered(NamedTuple):
    """Partitions that an active watcher proves nothing about: the names that are known, and how many more there are."""

    watcher: Heartbeat
    missing: Missing
    names: tuple[str, ...] = ()
    more: int = 0


def last_of_each(heartbeats: Iterable[Heartbeat], now_ms: TimestampMs) -> list[Heartbeat]:
    """The last heartbeat of each instance, the latest judgement first; doubtful heartbeats come last."""
    last: dict[str, Heartbeat] = {}
    for beat in heartbeats:
        known = last.get(beat.key)
        if known is None or _replaces(beat, known, now_ms):
            last[beat.key] = beat
    return sorted(last.values(), key=lambda beat: (beat.doubt(now_ms) is not None, -beat.evaluated_ms))


def _replaces(beat: Heartbeat, known: Heartbeat, now_ms: TimestampMs) -> bool:
    if beat.doubt(now_ms) is not None:
        return False
    return known.doubt(now_ms) is not None or known.time_ms <= beat.time_ms


def unwatched(clusters: Iterable[str], last: Iterable[Heartbeat], now_ms: TimestampMs) -> list[str]:
    """The clusters without an active watcher."""
    return sorted(set(clusters) - {beat.cluster_id for beat in last if beat.is_active(now_ms)})


def undetected(last: Iterable[Heartbeat], now_ms: TimestampMs) -> dict[str, tuple[Verdict, ...]]:
    """By cluster, the verdicts that none of its active watchers detects; without clusters where each is detected."""
    found: dict[str, tuple[Verdict, ...]] = {}
    for beat in last:
        if beat.is_active(now_ms):
            missing = undetected_in(CoordinatorAccess(beat.coordinator_view))
            found[beat.cluster_id] = tuple(one for one in missing if one in found.get(beat.cluster_id, missing))
    return {cluster: verdicts for cluster, verdicts in sorted(found.items()) if verdicts}


def uncovered(last: Sequence[Heartbeat], now_ms: TimestampMs) -> list[Uncovered]:
    """What the active watchers prove nothing about."""
    active = [beat for beat in last if beat.is_active(now_ms)]
    log_is_read = {beat.cluster_id for beat in active if _has_read_log(beat)}
    return [part for beat in active for part in _uncovered_by(beat, is_log_read=beat.cluster_id in log_is_read)]


def _has_read_log(beat: Heartbeat) -> bool:
    is_used = beat.coordinator_view == CoordinatorAccess.LOG
    return is_used and beat.is_coordinator_read and not beat.unread_log_partitions


def _uncovered_by(beat: Heartbeat, *, is_log_read: bool) -> Iterator[Uncovered]:
    if not is_log_read:
        if not beat.is_coordinator_read:
            yield Uncovered(beat, Missing.EVERYTHING)
            return
        yield from _part(beat, Missing.LOG, beat.unread_log_partitions)
    if beat.coordinator_view == CoordinatorAccess.NONE:
        yield Uncovered(beat, Missing.HANGS)
    yield from _part(beat, Missing.DATA, beat.unproven_partitions - beat.unread_log_partitions)


def _part(beat: Heartbeat, missing: Missing, count: int) -> Iterator[Uncovered]:
    is_log = missing is Missing.LOG
    names = tuple(name for name in beat.unproven_names if name.startswith(_OF_LOG) is is_log)
    more = max(0, count - len(names))
    if names or more:
        yield Uncovered(beat, missing, names, more)
