"""Reads the incidents and heartbeats of all clusters from Redis, for `txnwatch status`; redis.py writes them.

Law: anyone who may write to Redis can write anything. An invalid key is reported with the reason, and the others are
still read. It is never used as information about a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import redis

from txnwatch.sinks.delivery.encoding import event_of, schema
from txnwatch.sinks.delivery.redis import HEARTBEAT, OUR_KEYS, prefix_of
from txnwatch.sinks.delivery.redis_client import redis_client
from txnwatch.sinks.delivery.signature import Keys, redis_place
from txnwatch.state.events.heartbeat import Heartbeat, from_bytes
from txnwatch.state.model.errors import BadEventError, SinkError, SkipReason
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.text.outside_json import read_json
from txnwatch.state.text.redaction import REDIS_URL_RULE, shown_place

_BEGIN, _END = prefix_of("\n").split("\n")  # around the id of a cluster
_TEXTS: Final = frozenset(
    field["name"] for field in schema()["fields"] if field["type"] in ("string", ["null", "string"])
)


class Shown(NamedTuple):
    """The content of a Redis.

    Attributes:
        clusters: ids of the clusters that have keys there.
        incidents: the open incidents, oldest first.
        heartbeats: the heartbeats of watchers.
        unread: the keys that could not be read, with the reason.
    """

    clusters: list[str]
    incidents: list[IncidentEvent]
    heartbeats: list[Heartbeat]
    unread: dict[str, str]


def read_shown(url: str, keys: Keys | None = None) -> Shown:
    """Reads all clusters of this Redis; `keys` verify the signatures of heartbeats.

    Raises:
        SinkError: Redis does not answer, or has no keys of txnwatch.
    """
    where = f"Redis {shown_place(url)}"
    try:
        client = redis_client(url, decode_responses=True, encoding_errors="backslashreplace")
    except ValueError as exc:  # its message may have a part of the URL
        raise SinkError(f"{where}: expected {REDIS_URL_RULE}") from exc
    except redis.RedisError as exc:
        raise SinkError(f"{where}: {exc}") from exc
    try:
        prefixes = sorted(key.removesuffix("filled") for key in client.scan_iter(f"{_BEGIN}*{_END}filled"))
        if not prefixes:
            message = "has no keys of txnwatch: expected a Redis that `txnwatch run --redis-url` writes to"
            raise SinkError(f"{where} {message}")
        unread: dict[str, str] = {}
        found = [event for prefix in prefixes for event in _open_under(client, prefix, unread)]
        beats = [beat for prefix in prefixes for beat in _heartbeats_under(client, prefix, keys, unread)]
    except redis.RedisError as exc:
        raise SinkError(f"{where}: {exc}") from exc
    finally:
        client.close()
    clusters = [prefix.removeprefix(_BEGIN).removesuffix(_END) for prefix in prefixes]
    return Shown(clusters, sorted(found, key=lambda event: event.open_since_ms), beats, unread)


def _heartbeats_under(
    client: Any,  # noqa: ANN401 - redis-py types answers as anything
    prefix: str,
    keys: Keys | None,
    unread: dict[str, str],
) -> Iterator[Heartbeat]:
    cluster_id = prefix.removeprefix(_BEGIN).removesuffix(_END)
    for key in sorted(client.scan_iter(f"{_literal(prefix)}{HEARTBEAT}*")):
        try:
            held = client.hgetall(key)
            value = held.get("heartbeat", "").encode(errors="surrogatepass")
            name = OUR_KEYS + key.removeprefix(prefix)
            if not held:  # it has expired in the meantime
                continue
            problem = keys.problem(redis_place(cluster_id), name, value, held.get("signature")) if keys else None
            beat = from_bytes(value, name)
        except (SinkError, redis.ResponseError) as exc:
            unread[key] = str(exc)
            continue
        if problem is not None:
            unread[key] = f"a heartbeat without a valid signature: {problem}"
        elif beat.cluster_id != cluster_id:
            unread[key] = "a heartbeat of another cluster"
        else:
            yield beat


def _literal(text: str) -> str:
    """The text as a Redis pattern that matches only this text."""
    return "".join(f"\\{one}" if one in "*?[]^\\" else one for one in text)


def _open_under(
    client: Any,  # noqa: ANN401 - redis-py types answers as anything
    prefix: str,
    unread: dict[str, str],
) -> Iterator[IncidentEvent]:
    for incident_id in client.zrange(f"{prefix}incidents", 0, -1):
        key = f"{prefix}incident:{incident_id}"
        try:
            held = client.hgetall(key)
        except redis.ResponseError as exc:  # another type under this key
            unread[key] = str(exc)
            continue
        if not held:  # even a resolved incident keeps its hash
            unread[key] = "an open incident without its hash: does this Redis evict keys?"
            continue
        try:
            event = event_of_hash(held)
        except BadEventError as exc:
            unread[key] = str(exc)
            continue
        if event.incident_id != incident_id:
            unread[key] = "expected the incident of its own key, found another"
        elif event.is_open:  # else it was resolved in the meantime
            yield event


def event_of_hash(held: Mapping[str, str]) -> IncidentEvent:
    """The event in the hash of an incident, which any client of this Redis can write.

    Raises:
        BadEventError: a field cannot be decoded, or the fields are not an event.
    """
    return event_of({name: _value(name, value) for name, value in held.items()})


def _value(name: str, text: str) -> object:
    try:
        return text if name in _TEXTS else read_json(text)
    except ValueError as exc:
        raise BadEventError(SkipReason.UNDECODABLE, f"expected an incident event: {name} is not valid JSON") from exc
