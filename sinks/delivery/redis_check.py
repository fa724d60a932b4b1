"""Tries every command of the Redis mirror, for `txnwatch doctor`: a ping does not show what an ACL refuses.

The commands use keys of their own, which expire.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import redis

from txnwatch.sinks.delivery.redis_client import redis_client

_EXPIRES_S: Final = 60
_SCRIPT: Final = "return 1"


def _transaction(client: Any, key: str) -> None:  # noqa: ANN401 - redis-py types answers as anything
    with client.pipeline(transaction=True) as changes:
        changes.delete(key)
        changes.execute()


def _part_of_transaction(refusal: str, client: Any, key: str) -> None:  # noqa: ANN401
    """Runs a transaction; only an error with the text `refusal` is about this command, else it is about another."""
    try:
        _transaction(client, key)
    except redis.ResponseError as exc:
        if refusal in str(exc):
            raise


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
    "multi": partial(_part_of_transaction, "without MULTI"),
    "exec": partial(_part_of_transaction, "'exec'"),
}


def refused_commands(url: str) -> dict[str, str]:
    """The commands that this Redis refuses to this user, each with its error; empty if all work.

    Raises:
        redis.RedisError: Redis does not answer.
        ValueError: the URL is invalid.
    """
    client = redis_client(url)
    key = f"txnwatch:{{doctor}}:{secrets.token_hex(8)}"
    refused: dict[str, str] = {}
    try:
        for name, attempt in COMMANDS.items():
            try:
                attempt(client, key)
            except redis.ResponseError as exc:
                refused[name] = str(exc)
        _delete(client, key)
    finally:
        client.close()
    return refused


def _delete(client: Any, key: str) -> None:  # noqa: ANN401
    for kind in ("text", "hash", "set", "stream"):
        try:
            client.delete(f"{key}:{kind}")
        except redis.ResponseError:  # they expire
            return
