"""A watcher's heartbeat: which instance it is, when it last evaluated a barrier, and what it covers.

On the events topic it is a record with its own key, which is not an incident's id, and its own CloudEvents type; in
Redis it is a hash that expires. Anyone who may write there can forge one.

Law: an impossible heartbeat (from the future, or with a number out of range) is rejected, and never used as an event.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from txnwatch.state.events.value_rules import INT32, INT64, LAST_TIME_MS, NAME_BYTES, is_cluster_id, is_number, is_text
from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.state.model.errors import BadEventError, SkipReason
from txnwatch.state.model.ids import BarrierNumber
from txnwatch.state.model.quantities import DurationMs, TimestampMs
from txnwatch.state.text.outside_json import read_json

KEY_PREFIX: Final = "txnwatch.heartbeat:"
EVENT_TYPE: Final = "io.txnwatch.heartbeat.v1"
CONTENT_TYPE: Final = "application/json"
MAX_BYTES: Final = 128 * 1024
FRESH_MS: Final = DurationMs(60_000)  # several heartbeats, and one slow batch
MOST_NAMES: Final = 3
AHEAD_MS: Final = DurationMs(60_000)  # how far another machine's clock may be ahead of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The state of a watcher; times are its machine's clock.

    Attributes:
        evaluated_ms: when it last evaluated a barrier; `barrier` is its number, `time_ms` the time of this heartbeat.
        scanned_partitions, census_partitions: how many partitions it scans, and how many it watches by census
            only.
        unproven_partitions: partitions of which nothing is proven for half a minute, or since the start; also hidden
            ones, census-only ones that are not described, and those of `__transaction_state`. `unproven_names` has
            the first few, those of `__transaction_state` before the others.
        furthest_behind: unread offsets of the partition that is furthest behind.
        unread_log_partitions: how many of `unproven_partitions` are partitions of `__transaction_state`.
        is_coordinator_read: whether at least a part of `__transaction_state` is read to its end: else nothing at all is
            proven. Without that log (`coordinator_view`), whether the watch reads at all.
        coordinator_view: how the coordinators' view is known.
    """

    instance: str
    version: str
    cluster_id: str
    time_ms: TimestampMs
    evaluated_ms: TimestampMs
    barrier: BarrierNumber
    scanned_partitions: int
    census_partitions: int
    unproven_partitions: int
    unproven_names: tuple[str, ...]
    furthest_behind: int
    unread_log_partitions: int
    is_coordinator_read: bool
    coordinator_view: str

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
        return self.doubt(now_ms) is None and now_ms - self.evaluated_ms <= FRESH_MS

    def is_expired(self, retention_ms: DurationMs, now_ms: TimestampMs) -> bool:
        """Whether the heartbeat is deleted from the events topic now."""
        return now_ms - self.time_ms >= retention_ms


_is_name = is_text(300)


def _are_names(value: Any) -> bool:  # noqa: ANN401 - a decoded value
    return isinstance(value, list) and len(value) <= MOST_NAMES and all(map(_is_name, value))


_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    "instance": is_text(NAME_BYTES),
    "version": is_text(255),
    "cluster_id": is_cluster_id,
    "time_ms": is_number(0, LAST_TIME_MS),
    "evaluated_ms": is_number(0, LAST_TIME_MS),
    "barrier": is_number(0, INT64),
    **dict.fromkeys(
        ("scanned_partitions", "census_partitions", "unproven_partitions", "unread_log_partitions"), is_number(0, INT32)
    ),
    "unproven_names": _are_names,
    "furthest_behind": is_number(0, INT64),
    "is_coordinator_read": lambda value: type(value) is bool,
    "coordinator_view": lambda value: value in tuple(CoordinatorAccess),
}


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
        found = {spec.name: raw[spec.name] for spec in fields(Heartbeat)}
    except Exception as exc:  # a decoder can raise anything on invalid bytes
        raise BadEventError(SkipReason.UNDECODABLE, f"expected a heartbeat, found {value[:40]!r}...") from exc
    wrong = [name for name, check in _CHECKS.items() if not check(found[name])]
    if wrong:
        raise BadEventError(SkipReason.INVALID, f"expected a heartbeat: {wrong[0]} has an invalid value")
    heartbeat = Heartbeat(**{**found, "unproven_names": tuple(found["unproven_names"])})
    if heartbeat.key != key:
        raise BadEventError(SkipReason.WRONG_KEY, "expected a heartbeat under its own instance's key")
    return heartbeat
