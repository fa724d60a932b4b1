"""What is known of a cluster from its events topic: its incidents, its watchers, and what cannot be believed.

Apart: it is pure (no I/O, no clock), and follower.py reads.

It gives the same value as the end of a micro-batch (`KnownNow`), so the page of several clusters is made by the same
table of conditions and the same picture as that of a watcher. What a heartbeat does not say is None, and meets no
condition.

Law:
    * An event of another cluster, and a heartbeat of another cluster, is about no cluster of this topic.
    * A record under the key of an incident that cannot be believed may hide a hang. It counts until a valid record of
      the same incident follows it, or a tombstone.
    * The open transactions are known only while the document in Redis is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from txnwatch.page.document import PageDocument
from txnwatch.page.store import KnownNow, Reach, Watched, WatcherRow
from txnwatch.page.truth import JUDGED_WITHIN_MS
from txnwatch.state.incidents.event_builder import named
from txnwatch.state.incidents.heartbeat import (
    FRESH_MS,
    Heartbeat,
    Missing,
    Uncovered,
    is_each_ready,
    last_of_each,
    uncovered,
)
from txnwatch.state.incidents.life import KEPT_MS
from txnwatch.state.model.errors import BadEventError
from txnwatch.state.model.findings import OpenTransactions, PartitionEnds
from txnwatch.state.model.incident import IncidentEvent, LatestEvents, Overwritten
from txnwatch.state.model.ownership import OwnerLookup
from txnwatch.state.model.values import CoordinatorAccess, TimestampMs, TopicPartition

MOST_INCIDENTS: Final = 20_000
MOST_HEARTBEATS: Final = 1_000
MOST_REFUSED: Final = 1_000
_SHOWN_WATCHERS: Final = 20
Announcement = IncidentEvent | Heartbeat | Overwritten | BadEventError


class FromRedis(NamedTuple):
    """The last reading of the document in Redis.

    Attributes:
        document: None if there is none, or if it is refused.
        refusal: why it cannot be believed.
        missing: why the open transactions are not known without it, in words.
    """

    missing: str
    document: PageDocument | None = None
    refusal: str | None = None


@dataclass(slots=True)
class Announced:
    """The records of one events topic, in their order.

    Attributes:
        cluster_id: of the brokers that have the topic.
        owners: the table of owners of this process.
    """

    cluster_id: str
    owners: OwnerLookup
    _events: LatestEvents = field(default_factory=LatestEvents)
    _heartbeats: dict[str, Heartbeat] = field(default_factory=dict)
    _refused: dict[str, str] = field(default_factory=dict)
    _last_refusal: str | None = None
    _has_too_many: bool = False

    def take(self, found: Announcement, now_ms: TimestampMs) -> IncidentEvent | None:
        """Takes the next record; returns the event if it is now the latest one of its incident."""
        match found:
            case BadEventError():
                self._refuse(found)
            case Overwritten(incident_id):
                self._refused.pop(incident_id, None)
            case Heartbeat() if found.cluster_id == self.cluster_id:
                self._heartbeats.pop(found.key, None)
                self._heartbeats[found.key] = found
                if len(self._heartbeats) > MOST_HEARTBEATS:
                    del self._heartbeats[next(iter(self._heartbeats))]
            case IncidentEvent() if found.cluster_id == self.cluster_id:
                return self._take_event(named(found, self.owners), now_ms)
        return None

    def _refuse(self, error: BadEventError) -> None:
        self._last_refusal = str(error)
        if error.key is not None:
            self._refused.pop(error.key, None)
            self._refused[error.key] = str(error)
            if len(self._refused) > MOST_REFUSED:
                del self._refused[next(iter(self._refused))]

    def _take_event(self, event: IncidentEvent, now_ms: TimestampMs) -> IncidentEvent | None:
        self._refused.pop(event.incident_id, None)
        if not self._events.take(event):
            return None
        known = self._events.known
        if len(known) > MOST_INCIDENTS:
            for key in [key for key, one in known.items() if not _is_shown(one, now_ms)]:
                del known[key]
            if len(known) > MOST_INCIDENTS:
                self._has_too_many = True
                del known[next(iter(known))]
        return event

    def heartbeats(self, document: PageDocument | None, now_ms: TimestampMs) -> list[Heartbeat]:
        """The last heartbeat of each watcher, from the topic or Redis; those that are not plausible come last."""
        own = [] if document is None else [document.heartbeat]
        return last_of_each([*self._heartbeats.values(), *own], now_ms)

    def seen(self, now_ms: TimestampMs, redis: FromRedis, problem: str | None = None) -> KnownNow:
        """What is known now; `problem` says that the topic cannot be read."""
        beats = self.heartbeats(redis.document, now_ms)
        active = [beat for beat in beats if beat.is_active(now_ms)]
        plausible = [beat for beat in beats if beat.doubt(now_ms) is None]
        last = plausible[0] if plausible else None
        speaking = active or plausible[:1]
        document = redis.document
        is_last = document is not None and last is document.heartbeat
        seen = KnownNow(
            judged_ms=min(last.evaluated_ms, now_ms) if last is not None else None,
            judged_within_ms=JUDGED_WITHIN_MS if is_last else FRESH_MS,
            open_missing=redis.missing,
            incidents=tuple(one for one in self._events.known.values() if _is_shown(one, now_ms)),
            reach=_reach(uncovered(beats, now_ms)) if active else None,
            is_ready=is_each_ready(speaking),
            watched=_watched(speaking),
            undelivered=_sum([beat.undelivered_events for beat in speaking]),
            is_source_read=problem is None and not self._has_too_many,
            unread=len(self._refused) + (redis.refusal is not None),
            problem=problem if problem is not None else self._problem(redis, has_watcher=bool(active)),
            watchers=[_row(beat, now_ms) for beat in beats[:_SHOWN_WATCHERS]],
        )
        return _with_open(seen, document, now_ms) if document is not None else seen

    def access(self, document: PageDocument | None, now_ms: TimestampMs) -> CoordinatorAccess | None:
        """The coordinators' view of the active watchers together: a watcher that proves no hang counts first."""
        beats = [beat for beat in self.heartbeats(document, now_ms) if beat.is_active(now_ms)]
        views = {CoordinatorAccess(beat.coordinator_view) for beat in beats}
        order = (CoordinatorAccess.NONE, CoordinatorAccess.LOG, CoordinatorAccess.API)
        return next((one for one in order if one in views), None)

    def _problem(self, redis: FromRedis, *, has_watcher: bool) -> str | None:
        if self._has_too_many:
            return f"the events topic has more than {MOST_INCIDENTS} incidents"
        if self._refused:
            count = len(self._refused)
            what = "1 record" if count == 1 else f"{count} records"
            return f"{what} of the events topic cannot be believed, the last: {list(self._refused.values())[-1]}"
        if redis.refusal is not None:
            return f"the document in Redis cannot be believed: {redis.refusal}"
        if not has_watcher and self._last_refusal is not None:
            return f"the last record of the events topic that cannot be believed: {self._last_refusal}"
        return None


def _is_shown(event: IncidentEvent, now_ms: TimestampMs) -> bool:
    return event.is_open or now_ms - event.time_ms <= KEPT_MS


def _with_open(seen: KnownNow, document: PageDocument, now_ms: TimestampMs) -> KnownNow:
    """With the open transactions of a document that is new."""
    beat = document.heartbeat
    if beat.doubt(now_ms) is not None or now_ms - beat.evaluated_ms > JUDGED_WITHIN_MS:
        return seen
    return replace(
        seen,
        batch_ms=document.batch_ms,
        totals=document.totals,
        lists=(OpenTransactions(0, document.transactions, document.blocked),),
        by_census=(PartitionEnds(0, document.by_census, is_round=True),),
        ends=dict(document.ends),
        open_missing=None,
    )


def _reach(parts: Iterable[Uncovered]) -> Reach:
    found: list[TopicPartition] = []
    more = more_of_log = 0
    is_log_read = True
    for part in parts:
        names = [at for name in part.names if (at := _parsed(name)) is not None]
        rest = part.more + len(part.names) - len(names)
        found += names
        more += rest
        more_of_log += rest if part.missing is Missing.LOG else 0
        is_log_read = is_log_read and part.missing is not Missing.EVERYTHING
    return Reach(found, more, more_of_log, is_log_read)


def _parsed(name: str) -> TopicPartition | None:
    try:
        return TopicPartition.parse(name)
    except ValueError:
        return None


def _sum(values: Sequence[int | None]) -> int | None:
    """The sum; None if one of them is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _watched(beats: Sequence[Heartbeat]) -> Watched:
    """The watcher that covers most: several may cover the same partitions."""
    most = max(beats, key=lambda beat: beat.scanned_partitions + beat.census_partitions, default=None)
    return Watched(most.scanned_partitions, most.census_partitions) if most is not None else Watched(0, 0)


def _row(beat: Heartbeat, now_ms: TimestampMs) -> WatcherRow:
    return WatcherRow(
        beat.instance,
        beat.version,
        beat.evaluated_ms,
        beat.is_active(now_ms),
        beat.coordinator_view,
        beat.doubt(now_ms),
    )
