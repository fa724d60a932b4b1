"""A watcher's heartbeat: which one it is, when it last judged, and how far it reaches.

On the events topic it is a record with a key of its own, which is no incident's id, and a CloudEvents type of its
own; in Redis a hash that expires. Both are the claim of whoever may write there.

Law: one that cannot be (of the future, or with a number out of range) is not believed, and never taken for an event.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from txnwatch.state.events.value_rules import INT32, INT64, LAST_TIME_MS, NAME_BYTES, is_cluster_id, is_number, is_text
from txnwatch.state.model.errors import BadEventError, PassedOver

KEY_PREFIX: Final = "txnwatch.heartbeat:"
EVENT_TYPE: Final = "io.txnwatch.heartbeat.v1"
CONTENT_TYPE: Final = "application/json"
MAX_BYTES: Final = 128 * 1024
FRESH_MS: Final = 60_000  # several heartbeats, and a batch that took long
MOST_NAMES: Final = 3
AHEAD_MS: Final = 60_000  # how far another machine's clock may be ahead of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What a watcher says of itself; times are its machine's clock.

    Attributes:
        judged_ms: when it last judged a barrier, and `barrier` its number; `time_ms` is when this was said.
        scanned_partitions, census_partitions: what it watches, by how.
        unproven_partitions: of which nothing is proven for half a minute, or since the start; hidden ones, those that a
            census alone watches and that are not described, and those of the coordinators' log too. `unproven_names`
            has the first, those of the log before the others.
        furthest_behind: offsets that the partition lacks that is furthest behind.
        unread_log_partitions: how many of `unproven_partitions` are partitions of the coordinators' log.
        is_coordinator_read: whether at least a part of that log is read to its end: else nothing at all is proven.
    """

    instance: str
    version: str
    cluster_id: str
    time_ms: int
    judged_ms: int
    barrier: int
    scanned_partitions: int
    census_partitions: int
    unproven_partitions: int
    unproven_names: tuple[str, ...]
    furthest_behind: int
    unread_log_partitions: int
    is_coordinator_read: bool

    @property
    def key(self) -> str:
        """The record's key: one for each instance of a cluster."""
        named = f"{self.cluster_id}\x1f{self.instance}".encode()
        return KEY_PREFIX + hashlib.sha256(named).hexdigest()[:32]

    def doubt(self, now_ms: int) -> str | None:
        """Why it is not believed, None for nothing."""
        ahead_ms = max(self.judged_ms, self.time_ms) - now_ms
        return f"it is of {ahead_ms} ms in the future" if ahead_ms > AHEAD_MS else None

    def is_looking(self, now_ms: int) -> bool:
        """Whether this watcher judges now; how far it reaches is said by the other fields."""
        return self.doubt(now_ms) is None and now_ms - self.judged_ms <= FRESH_MS


_is_name = is_text(300)


def _are_names(value: Any) -> bool:  # noqa: ANN401 - a decoded value
    return isinstance(value, list) and len(value) <= MOST_NAMES and all(map(_is_name, value))


_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    "instance": is_text(NAME_BYTES),
    "version": is_text(255),
    "cluster_id": is_cluster_id,
    "time_ms": is_number(0, LAST_TIME_MS),
    "judged_ms": is_number(0, LAST_TIME_MS),
    "barrier": is_number(0, INT64),
    **dict.fromkeys(
        ("scanned_partitions", "census_partitions", "unproven_partitions", "unread_log_partitions"), is_number(0, INT32)
    ),
    "unproven_names": _are_names,
    "furthest_behind": is_number(0, INT64),
    "is_coordinator_read": lambda value: type(value) is bool,
}


def to_bytes(heartbeat: Heartbeat) -> bytes:
    """As one line of JSON."""
    return json.dumps(asdict(heartbeat), separators=(",", ":")).encode()


def from_bytes(value: bytes, key: str) -> Heartbeat:
    """A heartbeat from its JSON, under the key it was found.

    Raises:
        BadEventError: it is none, or has another's key.
    """
    if len(value) > MAX_BYTES:
        raise BadEventError(PassedOver.TOO_LARGE, f"expected a heartbeat of at most {MAX_BYTES} bytes")
    try:
        raw = json.loads(value)
        found = {spec.name: raw[spec.name] for spec in fields(Heartbeat)}
    except Exception as exc:  # whatever a decoder makes of bytes that are none
        raise BadEventError(PassedOver.UNDECODABLE, f"expected a heartbeat, found {value[:40]!r}...") from exc
    wrong = [name for name, check in _CHECKS.items() if not check(found[name])]
    if wrong:
        raise BadEventError(PassedOver.INVALID, f"expected a heartbeat: {wrong[0]} is not what it can be")
    heartbeat = Heartbeat(**{**found, "unproven_names": tuple(found["unproven_names"])})
    if heartbeat.key != key:
        raise BadEventError(PassedOver.WRONG_KEY, "expected a heartbeat under its own instance's key")
    return heartbeat
