"""What a watcher writes to Redis: current incidents, open transactions and heartbeats, and the document of the page.

Keys, under `txnwatch:{<cluster id>}:`
  incidents         sorted set of open incidents' ids by open_since_ms
  incident:<id>     hash of one incident's latest event, by the event's field names; kept for a week after the end
  events            stream of all events, with a maximum length
  filled            since when the keys exist (epoch milliseconds); missing if Redis was emptied: all is sent again
  heartbeat:<hash>  hash of a watcher's heartbeat and its signature; expires a day after the last one
  open              sorted set of the oldest open transactions, also healthy ones, by their start; each member is a
                    JSON object; expires a minute after the last write
  page              the document (src/txnwatch/page/announced.py), compressed, and its signature; expires after a minute
  page-wanted       exists while a page asks for the document; expires after half a minute

One script changes the first three, and only if the event's sequence is higher than the one in the hash: events may
be delivered twice, late, or by a former speaker.

A watcher writes the document while `txnwatch page` asks for it and reads it. Law: the watcher looks and writes in the
thread of its mirror, so a micro-batch never waits. The reader takes at most `MOST_BYTES` from Redis, whatever is stored
there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.commands.core import Script
from redis.connection import SSLConnection, parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel

from txnwatch.sinks.delivery.encoding import Keys, plain, redis_place, to_json, with_signature, without_signature
from txnwatch.state.incidents.heartbeat import KEY_PREFIX, Heartbeat, to_bytes
from txnwatch.state.model.errors import BadEventError, SinkError, SkipReason
from txnwatch.state.model.findings import OpenTransaction
from txnwatch.state.model.incident import SPENT_SEQUENCE, IncidentEvent
from txnwatch.state.model.pauses import Every
from txnwatch.state.model.values import DurationMs, TimestampMs
from txnwatch.state.text import REDIS_URL_RULE, is_host_name, shown_place

# Clients of Redis from a URL: one server, a server that Sentinel names, or a cluster.
#
#     redis://[[user]:password@]host:port/db                      rediss:// for TLS, unix:// for a socket
#     redis+sentinel://[[user]:password@]host:port,.../name/db    rediss+sentinel:// for TLS
#     redis+cluster://[[user]:password@]host:port,...             rediss+cluster:// for TLS
#
# The query has options of redis-py. Those of the sentinels begin with `sentinel_`, for example `sentinel_password`.

TIMEOUT_S: Final = 2.0
SENTINEL, CLUSTER, ONE = "sentinel", "cluster", "one"
_PORTS: Final = {SENTINEL: 26379, CLUSTER: 6379}
_OF_SENTINEL: Final = "sentinel_"
# How Redis refuses a command or a key, also in a script. If MULTI is refused, redis-py shows the answer to EXEC.
_REFUSALS: Final = ("no permissions", "executing the script can't", "exec without multi")
_NOT_OF_A_SERVER: Final = ("ssl", _OF_SENTINEL)


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
        if address.kind == ONE:
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
    return are_hosts and bool(address.service) == (address.kind == SENTINEL)


def redis_client(url: str, **options: Any) -> Any:  # noqa: ANN401 - redis-py types answers as anything
    """A client without retries and with short timeouts: the caller tries again, and must not wait.

    Raises:
        ValueError: the URL is invalid; its message may have a part of the URL.
        redis.RedisError: a cluster does not answer, or refuses a command. The other clients connect later.
    """
    address = _address(url)
    common = {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S, **options}
    if address.kind == ONE:
        return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **common)
    given = {**common, **address.options}
    if address.kind == CLUSTER:
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


def _hint_of(exc: redis.RedisError) -> str:
    """What helps after a refusal. Not every one names the command: one in a script does not."""
    return " (`txnwatch doctor --redis-url` lists the missing rights)" if is_refusal(exc) else ""


def _reason(exc: redis.RedisClusterException) -> redis.RedisError:
    """The refusal that is the cause: redis-py reports it as a server without cluster mode."""
    found: BaseException | None = exc
    while found is not None:
        if isinstance(found, redis.exceptions.NoPermissionError):
            return redis.exceptions.NoPermissionError(str(found))
        found = found.__cause__ or found.__context__
    return redis.ConnectionError(str(exc))


def _address(url: str) -> _Address:
    scheme, _, rest = url.partition("://")
    transport, plus, kind = scheme.partition("+")
    if not plus:
        return _Address(ONE, [], "", {})
    if kind not in _PORTS or transport not in {"redis", "rediss"}:
        raise ValueError(f"unknown scheme {scheme}")
    parts = urlsplit(f"{transport}://{rest}")
    places = parts.netloc.rpartition("@")[2].split(",")
    hosts = [_host(place, _PORTS[kind]) for place in places]
    service, _, database = unquote(parts.path.strip("/")).partition("/")
    if kind == CLUSTER and parts.path.strip("/"):
        raise ValueError("a cluster has no databases")
    one = parts._replace(netloc=parts.netloc.replace(",".join(places), places[0]), path=f"/{int(database or 0)}")
    options = dict(parse_url(one.geturl()))
    for name in ("host", "port"):
        options.pop(name, None)
    if options.pop("connection_class", None) is SSLConnection:
        options["ssl"] = True
    if kind == CLUSTER:
        options.pop("db", None)
    return _Address(kind, hosts, service, options)


def _host(place: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{place}")
    if not parts.hostname:
        raise ValueError("expected host:port")
    return parts.hostname, parts.port or port


# What a watcher writes: its incidents, its open transactions and its heartbeat.

_STREAM_LENGTH: Final = 100_000
_KEEP_RESOLVED_S: Final = 7 * 24 * 3600
OUR_KEYS: Final = "txnwatch."
HEARTBEAT: Final = KEY_PREFIX.removeprefix(OUR_KEYS)
_KEEP_OPEN_S: Final = 60
_KEEP_HEARTBEAT_S: Final = 24 * 3600  # long enough to show when the last watcher was active

# KEYS: incidents, incident hash, events stream. ARGV: id, sequence, is open, open_since_ms, stream length,
# seconds to keep, event as JSON, the lowest sequence that is not valid, then field, value, ... of the hash.
_APPLY: Final = """
local held = redis.call('HGET', KEYS[2], 'sequence')
held = held and tonumber(held)
if held and held >= tonumber(ARGV[2]) and held < tonumber(ARGV[8]) then return 0 end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], unpack(ARGV, 9))
if ARGV[3] == '1' then
  redis.call('ZADD', KEYS[1], ARGV[4], ARGV[1])
else
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('EXPIRE', KEYS[2], ARGV[6])
end
redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[5], '*', 'id', ARGV[1] .. '-' .. ARGV[2], 'event', ARGV[7])
return 1
"""


class RedisMirror:
    """A Mirror over redis-py, with the view of open incidents, the open transactions and the heartbeats."""

    def __init__(self, url: str, cluster_id: str, keys: Keys | None = None) -> None:
        self._url = url
        self._keys = keys
        self._place = redis_place(cluster_id)
        self._prefix = prefix_of(cluster_id)
        self._made: tuple[Any, Script] | None = None

    @property
    def client(self) -> Any:  # noqa: ANN401 - redis-py types answers as anything
        """The client; a client of a Redis Cluster connects here, at the first use."""
        return self._connected()[0]

    def _connected(self) -> tuple[Any, Script]:
        """The client and its script, made at the first use: the client of a Redis Cluster connects at once."""
        if self._made is None:
            client = redis_client(self._url)
            self._made = (client, client.register_script(_APPLY))
        return self._made

    @property
    def name(self) -> str:
        """For messages and metrics: the place without user, password and query."""
        return f"Redis {shown_place(self._url)}"

    def deliver(self, events: Sequence[IncidentEvent]) -> None:
        """See Mirror.

        Raises:
            SinkError: Redis does not answer, or answers with an error.
        """
        try:
            for event in events:
                self._deliver_one(event)
        except redis.RedisError as exc:
            raise self._failed(exc) from exc

    def _deliver_one(self, event: IncidentEvent) -> None:
        values = {name: _text(value) for name, value in plain(event).items() if value is not None}
        _, apply = self._connected()
        apply(
            keys=[
                f"{self._prefix}incidents",
                f"{self._prefix}incident:{event.incident_id}",
                f"{self._prefix}events",
            ],
            args=[
                event.incident_id,
                event.sequence,
                int(event.is_open),
                event.open_since_ms,
                _STREAM_LENGTH,
                _KEEP_RESOLVED_S,
                to_json(event),
                SPENT_SEQUENCE,
                *(part for pair in values.items() for part in pair),
            ],
        )

    def has_lost_everything(self) -> bool:
        """See OpenIncidentsView. Only one of several instances gets True; it fills Redis for all.

        Raises:
            SinkError: Redis refuses the command, so an emptied Redis would stay empty.
        """
        try:
            return bool(self.client.set(f"{self._prefix}filled", _now_ms(self.client), nx=True))
        except redis.ResponseError as exc:
            raise self._failed(exc) from exc
        except redis.RedisError:
            return False

    def forget(self, has_ended: Callable[[str], bool]) -> None:
        """See OpenIncidentsView. A Redis that did not answer when an incident ended would show it as open forever.

        Raises:
            SinkError: Redis refuses a command.
        """
        try:
            shown: Any = self.client.zrange(f"{self._prefix}incidents", 0, -1)
            for incident_id in filter(has_ended, (member.decode(errors="backslashreplace") for member in shown)):
                with self.client.pipeline(transaction=True) as changes:
                    changes.zrem(f"{self._prefix}incidents", incident_id)
                    changes.delete(f"{self._prefix}incident:{incident_id}")
                    changes.execute()
        except redis.ResponseError as exc:
            raise self._failed(exc) from exc
        except redis.RedisError:
            return  # the outbox calls it again

    def show_open(self, transactions: Sequence[OpenTransaction]) -> None:
        """Replaces the whole set of open transactions.

        Raises:
            SinkError: Redis does not answer, or answers with an error.
        """
        key = f"{self._prefix}open"
        try:
            with self.client.pipeline(transaction=True) as changes:
                changes.delete(key)
                if transactions:
                    changes.zadd(key, {_member(transaction): transaction.since_ms for transaction in transactions})
                    changes.expire(key, _KEEP_OPEN_S)
                changes.execute()
        except redis.RedisError as exc:
            raise self._failed(exc) from exc

    def beat(self, heartbeat: Heartbeat) -> None:
        """Writes a heartbeat, which expires if no other follows.

        Raises:
            SinkError: Redis does not answer, or answers with an error.
        """
        value, key = to_bytes(heartbeat), f"{self._prefix}{heartbeat.key.removeprefix(OUR_KEYS)}"
        held: dict[Any, Any] = {"heartbeat": value}
        if self._keys is not None:
            held["signature"] = self._keys.sign(self._place, heartbeat.key, value)
        try:
            with self.client.pipeline(transaction=True) as changes:
                changes.delete(key)
                changes.hset(key, mapping=held)
                changes.expire(key, _KEEP_HEARTBEAT_S)
                changes.execute()
        except redis.RedisError as exc:
            raise self._failed(exc) from exc

    def _failed(self, exc: redis.RedisError) -> SinkError:
        """The error of Redis, with the place."""
        return SinkError(f"{self.name}: {exc}{_hint_of(exc)}")

    def close(self) -> None:
        """Closes the connections."""
        if self._made is not None:
            self._made[0].close()


def prefix_of(cluster_id: str) -> str:
    """The prefix of a cluster's keys. The braces are a hash tag: Redis Cluster keeps all keys of it on one node."""
    return f"txnwatch:{{{cluster_id}}}:"


def _member(transaction: OpenTransaction) -> str:
    """An open transaction as JSON. No value in it grows with time, so that it rarely changes."""
    described = {
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "state": transaction.state,
        "partitions": [str(span.partition) for span in transaction.spans],
    }
    return json.dumps(described, separators=(",", ":"))


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"))


def _now_ms(client: Any) -> TimestampMs:  # noqa: ANN401 - as above
    seconds, micros = client.time()
    return TimestampMs(int(seconds) * 1000 + int(micros) // 1000)


# The page document.

MOST_BYTES: Final = 4 << 20
PAGE_PAUSE_MS: Final = DurationMs(1_000)
_PAGE, _WANTED = "page", "page-wanted"
_NAME: Final = f"{OUR_KEYS}{_PAGE}"  # what is signed
_KEEP_S, _WANTED_S = 60, 30
_LOOK_S: Final = 1.0
_WRONG_TYPE: Final = "WRONGTYPE"


class PageKeys:
    """The keys of one cluster, for its watcher; `client` returns the client of the mirror."""

    def __init__(self, client: Callable[[], Any], cluster_id: str, keys: Keys | None) -> None:
        self._client, self._keys = client, keys
        self._place, self._prefix = redis_place(cluster_id), prefix_of(cluster_id)

    def is_wanted(self) -> bool:
        """Whether a page asks for the document.

        Raises:
            SinkError: Redis does not answer, or refuses the command.
        """
        return self._asked(lambda client: client.get(f"{self._prefix}{_WANTED}")) is not None

    def write(self, document: bytes) -> None:
        """Writes the document.

        Raises:
            SinkError: as above.
        """
        value = document
        if self._keys is not None:
            value = with_signature(document, self._keys.sign(self._place, _NAME, document))
        self._asked(lambda client: client.set(f"{self._prefix}{_PAGE}", value, ex=_KEEP_S))

    def _asked(self, ask: Callable[[Any], object]) -> object:
        try:
            return ask(self._client())
        except redis.RedisError as exc:
            raise SinkError(f"the page in Redis: {exc}{_hint_of(exc)}") from exc


class Wish:
    """Whether the document is wanted: looks for the key in the thread of the mirror, at most once a second."""

    def __init__(self, is_wanted: Callable[[], bool], offer: Callable[[str, Callable[[], object]], None]) -> None:
        self._is_wanted, self._offer = is_wanted, offer
        self._last, self._turn = False, Every(_LOOK_S)

    def look(self) -> bool:
        """The last answer; has the next look done if it is due."""
        if self._turn.take(time.monotonic()):
            self._offer("page-wanted", self._ask)
        return self._last

    def _ask(self) -> None:
        self._last = False  # also if Redis does not answer
        self._last = self._is_wanted()


class RedisPage:
    """The reader of the documents of one Redis.

    Attributes:
        name: the place, without user and password.
    """

    def __init__(self, url: str, keys: Keys | None = None) -> None:
        self._url, self._keys = url, keys
        self._made: Any = None
        self.name = f"Redis {shown_place(url)}"

    def read(self, cluster_id: str, *, is_wanted: bool) -> bytes | None:
        """The document of a cluster, and asks its watcher for the next one; None if there is none.

        Raises:
            SinkError: Redis does not answer.
            BadEventError: the document is too large, or not signed by a key of the file.
        """
        prefix = prefix_of(cluster_id)
        try:
            client = self._client()
            if is_wanted:
                client.set(f"{prefix}{_WANTED}", "1", ex=_WANTED_S)
            value: bytes = client.getrange(f"{prefix}{_PAGE}", 0, MOST_BYTES)
        except redis.RedisError as exc:
            if str(exc).startswith(_WRONG_TYPE):
                raise BadEventError(
                    SkipReason.INVALID, f"expected a text in the key {_PAGE}, found another type"
                ) from exc
            raise SinkError(f"{self.name}: {exc}") from exc
        except ValueError as exc:  # its message may have a part of the URL
            raise SinkError(f"{self.name}: expected {REDIS_URL_RULE}") from exc
        return self._checked(value, cluster_id) if value else None

    def _checked(self, value: bytes, cluster_id: str) -> bytes:
        if len(value) > MOST_BYTES:
            message = f"expected a page document of at most {MOST_BYTES} bytes, found more"
            raise BadEventError(SkipReason.TOO_LARGE, message)
        document, signature = without_signature(value)
        problem = self._keys.problem(redis_place(cluster_id), _NAME, document, signature) if self._keys else None
        if problem is not None:
            found = "no signature" if problem is SkipReason.UNSIGNED else "a signature of another key"
            raise BadEventError(problem, f"expected a page document that is signed by a key of the file, found {found}")
        return document

    def _client(self) -> Any:  # noqa: ANN401 - redis-py types answers as anything
        if self._made is None:
            self._made = redis_client(self._url)
        return self._made

    def close(self) -> None:
        """Closes the connections."""
        if self._made is not None:
            self._made.close()
