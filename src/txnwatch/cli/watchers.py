"""The watchers by their last heartbeats, as rows and as text. What they cover: state/events/watch_coverage.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

from txnwatch.cli.event_lines import duration
from txnwatch.cli.output import NotChecked
from txnwatch.state.events.heartbeat import Heartbeat
from txnwatch.state.events.watch_coverage import Missing, Uncovered
from txnwatch.state.model.ids import BarrierNumber
from txnwatch.state.model.quantities import DurationMs, TimestampMs, elapsed

_MOST = 20  # watchers to show: a user who may write to the topic or to Redis can forge any number of them


@dataclass(frozen=True, slots=True)
class Watcher:
    """One instance of `txnwatch run`, by its last heartbeat; `is_active` means that it evaluates barriers now.

    These are the columns that `status` shows; the members of `Heartbeat` are the format of a record. Values are copied
    by name.
    """

    cluster_id: str
    instance: str
    version: str
    evaluated_ms: TimestampMs
    age_ms: DurationMs
    barrier: BarrierNumber
    scanned_partitions: int
    census_partitions: int
    unproven_partitions: int
    unproven_names: tuple[str, ...]
    furthest_behind: int
    unread_log_partitions: int
    is_coordinator_read: bool
    coordinator_view: str
    is_active: bool
    doubt: str | None

    def line(self) -> str:
        """The watcher as one line of text."""
        who = f"watcher {self.instance} ({self.version}) of cluster {self.cluster_id}"
        if self.doubt is not None:
            return f"{who}: ignored, {self.doubt}"
        evaluated = f"{who}: evaluated barrier {self.barrier} {duration(self.age_ms)} ago"
        if not self.is_coordinator_read:
            return f"{evaluated} and proved nothing: no part of the coordinators' log was read to its end"
        more = self.unproven_partitions - len(self.unproven_names)
        names = ", ".join(self.unproven_names) + (f" and {more} more" if more > 0 else "")
        of_log = (
            f", {self.unread_log_partitions} of them of the coordinators' log" if self.unread_log_partitions else ""
        )
        reach = (
            f"{self.scanned_partitions} partitions scanned, {self.census_partitions} by census, "
            f"{self.unproven_partitions} unproven{f' ({names})' if self.unproven_names else ''}{of_log}, "
            f"at most {self.furthest_behind} offsets behind, coordinator view {self.coordinator_view}"
        )
        return f"{evaluated}; {reach}"


def watchers_of(last: Iterable[Heartbeat], now_ms: TimestampMs) -> list[Watcher]:
    """The watchers of these heartbeats, in the same order."""
    return [_watcher(beat, now_ms) for beat in last]


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
            why = f"{who} proves nothing there: no part of the coordinators' log is read to its end"
            yield NotChecked(f"cluster {part.watcher.cluster_id}", why)
            return
        case Missing.HANGS:
            why = f"{who} has the coordinator view none, and proves no hang"
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


def _watcher(beat: Heartbeat, now_ms: TimestampMs) -> Watcher:
    values = {spec.name: getattr(beat, spec.name) for spec in fields(Watcher) if hasattr(beat, spec.name)}
    values |= {"is_active": beat.is_active(now_ms), "doubt": beat.doubt(now_ms)}
    return Watcher(**values, age_ms=elapsed(beat.evaluated_ms, now_ms))
