"""The watchers by their last heartbeats, as rows and as text: which ones judge, and what they cover.

To be active and to cover a partition are two things. A watcher that judges barriers is active. The partitions that it
proves nothing about are not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

from txnwatch.cli.event_lines import duration
from txnwatch.cli.output import NotChecked
from txnwatch.sinks.delivery.heartbeat import Heartbeat
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC, BarrierNumber
from txnwatch.state.model.quantities import DurationMs, TimestampMs, elapsed

_MOST = 20  # watchers to show; anybody who may write to the topic or to Redis can invent any number


@dataclass(frozen=True, slots=True)
class Watcher:
    """One instance of `txnwatch run`, by its last heartbeat; `is_active` means that it judges now."""

    cluster_id: str
    instance: str
    version: str
    judged_ms: TimestampMs
    age_ms: DurationMs
    barrier: BarrierNumber
    scanned_partitions: int
    census_partitions: int
    unproven_partitions: int
    unproven_names: tuple[str, ...]
    furthest_behind: int
    unread_log_partitions: int
    is_coordinator_read: bool
    is_active: bool
    doubt: str | None

    def line(self) -> str:
        """The watcher as one line of text."""
        who = f"watcher {self.instance} ({self.version}) of cluster {self.cluster_id}"
        if self.doubt is not None:
            return f"{who}: ignored, {self.doubt}"
        judged = f"{who}: evaluated barrier {self.barrier} {duration(self.age_ms)} ago"
        if not self.is_coordinator_read:
            return f"{judged} and proved nothing: no part of the coordinators' log was read to its end"
        more = self.unproven_partitions - len(self.unproven_names)
        names = ", ".join(self.unproven_names) + (f" and {more} more" if more > 0 else "")
        of_log = (
            f", {self.unread_log_partitions} of them of the coordinators' log" if self.unread_log_partitions else ""
        )
        reach = (
            f"{self.scanned_partitions} partitions scanned, {self.census_partitions} by census, "
            f"{self.unproven_partitions} unproven{f' ({names})' if self.unproven_names else ''}{of_log}, "
            f"the furthest {self.furthest_behind} offsets behind"
        )
        return f"{judged}; {reach}"

    def unproven(self) -> Iterator[NotChecked]:
        """The partitions that this active watcher proves nothing about."""
        who = f"watcher {self.instance} of cluster {self.cluster_id}"
        if not self.is_coordinator_read:
            yield NotChecked(
                f"cluster {self.cluster_id}",
                f"{who} proves nothing there: no part of the coordinators' log is read to its end",
            )
            return
        log = [name for name in self.unproven_names if name.startswith(f"{TRANSACTION_STATE_TOPIC}-")]
        data = [name for name in self.unproven_names if name not in log]
        of_data = self.unproven_partitions - self.unread_log_partitions
        why_log = f"{who} cannot read this part of the coordinators' log, so nothing is proven about its ids"
        yield from _not_checked(log, self.unread_log_partitions, why_log)
        yield from _not_checked(data, of_data, f"{who} proves nothing there")


def watchers_of(heartbeats: Iterable[Heartbeat], now_ms: TimestampMs) -> list[Watcher]:
    """Each instance by its last heartbeat, the latest judgement first; doubtful heartbeats come last."""
    last: dict[str, Heartbeat] = {}
    for beat in heartbeats:
        known = last.get(beat.key)
        is_better = known is None or known.time_ms <= beat.time_ms or known.doubt(now_ms) is not None
        if is_better and (beat.doubt(now_ms) is None or known is None):
            last[beat.key] = beat
    beats = sorted(last.values(), key=lambda beat: (beat.doubt(now_ms) is not None, -beat.judged_ms))
    return [_watcher(beat, now_ms) for beat in beats]


def listed(watchers: Sequence[Watcher]) -> Sequence[Watcher]:
    """The watchers that are shown; whether a cluster is watched depends on all of them."""
    return watchers[:_MOST]


def unwatched(clusters: Iterable[str], watchers: Sequence[Watcher]) -> list[str]:
    """The clusters without an active watcher."""
    looked_at = {watcher.cluster_id for watcher in watchers if watcher.is_active}
    return sorted(set(clusters) - looked_at)


def not_reached(watchers: Sequence[Watcher]) -> tuple[NotChecked, ...]:
    """The partitions that active watchers prove nothing about.

    Every watcher of a cluster reads the same coordinators' log. So it is enough that one of them has read all of it:
    another one may have just started. Topics may be divided between watchers, so the data partitions of each one count.
    """
    looking = [watcher for watcher in watchers if watcher.is_active]
    log_is_read = {
        watcher.cluster_id for watcher in looking if watcher.is_coordinator_read and not watcher.unread_log_partitions
    }
    unproven = [
        missing
        for watcher in looking
        for missing in _with_log_read(watcher, is_read=watcher.cluster_id in log_is_read).unproven()
    ]
    more = (
        [NotChecked(f"{len(unproven) - _MOST} more", "other watchers prove nothing there")]
        if len(unproven) > _MOST
        else []
    )
    return (*unproven[:_MOST], *more)


def _with_log_read(watcher: Watcher, *, is_read: bool) -> Watcher:
    if not is_read:
        return watcher
    names = tuple(name for name in watcher.unproven_names if not name.startswith(f"{TRANSACTION_STATE_TOPIC}-"))
    return replace(
        watcher,
        unproven_partitions=watcher.unproven_partitions - watcher.unread_log_partitions,
        unproven_names=names,
        unread_log_partitions=0,
        is_coordinator_read=True,
    )


def _not_checked(names: Sequence[str], count: int, why: str) -> Iterator[NotChecked]:
    yield from (NotChecked(name, why) for name in names)
    rest = count - len(names)
    if rest > 0:
        yield NotChecked(f"{rest} {'more ' if names else ''}partition{'' if rest == 1 else 's'}", why)


def _watcher(beat: Heartbeat, now_ms: TimestampMs) -> Watcher:
    values = {spec.name: getattr(beat, spec.name) for spec in fields(Watcher) if hasattr(beat, spec.name)}
    values |= {"is_active": beat.is_active(now_ms), "doubt": beat.doubt(now_ms)}
    return Watcher(**values, age_ms=elapsed(beat.judged_ms, now_ms))
