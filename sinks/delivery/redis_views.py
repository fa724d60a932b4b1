"""What a Redis shows of every cluster it knows, read back for `txnwatch status`; written by sinks/delivery/redis.py.

Law: whoever may write there can write anything. A key that holds nothing of ours is named with the reason, and the
others are read; it is never taken for the truth about a cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import redis

from txnwatch.sinks.delivery.encoding import event_of, schema
from txnwatch.sinks.delivery.heartbeat import Heartbeat, from_bytes
from txnwatch.sinks.delivery.redis import HEARTBEAT, OUR_KEYS, TIMEOUT_S
from txnwatch.sinks.delivery.signature import Keys, redis_place
from txnwatch.state.model.errors import BadEventError, PassedOver, SinkError
from txnwatch.state.model.incident import IncidentEvent

_TEXTS: Final = frozenset(
    field["name"] for field in schema()["fields"] if field["type"] in ("string", ["null", "string"])
)


class Shown(NamedTuple):
    """What a Redis shows.

    Attributes:
        clusters: those it is kept for.
        incidents: the open incidents, oldest first.
        heartbeats: the watchers that have told of themselves.
        unread: the keys that could not be read, and why.
    """

    clusters: list[str]
    incidents: list[IncidentEvent]
    heartbeats: list[Heartbeat]
    unread: dict[str, str]


def read_shown(url: str, keys: Keys | None = None) -> Shown:
    """What this Redis shows of every cluster it knows; `keys` are for the heartbeats, which are signed with them.

    Raises:
        SinkError: Redis is away, or holds nothing of ours.
    """
    where = f"Redis {url.rpartition('@')[2].removeprefix('redis://')}"
    try:
        client: Any = redis.Redis.from_url(
            url,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            decode_responses=True,
            encoding_errors="backslashreplace",
        )
    except ValueError as exc:
        raise SinkError(f"{where}: {exc}") from exc
    try:
        prefixes = sorted(key.removesuffix("filled") for key in client.scan_iter("txnwatch:*:filled"))
        if not prefixes:
            told = "holds nothing of txnwatch: expected one that `txnwatch run --redis-url` fills"
            raise SinkError(f"{where} {told}")
        unread: dict[str, str] = {}
        found = [event for prefix in prefixes for event in _open_under(client, prefix, unread)]
        beats = [beat for prefix in prefixes for beat in _heartbeats_under(client, prefix, keys, unread)]
    except redis.RedisError as exc:
        raise SinkError(f"{where}: {exc}") from exc
    finally:
        client.close()
    clusters = [prefix.removeprefix("txnwatch:").removesuffix(":") for prefix in prefixes]
    return Shown(clusters, sorted(found, key=lambda event: event.open_since_ms), beats, unread)


def _heartbeats_under(
    client: Any,  # noqa: ANN401 - redis-py types answers as anything
    prefix: str,
    keys: Keys | None,
    unread: dict[str, str],
) -> Iterator[Heartbeat]:
    cluster_id = prefix.removeprefix("txnwatch:").removesuffix(":")
    for key in sorted(client.scan_iter(f"{_literal(prefix)}{HEARTBEAT}*")):
        try:
            held = client.hgetall(key)
            value = held.get("heartbeat", "").encode(errors="surrogatepass")
            name = OUR_KEYS + key.removeprefix(prefix)
            if not held:  # it has expired in between
                continue
            problem = keys.problem(redis_place(cluster_id), name, value, held.get("signature")) if keys else None
            beat = from_bytes(value, name)
        except (SinkError, redis.ResponseError) as exc:
            unread[key] = str(exc)
            continue
        if problem is not None:
            unread[key] = f"a heartbeat whose signature is not right: {problem}"
        elif beat.cluster_id != cluster_id:
            unread[key] = "a heartbeat of another cluster"
        else:
            yield beat


def _literal(text: str) -> str:
    """A pattern that Redis matches with this text alone."""
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
        if not held:  # a resolved one keeps its hash
            unread[key] = "an open incident, and its hash is gone: does this Redis evict keys?"
            continue
        try:
            event = event_of({name: _value(name, value) for name, value in held.items()})
        except BadEventError as exc:
            unread[key] = str(exc)
            continue
        if event.incident_id != incident_id:
            unread[key] = "expected the incident of its own key, found another"
        elif event.is_open:  # else it was resolved in between
            yield event


def _value(name: str, text: str) -> object:
    try:
        return text if name in _TEXTS else json.loads(text)
    except Exception as exc:  # whatever a decoder makes of text that is none; nesting ends it with a RecursionError
        raise BadEventError(PassedOver.UNDECODABLE, f"expected the fields of an incident event: {name}") from exc
