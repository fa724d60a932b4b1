"""A watcher's heartbeat: which instance it is, when it last evaluated a barrier, and what it covers.

On the events topic it is a record with its own key, which is not an incident's id, and its own CloudEvents type; in
Redis it is a hash that expires. Anyone who may write there can forge one.

Law: an impossible heartbeat (from the future, or with a number out of range) is rejected, and never used as an event.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from txnwatch.state.incidents.value_rules import NAME_BYTES, is_cluster_id, is_number, is_text
from txnwatch.state.model.errors import BadEventError, SkipReason
from txnwatch.state.model.incident import IncidentEvent, Overwritten
from txnwatch.state.model.values import (
    INT32,
    INT64,
    LAST_TIME_MS,
    TRANSACTION_STATE_TOPIC,
    BarrierNumber,
    CoordinatorAccess,
    DurationMs,
    TimestampMs,
)
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.model.verdicts import undetected as undetected_in
from txnwatch.state.text import read_json

KEY_PREFIX: Final = "txnwatch.heartbeat:"
EVENT_TYPE: Final = "io.txnwatch.heartbeat.v1"
CONTENT_TYPE: Final = "application/json"
MAX_BYTES: Final = 128 * 1024
ACTIVE_MS: Final = DurationMs(60_000)  # since an evaluation: several heartbeats, and one slow batch
MOST_NAMES: Final = 3
MOST_NAME: Final = 300
MISSED_MS: Final = DurationMs(86_400_000)
AHEAD_MS: Final = DurationMs(60_000)  # how far another machine's clock may be ahead of ours
MOST_AHEAD_MS: Final = DurationMs(3_600_000)  # a clock that is more ahead than that says nothing about anything


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The state of a watcher; times are its machine's clock.

    Attributes:
        evaluated_ms: when the last evaluated barrier was listed; `barrier` is its number, `time_ms` the time of this
            heartbeat.
        scanned_partitions, census_partitions: how many partitions it scans, and how many it watches by census
            only.
        beyond_partitions: how many of `census_partitions` would be scanned, and write more than the bytes per second
            allow; `beyond_names` has the first few. A scan would show stray writes there, and exact counts.
        unproven_partitions: partitions of which nothing is proven for half a minute, or since the start; also hidden
            ones, census-only ones that are not described, and those of `__transaction_state`. `unproven_names` has
            the first few, those of `__transaction_state` before the others.
        furthest_behind: unread offsets of the partition that is furthest behind.
        undecided_spans: how much open data may hang, and fresh reads have neither confirmed nor refuted it for half a
            minute. `undecided_names` has the first few, with the reasons.
        leaderless_names: those of `unproven_names` that belong to `__transaction_state` and have no leader, with the
            brokers that have a replica.
        unread_log_partitions: how many of `unproven_partitions` are partitions of `__transaction_state`.
        is_coordinator_read: whether at least a part of `__transaction_state` is read to its end: else nothing at all is
            proven. Without that log (`coordinator_view`), whether the watch reads at all.
        coordinator_view: how the coordinators' view is known.
        failing_targets: the first destinations of events that do not take them, each with what waits and why.
        is_ready: whether the watch has read what it needs once.
        undelivered_events: how many events the events topic has not taken.
        topics_digest: of the settings that choose the topics. Watchers with the same one cover the same partitions.
        speaks: whether it publishes the events of those that watch the same topics.
    """

    instance: str
    version: str
    cluster_id: str
    time_ms: TimestampMs
    evaluated_ms: TimestampMs
    barrier: BarrierNumber
    scanned_partitions: int
    census_partitions: int
    beyond_partitions: int
    beyond_names: tuple[str, ...]
    unproven_partitions: int
    unproven_names: tuple[str, ...]
    furthest_behind: int
    unread_log_partitions: int
    is_coordinator_read: bool
    coordinator_view: str
    undecided_spans: int
    undecided_names: tuple[str, ...]
    leaderless_names: tuple[str, ...]
    failing_targets: tuple[str, ...]
    is_ready: bool | None = None
    undelivered_events: int | None = None
    topics_digest: str | None = None
    speaks: bool | None = None

    @property
    def key(self) -> str:
        """The record's key: one for each instance of a cluster."""
        named = f"{self.cluster_id}\x1f{self.instance}".encode()
        return KEY_PREFIX + hashlib.sha256(named).hexdigest()[:32]

    def doubt(self, now_ms: TimestampMs) -> str | None:
        """Why the heartbeat is not plausible; None if it is."""
        ahead_ms = max(self.evaluated_ms, self.time_ms) - now_ms
        return f"its time is {ahead_ms} ms in the future" if ahead_ms > AHEAD_MS else None

    def is_active(self, now_ms: TimestampMs) -> bool:
        """Whether this watcher is active now; the other fields show what it covers."""
        return self.doubt(now_ms) is None and now_ms - self.evaluated_ms <= ACTIVE_MS

    @property
    def group(self) -> tuple[str, str | None]:
        """The cluster and the digest of the topics: watchers with the same ones watch the same, and one speaks."""
        return self.cluster_id, self.topics_digest

    def is_missed(self, now_ms: TimestampMs) -> bool:
        """Whether this watcher is silent, and for less than a day: it may come back."""
        return self.doubt(now_ms) is None and ACTIVE_MS < now_ms - self.evaluated_ms <= MISSED_MS

    def is_expired(self, retention_ms: DurationMs, now_ms: TimestampMs) -> bool:
        """Whether the heartbeat is deleted from the events topic now."""
        return now_ms - self.time_ms >= retention_ms


# What a record of the events topic is: an event, a heartbeat, another record under an incident's key, or a refused one.
TopicRecord = IncidentEvent | Heartbeat | Overwritten | BadEventError


_is_name = is_text(MOST_NAME)


def _are_names(value: Any) -> bool:  # noqa: ANN401 - a decoded value
    return isinstance(value, list) and len(value) <= MOST_NAMES and all(map(_is_name, value))


LISTS: Final = ("beyond_names", "unproven_names", "undecided_names", "leaderless_names", "failing_targets")
_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    "instance": is_text(NAME_BYTES),
    "version": is_text(255),
    "cluster_id": is_cluster_id,
    "time_ms": is_number(0, LAST_TIME_MS),
    "evaluated_ms": is_number(0, LAST_TIME_MS),
    "barrier": is_number(0, INT64),
    **dict.fromkeys(
        (
            "scanned_partitions",
            "census_partitions",
            "beyond_partitions",
            "unproven_partitions",
            "unread_log_partitions",
            "undecided_spans",
        ),
        is_number(0, INT32),
    ),
    **dict.fromkeys(LISTS, _are_names),
    "furthest_behind": is_number(0, INT64),
    "is_coordinator_read": lambda value: type(value) is bool,
    "coordinator_view": lambda value: value in tuple(CoordinatorAccess),
    "is_ready": lambda value: value is None or type(value) is bool,
    "undelivered_events": lambda value: value is None or is_number(0, INT64)(value),
    "topics_digest": lambda value: value is None or is_text(64)(value),
    "speaks": lambda value: value is None or type(value) is bool,
}


_FIELDS: Final = fields(Heartbeat)


def invalid_field(values: Mapping[str, Any]) -> str | None:
    """The name of a field whose value is not valid; None if all are."""
    return next((name for name, check in _CHECKS.items() if not check(values[name])), None)


def to_bytes(heartbeat: Heartbeat) -> bytes:
    """The heartbeat as one line of JSON."""
    return json.dumps(asdict(heartbeat), separators=(",", ":")).encode()


def from_bytes(value: bytes, key: str) -> Heartbeat:
    """A heartbeat from its JSON; `key` is the key of its record.

    Raises:
        BadEventError: it is not a heartbeat, or has another instance's key.
    """
    if len(value) > MAX_BYTES:
        message = f"expected a heartbeat of at most {MAX_BYTES} bytes, found {len(value)}"
        raise BadEventError(SkipReason.TOO_LARGE, message)
    try:
        raw = read_json(value)
        values = {spec.name: raw[spec.name] if spec.default is MISSING else raw.get(spec.name) for spec in _FIELDS}
    except Exception as exc:  # a decoder can raise anything on invalid bytes
        raise BadEventError(SkipReason.UNDECODABLE, f"expected a heartbeat, found {value[:40]!r}...") from exc
    wrong = invalid_field(values)
    if wrong is not None:
        raise BadEventError(SkipReason.INVALID, f"expected a heartbeat: {wrong} has an invalid value")
    heartbeat = Heartbeat(**{**values, **{name: tuple(values[name]) for name in LISTS}})
    if heartbeat.key != key:
        raise BadEventError(SkipReason.WRONG_KEY, "expected a heartbeat under its own instance's key")
    return heartbeat


# Decides from heartbeats which clusters have an active watcher, and where no active watcher proves anything.
#
# Law:
#   * A heartbeat that is not plausible never replaces a plausible one, and its watcher is never active.
#   * To be active and to cover a partition are two things. A watcher that evaluates barriers is active. The partitions
#     about which it proves nothing are not covered.
#   * Every watcher of a cluster reads the same coordinators' log. So it is enough that one of them has read all of it:
#     another one may have just started. A watcher that does not use that log has not read it. Topics may be divided
#     between watchers, so the data partitions of each one count.
#   * A watcher that is silent for less than a day covers nothing now. Its partitions are not covered, unless an active
#     watcher has the same settings of topics.
#   * A verdict that the coordinator view of a watcher does not detect leaves no partition uncovered: the view is
#     chosen, and the verdict is named. `hanging` is the exception: without it an empty list does not show that nothing
#     hangs.
#
# Pure: no I/O, no clock.

_OF_LOG = f"{TRANSACTION_STATE_TOPIC}-"


class Missing(Enum):
    """What a watcher does not cover."""

    EVERYTHING = auto()
    HANGS = auto()
    LOG = auto()
    DATA = auto()
    DECISION = auto()  # whether some open data hangs
    WATCHER = auto()  # it is silent


class Uncovered(NamedTuple):
    """What an active watcher proves nothing about: the names that are known, and how many more there are.

    These are partitions, or open data with the reason (DECISION).
    """

    watcher: Heartbeat
    missing: Missing
    names: tuple[str, ...] = ()
    more: int = 0


def last_of_each(heartbeats: Iterable[Heartbeat], now_ms: TimestampMs) -> list[Heartbeat]:
    """The last heartbeat of each instance, the latest judgement first; doubtful heartbeats come last."""
    last: dict[str, Heartbeat] = {}
    for beat in heartbeats:
        current = last.get(beat.key)
        if current is None or _replaces(beat, current, now_ms):
            last[beat.key] = beat
    return sorted(last.values(), key=lambda beat: (beat.doubt(now_ms) is not None, -beat.evaluated_ms))


def _replaces(beat: Heartbeat, current: Heartbeat, now_ms: TimestampMs) -> bool:
    if beat.doubt(now_ms) is not None:
        return False
    return current.doubt(now_ms) is not None or current.time_ms <= beat.time_ms


def unwatched(clusters: Iterable[str], last: Iterable[Heartbeat], now_ms: TimestampMs) -> list[str]:
    """The clusters without an active watcher."""
    return sorted(set(clusters) - {beat.cluster_id for beat in last if beat.is_active(now_ms)})


def unspoken(last: Iterable[Heartbeat], now_ms: TimestampMs) -> list[str]:
    """The clusters with active watchers of the same topics of which none publishes events.

    One whose clock is ahead by an hour at most may be the one that does: it says so, and nothing shows that it is not
    active.
    """
    by_topics: dict[tuple[str, str | None], list[bool | None]] = {}
    for beat in last:
        if beat.is_active(now_ms):
            by_topics.setdefault(beat.group, []).append(beat.speaks)
        elif beat.speaks and AHEAD_MS < beat.time_ms - now_ms <= MOST_AHEAD_MS:
            by_topics.setdefault(beat.group, []).append(None)
    return sorted({cluster_id for (cluster_id, _), speak in by_topics.items() if set(speak) == {False}})


def undetected(last: Iterable[Heartbeat], now_ms: TimestampMs) -> dict[str, tuple[Verdict, ...]]:
    """By cluster, the verdicts that none of its active watchers detects; without clusters where each is detected."""
    by_cluster: dict[str, tuple[Verdict, ...]] = {}
    for beat in last:
        if beat.is_active(now_ms):
            missing = undetected_in(CoordinatorAccess(beat.coordinator_view))
            by_cluster[beat.cluster_id] = tuple(
                verdict for verdict in missing if verdict in by_cluster.get(beat.cluster_id, missing)
            )
    return {cluster: verdicts for cluster, verdicts in sorted(by_cluster.items()) if verdicts}


def uncovered(last: Sequence[Heartbeat], now_ms: TimestampMs) -> list[Uncovered]:
    """What the active watchers prove nothing about, in clusters that have one."""
    active = [beat for beat in last if beat.is_active(now_ms)]
    log_is_read = {beat.cluster_id for beat in active if _has_read_log(beat)}
    parts = [part for beat in active for part in _uncovered_by(beat, is_log_read=beat.cluster_id in log_is_read)]
    watched, covered = {beat.cluster_id for beat in active}, {beat.group for beat in active}
    return parts + [
        Uncovered(beat, Missing.WATCHER, more=beat.scanned_partitions + beat.census_partitions)
        for beat in last
        if beat.cluster_id in watched and beat.group not in covered and beat.is_missed(now_ms)
    ]


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
    if beat.undecided_spans:
        more = max(0, beat.undecided_spans - len(beat.undecided_names))
        yield Uncovered(beat, Missing.DECISION, beat.undecided_names, more)


def _part(beat: Heartbeat, missing: Missing, count: int) -> Iterator[Uncovered]:
    is_log = missing is Missing.LOG
    names = tuple(name for name in beat.unproven_names if name.startswith(_OF_LOG) is is_log)
    more = max(0, count - len(names))
    if names or more:
        yield Uncovered(beat, missing, names, more)
