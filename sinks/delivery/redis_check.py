"""Tries every command of the Redis mirror, for `txnwatch doctor`: a ping does not show what an ACL refuses.

The commands use keys of their own, which expire.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import redis

from txnwatch.sinks.delivery.redis_client import is_refusal, redis_client

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
    with _node(client, key).client() as one:
        try:
            one.execute_command("MULTI")
        finally:
            one.connection.disconnect()


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


# What redis.py sends, and what its script calls; an ACL names the commands in this form.
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
                found = _refusal(name, exc)
                refused.setdefault(found.command, found)
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
