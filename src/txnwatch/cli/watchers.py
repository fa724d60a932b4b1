"""The watchers by their last heartbeats, as rows and as text. What they cover: state/events/watch_coverage.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from txnwatch.cli.event_lines import duration
from txnwatch.cli.output import NotChecked
from txnwatch.state.events.heartbeat import Heartbeat
from txnwatch.state.events.watch_coverage import Missing, Uncovered
from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.state.model.quantities import DurationMs, TimestampMs, elapsed
from txnwatch.state.model.undetected import undetected
from txnwatch.state.model.verdicts import Verdict

_MOST = 20  # watchers to show: a user who may write to the topic or to Redis can forge any number of them


@dataclass(frozen=True, slots=True)
class Watcher:
    """One instance of `txnwatch run`, by its last heartbeat.

    Attributes:
        age_ms: how long ago it evaluated a barrier.
        is_active: whether it evaluates barriers now.
        doubt: why the heartbeat is not plausible; None if it is.
        undetected: the verdicts that its coordinator view does not detect.
    """

    heartbeat: Heartbeat
    age_ms: DurationMs
    is_active: bool
    doubt: str | None
    undetected: tuple[Verdict, ...]

    def members(self) -> dict[str, Any]:
        """The watcher as one JSON object: the members of the heartbeat, and those of this class."""
        own = {spec.name: getattr(self, spec.name) for spec in fields(self) if spec.name != "heartbeat"}
        return {**asdict(self.heartbeat), **own}

    def line(self) -> str:
        """The watcher as one line of text."""
        beat = self.heartbeat
        who = f"watcher {beat.instance} ({beat.version}) of cluster {beat.cluster_id}"
        if self.doubt is not None:
            return f"{who}: ignored, {self.doubt}"
        evaluated = f"{who}: evaluated barrier {beat.barrier} {duration(self.age_ms)} ago"
        lacks = f", which does not detect {', '.join(self.undetected)}" if self.undetected else ""
        view = f"coordinator view {beat.coordinator_view}{lacks}"
        if not beat.is_coordinator_read:
            return f"{evaluated} and proved nothing: {_why_nothing(beat)}; {view}"
        more = beat.unproven_partitions - len(beat.unproven_names)
        names = ", ".join(beat.unproven_names) + (f" and {more} more" if more > 0 else "")
        of_log = (
            f", {beat.unread_log_partitions} of them of the coordinators' log" if beat.unread_log_partitions else ""
        )
        reach = (
            f"{beat.scanned_partitions} partitions scanned, {beat.census_partitions} by census, "
            f"{beat.unproven_partitions} unproven{f' ({names})' if beat.unproven_names else ''}{of_log}, "
            f"at most {beat.furthest_behind} offsets behind, {view}"
        )
        return f"{evaluated}; {reach}"


def _why_nothing(beat: Heartbeat) -> str:
    """Why a watcher proves nothing at all; one that does not use the coordinators' log needs only the partitions."""
    is_log_used = beat.coordinator_view == CoordinatorAccess.LOG
    return "no part of the coordinators' log is read to its end" if is_log_used else "it reads no partition"


def watchers_of(last: Iterable[Heartbeat], now_ms: TimestampMs) -> list[Watcher]:
    """The watchers of these heartbeats, in the same order."""
    return [
        Watcher(
            heartbeat=beat,
            age_ms=elapsed(beat.evaluated_ms, now_ms),
            is_active=beat.is_active(now_ms),
            doubt=beat.doubt(now_ms),
            undetected=undetected(CoordinatorAccess(beat.coordinator_view)),
        )
        for beat in last
    ]


def listed(watchers: Sequence[Watcher]) -> Sequence[Watcher]:
    """The watchers that are shown; whether a cluster is watched depends on all of them."""
    return watchers[:_MOST]


def not_reached(found: Iterable[Uncovered]) -> tuple[NotChecked, ...]:
    """What active watchers prove nothing about, as parts of the answer that are not checked."""
    unproven = [missing for part in found for missing in _not_checked(part)]
    if len(unproven) <= _MOST:
        return tuple(unproven)
    return (
        *unproven[:_MOST],
        NotChecked(f"{len(unproven) - _MOST} more", "other watchers prove nothing there"),
    )


def _not_checked(part: Uncovered) -> Iterator[NotChecked]:
    who = f"watcher {part.watcher.instance} of cluster {part.watcher.cluster_id}"
    match part.missing:
        case Missing.EVERYTHING:
            why = f"{who} proves nothing there: {_why_nothing(part.watcher)}"
            yield NotChecked(f"cluster {part.watcher.cluster_id}", why)
            return
        case Missing.HANGS:
            verdicts = ", ".join(undetected(CoordinatorAccess(part.watcher.coordinator_view)))
            why = f"{who} has the coordinator view none, and proves no hang; it does not detect {verdicts}"
            yield NotChecked(f"cluster {part.watcher.cluster_id}", why)
            return
        case Missing.LOG:
            why = f"{who} cannot read this part of the coordinators' log, so nothing is proven about its ids"
        case Missing.DATA:
            why = f"{who} proves nothing there"
    yield from (NotChecked(name, why) for name in part.names)
    if part.more:
        plural = "" if part.more == 1 else "s"
        yield NotChecked(f"{part.more} {'more ' if part.names else ''}partition{plural}", why)
