"""Clients of Redis from a URL: one server, a server that Sentinel names, or a cluster.

    redis://[[user]:password@]host:port/db                      rediss:// for TLS, unix:// for a socket
    redis+sentinel://[[user]:password@]host:port,.../name/db    rediss+sentinel:// for TLS
    redis+cluster://[[user]:password@]host:port,...             rediss+cluster:// for TLS

The query has options of redis-py. Those of the sentinels begin with `sentinel_`, for example `sentinel_password`.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.connection import SSLConnection, parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel

from txnwatch.state.model.errors import ConfigError
from txnwatch.state.text import is_host_name

_TIMEOUT_S: Final = 2.0
_SENTINEL, _CLUSTER, _ONE = "sentinel", "cluster", "one"
_PORTS: Final = {_SENTINEL: 26379, _CLUSTER: 6379}
_OF_SENTINEL: Final = "sentinel_"
# How Redis refuses a command or a key, also in a script. If MULTI is refused, redis-py shows the answer to EXEC.
_REFUSALS: Final = ("no permissions", "executing the script can't", "exec without multi")
_NOT_OF_A_SERVER: Final = ("ssl", _OF_SENTINEL)
# In the error of redis-py: the client of a sentinel as an object, and why it did not answer.
_OF_A_SENTINEL: Final = re.compile(r"[(,]host=([^,)]*),port=(\d+).*?\)>\)>\)> - (.+?)(?=, <|$)", flags=re.DOTALL)


class _Address(NamedTuple):
    """The parts of a URL; `options` are keyword arguments of a connection."""

    kind: str
    hosts: list[tuple[str, int]]
    service: str
    options: dict[str, Any]


def is_url(url: str) -> bool:
    """Whether a client can be made of the URL, and its database is a number; makes no connection."""
    try:
        address = _address(url)
        if address.kind == _ONE:
            pool = redis.ConnectionPool.from_url(url)
            pool.connection_class(**pool.connection_kwargs)
            database = urlsplit(url).path.strip("/")
            is_reachable = url.startswith("unix:") or is_host_name(urlsplit(url).hostname or "localhost")
            return is_reachable and (url.startswith("unix:") or not database or database.isdecimal())
        redis.Connection(
            **{name: value for name, value in address.options.items() if not name.startswith(_NOT_OF_A_SERVER)}
        )
    except (ValueError, TypeError, redis.RedisError):
        return False
    are_hosts = bool(address.hosts) and all(is_host_name(host) for host, _ in address.hosts)
    return are_hosts and bool(address.service) == (address.kind == _SENTINEL)


def redis_client(url: str, **options: Any) -> Any:  # noqa: ANN401 - redis-py types answers as anything
    """A client without retries and with short timeouts: the caller tries again, and must not wait.

    Raises:
        ValueError: the URL is invalid; its message may have a part of the URL.
        redis.RedisError: a cluster does not answer, or refuses a command. The other clients connect later.
    """
    address = _address(url)
    common = {"socket_timeout": _TIMEOUT_S, "socket_connect_timeout": _TIMEOUT_S, **options}
    if address.kind == _ONE:
        return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **common)
    given = {**common, **address.options}
    if address.kind == _CLUSTER:
        nodes = [ClusterNode(host, port) for host, port in address.hosts]
        try:
            return redis.RedisCluster(startup_nodes=nodes, retry=Retry(NoBackoff(), 1), **given)
        except redis.RedisClusterException as exc:  # no RedisError
            raise _reason(exc) from exc
    own = {name: given.pop(name) for name in list(given) if name.startswith(_OF_SENTINEL)}
    asking = {name.removeprefix(_OF_SENTINEL): value for name, value in own.items()}
    asking |= {name: value for name, value in given.items() if name.startswith(("socket_", "ssl"))}
    sentinel = Sentinel(address.hosts, sentinel_kwargs={**asking, "retry": Retry(NoBackoff(), 0)}, **given)
    return sentinel.master_for(address.service, retry=Retry(NoBackoff(), 0))


def is_refusal(exc: redis.RedisError) -> bool:
    """Whether the ACL of the user lacks a right."""
    return any(text in str(exc).lower() for text in _REFUSALS)


def check_login(url: str, where: str) -> None:
    """Logs in once. A Redis that does not answer now may come back, so that is no error; a wrong password stays wrong.

    Raises:
        ConfigError: Redis, or a sentinel, refuses the user or the password; `where` names Redis in the message.
    """
    try:
        with contextlib.closing(redis_client(url)) as client:
            client.ping()
    except redis.RedisError as exc:
        if _is_login_refused(exc):
            raise ConfigError(f"redis_url: expected a user and a password that {where} accepts: {said(exc)}") from exc


def _is_login_refused(exc: BaseException) -> bool:
    if isinstance(exc, redis.AuthenticationError) or redis.AuthenticationError.__name__ in str(exc):
        return True
    before = exc.__cause__ or exc.__context__
    return before is not None and _is_login_refused(before)


def said(exc: redis.RedisError) -> str:
    """The text of an error. That of Sentinel has whole client objects in it: only their addresses are kept."""
    message, has_objects, objects = str(exc).partition(" : <")
    if not has_objects:
        return message
    servers = [f"{host}:{port} ({why})" for host, port, why in _OF_A_SENTINEL.findall(objects)]
    return f"{message}: {', '.join(servers)}" if servers else message


def hint_of(exc: redis.RedisError) -> str:
    """What helps after a refusal. Not every one names the command: one in a script does not."""
    return " (`txnwatch doctor --redis-url` lists the missing rights)" if is_refusal(exc) else ""


def _reason(exc: redis.RedisClusterException) -> redis.RedisError:
    """The refusal that is the cause: redis-py reports it as a server without cluster mode."""
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, redis.exceptions.NoPermissionError):
            return redis.exceptions.NoPermissionError(str(cause))
        cause = cause.__cause__ or cause.__context__
    return redis.ConnectionError(str(exc))


def _address(url: str) -> _Address:
    scheme, _, rest = url.partition("://")
    transport, plus, kind = scheme.partition("+")
    if not plus:
        return _Address(_ONE, [], "", {})
    if kind not in _PORTS or transport not in {"redis", "rediss"}:
        raise ValueError(f"unknown scheme {scheme}")
    parts = urlsplit(f"{transport}://{rest}")
    places = parts.netloc.rpartition("@")[2].split(",")
    hosts = [_host(place, _PORTS[kind]) for place in places]
    service, _, database = unquote(parts.path.strip("/")).partition("/")
    if kind == _CLUSTER and parts.path.strip("/"):
        raise ValueError("a cluster has no databases")
    first_url = parts._replace(netloc=parts.netloc.replace(",".join(places), places[0]), path=f"/{int(database or 0)}")
    options = dict(parse_url(first_url.geturl()))
    for name in ("host", "port"):
        options.pop(name, None)
    if options.pop("connection_class", None) is SSLConnection:
        options["ssl"] = True
    if kind == _CLUSTER:
        options.pop("db", None)
    return _Address(kind, hosts, service, options)


def _host(place: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{place}")
    if not parts.hostname:
        raise ValueError("expected host:port")
    return parts.hostname, parts.port or port
