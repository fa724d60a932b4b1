"""What a watcher tells about its cluster on the events topic and in Redis, and what cannot be believed of it.

The events topic has the incidents and the heartbeats of its watchers. The document in Redis has what the topic does not
have: the heartbeat of its moment, the open lists, and the offsets of their partitions. It has no sentence, no command
and no address of a team: those are made by the reader. Pure: no I/O, no clock; follower.py reads.

Both give the same value as the end of a micro-batch (`KnownNow`), so the page of several clusters is made by the same
table of conditions and the same picture as that of a watcher. What a heartbeat does not say is None, and meets no
condition.

Law:
    * An event of another cluster, and a heartbeat of another cluster, is about no cluster of this topic.
    * A record under the key of an incident that cannot be believed may hide a hang. It counts until a valid record of
      the same incident follows it, or a tombstone.
    * Anybody who may write to Redis can write anything. `decoded` checks the size, the types and every value of a
      document, and what it refuses is used nowhere.
    * The open transactions are known only while the document in Redis is new.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, NamedTuple

import msgspec

from txnwatch.page.store import KnownNow, PageStore, Reach, Totals, Watched, WatcherRow
from txnwatch.page.truth import JUDGED_WITHIN_MS
from txnwatch.state.incidents.event_builder import named
from txnwatch.state.incidents.heartbeat import (
    ACTIVE_MS,
    LISTS,
    Heartbeat,
    Missing,
    TopicRecord,
    Uncovered,
    invalid_field,
    is_each_ready,
    last_of_each,
    uncovered,
)
from txnwatch.state.incidents.value_rules import NAME_BYTES, is_number, is_text
from txnwatch.state.model.errors import BadEventError, SkipReason
from txnwatch.state.model.findings import CensusOffsets, OpenSpan, OpenTransaction, OpenTransactions, PartitionEnds
from txnwatch.state.model.incident import KEPT_MS, IncidentEvent, LatestEvents, Overwritten
from txnwatch.state.model.ownership import OwnerLookup
from txnwatch.state.model.values import (
    INT32,
    INT64,
    LAST_TIME_MS,
    CoordinatorAccess,
    DurationMs,
    Offset,
    PartitionOffset,
    TimestampMs,
    TopicPartition,
    is_topic_name,
)

MOST_BYTES: Final = 16 << 20  # not compressed
MOST_TRANSACTIONS: Final = 8_192
_MOST_PARTITIONS: Final = 200_000
_MOST_STATES: Final = 32
_STATE_BYTES: Final = 64


class PageDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The whole document.

    Attributes:
        heartbeat: what the watcher covers, at the moment of the document.
        latency_p99_ms: from the hang to the event.
        ends: of scanned partitions.
        by_census: of partitions that only a census watches.
    """

    heartbeat: Heartbeat
    batch_ms: DurationMs | None
    latency_p99_ms: DurationMs | None
    totals: Totals
    transactions: tuple[OpenTransaction, ...]
    blocked: tuple[PartitionOffset, ...]
    ends: tuple[PartitionOffset, ...]
    by_census: tuple[CensusOffsets, ...]


def document_of(store: PageStore, heartbeat: Heartbeat, ends: Mapping[TopicPartition, Offset]) -> PageDocument:
    """The document of this moment."""
    seen = store.seen
    transactions = tuple(one for bucket in seen.lists for one in bucket.transactions)
    blocked = tuple(one for bucket in seen.lists for one in bucket.blocked)
    named = {span.partition for one in transactions for span in one.spans} | {one.partition for one in blocked}
    return PageDocument(
        heartbeat=heartbeat,
        batch_ms=seen.batch_ms,
        latency_p99_ms=store.latency_p99_ms,
        totals=seen.totals,
        transactions=transactions,
        blocked=blocked,
        ends=tuple(PartitionOffset(at, ends[at]) for at in sorted(named & ends.keys())),
        by_census=tuple(one for bucket in seen.by_census for one in bucket.offsets if one.partition in named),
    )


def encoded(document: PageDocument) -> bytes:
    """The document as it is stored."""
    return zlib.compress(msgspec.json.encode(document), 6)


def decoded(value: bytes, cluster_id: str) -> PageDocument:
    """The document of a cluster.

    Raises:
        BadEventError: it is too large, cannot be decoded, has an invalid value, or is about another cluster.
    """
    try:
        found = msgspec.json.decode(_inflated(value), type=PageDocument)
    except (msgspec.MsgspecError, zlib.error, UnicodeError, RecursionError) as exc:
        message = f"expected a page document: {ascii(str(exc))[:200]}"
        raise BadEventError(SkipReason.UNDECODABLE, message) from exc
    wrong = next((name for name, is_valid in _CHECKS.items() if not is_valid(found)), None)
    if wrong is not None:
        raise BadEventError(SkipReason.INVALID, f"expected a page document: {wrong} has an invalid value")
    if found.heartbeat.cluster_id != cluster_id:
        raise BadEventError(SkipReason.INVALID, "expected a page document of its own cluster, found another")
    return found


def _inflated(value: bytes) -> bytes:
    inflating = zlib.decompressobj()
    text = inflating.decompress(value, MOST_BYTES)
    if inflating.unconsumed_tail:
        raise BadEventError(SkipReason.TOO_LARGE, f"expected a page document of at most {MOST_BYTES} bytes, found more")
    if not inflating.eof or inflating.unused_data:
        raise BadEventError(SkipReason.UNDECODABLE, "expected a whole page document, found a part, or more")
    return text


_IS_INT64, _IS_TIME = is_number(0, INT64), is_number(0, LAST_TIME_MS)
_IS_NAME, _IS_STATE = is_text(NAME_BYTES), is_text(_STATE_BYTES)


def _is_partition(at: TopicPartition) -> bool:
    return is_topic_name(at.topic) and 0 <= at.partition <= INT32


def _is_heartbeat(document: PageDocument) -> bool:
    values = asdict(document.heartbeat)
    return invalid_field({**values, **{name: list(values[name]) for name in LISTS}}) is None


def _are_totals(document: PageDocument) -> bool:
    barrier, states, oldest_ms = document.totals
    return (
        len(states) <= _MOST_STATES
        and all(_IS_STATE(state) and _IS_INT64(count) for state, count in states)
        and _is_one(_IS_INT64, barrier)
        and _is_one(_IS_TIME, oldest_ms)
    )


def _is_one(check: Callable[[Any], bool], value: int | None) -> bool:
    return value is None or check(value)


def _are_transactions(document: PageDocument) -> bool:
    if len(document.transactions) > MOST_TRANSACTIONS:
        return False
    if sum(len(one.spans) for one in document.transactions) > _MOST_PARTITIONS:
        return False
    return all(map(_is_transaction, document.transactions))


def _is_transaction(one: OpenTransaction) -> bool:
    return (
        _IS_INT64(one.producer_id)
        and (one.transactional_id is None or _IS_NAME(one.transactional_id))
        and _IS_STATE(one.state)
        and _IS_TIME(one.since_ms)
        and _is_one(_IS_TIME, one.prepared_ms)
        and _is_one(_IS_INT64, one.timeout_ms)
        and all(map(_is_span, one.spans))
    )


def _is_span(one: OpenSpan) -> bool:
    return _is_partition(one.partition) and _IS_INT64(one.start_offset) and _IS_TIME(one.first_seen_ms)


def _are_offsets(found: Iterable[PartitionOffset]) -> bool:
    places = list(found)
    return len(places) <= _MOST_PARTITIONS and all(_is_partition(at) and _IS_INT64(offset) for at, offset in places)


def _are_listed(found: Sequence[CensusOffsets]) -> bool:
    return _are_offsets(PartitionOffset(at, last_stable) for at, last_stable, _ in found) and all(
        _IS_INT64(end) and end >= last_stable for _, last_stable, end in found
    )


_CHECKS: Final[dict[str, Callable[[PageDocument], bool]]] = {
    "heartbeat": _is_heartbeat,
    "batch_ms": lambda document: _is_one(_IS_INT64, document.batch_ms),
    "latency_p99_ms": lambda document: _is_one(_IS_INT64, document.latency_p99_ms),
    "totals": _are_totals,
    "transactions": _are_transactions,
    "blocked": lambda document: _are_offsets(document.blocked),
    "ends": lambda document: _are_offsets(document.ends),
    "by_census": lambda document: _are_listed(document.by_census),
}


# The events topic, with the last document.

MOST_INCIDENTS: Final = 20_000
MOST_HEARTBEATS: Final = 1_000
MOST_REFUSED: Final = 1_000
_SHOWN_WATCHERS: Final = 20


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

    def take(self, found: TopicRecord, now_ms: TimestampMs) -> IncidentEvent | None:
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
            judged_within_ms=JUDGED_WITHIN_MS if is_last else ACTIVE_MS,
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
    undecided: list[str] = []
    more = more_of_log = more_undecided = 0
    is_log_read = True
    for part in parts:
        if part.missing is Missing.DECISION:
            undecided += part.names
            more_undecided += part.more
            continue
        names = [at for name in part.names if (at := _parsed(name)) is not None]
        rest = part.more + len(part.names) - len(names)
        found += names
        more += rest
        more_of_log += rest if part.missing is Missing.LOG else 0
        is_log_read = is_log_read and part.missing is not Missing.EVERYTHING
    return Reach(found, more, more_of_log, is_log_read, undecided, more_undecided)


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
