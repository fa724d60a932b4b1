"""What commands need of Redis: the incidents and heartbeats of all clusters, and whether each command is permitted.

`txnwatch status` shows the first, which redis_sink.py writes. `txnwatch doctor` tries the commands.

Law: anyone who may write to Redis can write anything. An invalid key is reported with the reason, and the others are
still read. It is never used as information about a cluster.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import redis

from txnwatch.sinks.delivery.encoding import Keys, event_of, redis_place, schema
from txnwatch.sinks.delivery.redis_client import is_refusal, redis_client, said
from txnwatch.sinks.delivery.redis_sink import HEARTBEAT, OUR_KEYS, prefix_of
from txnwatch.state.incidents.heartbeat import Heartbeat, from_bytes
from txnwatch.state.model.errors import BadEventError, SinkError, SkipReason
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.text import REDIS_URL_RULE, read_json, shown_place

_BEGIN, _END = prefix_of("\n").split("\n")  # around the id of a cluster
_TEXTS: Final = frozenset(
    field["name"] for field in schema()["fields"] if field["type"] in ("string", ["null", "string"])
)


class RedisIncidents(NamedTuple):
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


def read_shown(url: str, keys: Keys | None = None) -> RedisIncidents:
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
        raise SinkError(f"{where}: {said(exc)}") from exc
    try:
        prefixes = sorted(key.removesuffix("filled") for key in client.scan_iter(f"{_BEGIN}*{_END}filled"))
        if not prefixes:
            message = "has no keys of txnwatch: expected a Redis that `txnwatch run --redis-url` writes to"
            raise SinkError(f"{where} {message}")
        unread: dict[str, str] = {}
        events = [event for prefix in prefixes for event in _open_under(client, prefix, unread)]
        beats = [beat for prefix in prefixes for beat in _heartbeats_under(client, prefix, keys, unread)]
    except redis.RedisError as exc:
        raise SinkError(f"{where}: {said(exc)}") from exc
    finally:
        client.close()
    clusters = [prefix.removeprefix(_BEGIN).removesuffix(_END) for prefix in prefixes]
    return RedisIncidents(clusters, sorted(events, key=lambda event: event.open_since_ms), beats, unread)


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
    return "".join(f"\\{char}" if char in "*?[]^\\" else char for char in text)


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


# Tries every command of the Redis mirror: a ping does not show what an ACL refuses.
#
# The commands use keys of their own, which expire.

_EXPIRES_S: Final = 60
_SCRIPT: Final = "return 1"
_KEYS: Final = "~txnwatch:*"
# Before 7.0 the error of Redis has only the command. The client and the mirror use one subcommand of each.
_SUBCOMMANDS: Final = {"cluster": "cluster|slots", "sentinel": "sentinel|masters", "script": "script|load"}


class RefusedCommand(NamedTuple):
    """A command that Redis refuses, or that has failed.

    Attributes:
        command: in the form of an ACL; one of the client's own, if the client cannot connect without it.
        right: the missing rule of the ACL; None if the command failed for another reason.
        error: of Redis.
    """

    command: str
    right: str | None
    error: str


def _multi(client: Any, key: str) -> None:  # noqa: ANN401 - redis-py types answers as anything
    """Begins a transaction on a connection of its own, which is then closed: that discards the transaction."""
    with _node(client, key).client() as own_client:
        try:
            own_client.execute_command("MULTI")
        finally:
            own_client.connection.disconnect()


def _exec(client: Any, key: str) -> None:  # noqa: ANN401
    """Ends a transaction that has not begun. Redis answers a refused EXEC with EXECABORT, a permitted one with ERR."""
    try:
        _node(client, key).execute_command("EXEC")
    except (redis.exceptions.ExecAbortError, redis.exceptions.NoPermissionError):
        raise
    except redis.ResponseError:
        return


def _node(client: Any, key: str) -> Any:  # noqa: ANN401
    """The client of the server that has the key; a client of a cluster has no command without a key."""
    if not isinstance(client, redis.RedisCluster):
        return client
    return client.get_redis_connection(client.get_node_from_key(key))


def _evaluated(client: Any, key: str) -> None:  # noqa: ANN401
    try:
        client.evalsha("0" * 40, 1, key)
    except redis.exceptions.NoScriptError:
        return


# What redis_sink.py sends, and what its script calls; an ACL names the commands in this form.
COMMANDS: Final[dict[str, Callable[[Any, str], object]]] = {
    "time": lambda client, _: client.time(),
    "set": lambda client, key: client.set(f"{key}:text", "1", nx=True, ex=_EXPIRES_S),
    "del": lambda client, key: client.delete(f"{key}:none"),
    "hset": lambda client, key: client.hset(f"{key}:hash", mapping={"field": "1"}),
    "hget": lambda client, key: client.hget(f"{key}:hash", "field"),
    "zadd": lambda client, key: client.zadd(f"{key}:set", {"member": 1}),
    "zrange": lambda client, key: client.zrange(f"{key}:set", 0, 0),
    "xadd": lambda client, key: client.xadd(f"{key}:stream", {"field": "1"}),
    "expire": lambda client, key: [client.expire(f"{key}:{kind}", _EXPIRES_S) for kind in ("hash", "set", "stream")],
    "zrem": lambda client, key: client.zrem(f"{key}:set", "member"),
    "script|load": lambda client, _: client.script_load(_SCRIPT),
    "evalsha": _evaluated,
    "multi": _multi,
    "exec": _exec,
}


# A client of a cluster sends this while a slot moves to another node.
_OF_A_CLUSTER: Final[dict[str, Callable[[Any, str], object]]] = {
    "asking": lambda client, key: _node(client, key).execute_command("ASKING"),
}


def refused_commands(url: str) -> list[RefusedCommand]:
    """The commands that do not work for this user, empty if all work.

    Raises:
        redis.RedisError: Redis does not answer.
        ValueError: the URL is invalid.
    """
    try:
        client = redis_client(url)
    except redis.exceptions.NoPermissionError as exc:
        return [_refusal(_SUBCOMMANDS["cluster"], exc)]
    key = f"txnwatch:{{doctor}}:{secrets.token_hex(8)}"
    attempts = COMMANDS | (_OF_A_CLUSTER if isinstance(client, redis.RedisCluster) else {})
    refused: dict[str, RefusedCommand] = {}
    try:
        for name, attempt in attempts.items():
            try:
                attempt(client, key)
            except redis.ResponseError as exc:
                refusal = _refusal(name, exc)
                refused.setdefault(refusal.command, refusal)
        _delete(client, key)
    finally:
        client.close()
    return list(refused.values())


def _refusal(attempted: str, exc: redis.ResponseError) -> RefusedCommand:
    text = str(exc)
    if not is_refusal(exc):
        return RefusedCommand(attempted, None, text)
    if re.search(r"\baccess .*\bkeys?\b", text):
        return RefusedCommand(attempted, _KEYS, text)
    named = re.search(r"'([^']+)' command", text)
    command = named[1] if named is not None else attempted
    command = _SUBCOMMANDS.get(command, command)
    return RefusedCommand(command, f"+{command}", text)


def _delete(client: Any, key: str) -> None:  # noqa: ANN401
    for kind in ("text", "hash", "set", "stream"):
        try:
            client.delete(f"{key}:{kind}")
        except redis.ResponseError:  # they expire
            return
