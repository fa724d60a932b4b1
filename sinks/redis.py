"""Redis: what is wrong right now, for programs that ask and people that look.

Keys, under `txnwatch:<cluster id>:`
  incidents         sorted set of open incidents' ids by open_since_ms
  incident:<id>     hash of one incident's latest event, the event's field names; kept a week after it is resolved
  events            stream of every event, capped
  filled            since when the keys are kept (epoch milliseconds); gone if Redis was emptied, then all is sent again
  open              sorted set of the oldest open transactions, healthy ones too, by when they began; each member is a
                    JSON object; it goes a minute after nobody writes it any more
One script changes the first three, and only if the event's sequence is newer than what the hash holds: events may be
delivered twice, late, or by two writers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from txnwatch.sinks.encoding import event_of, schema
from txnwatch.state.emitted import OpenTransaction
from txnwatch.state.errors import SinkError
from txnwatch.state.incident import IncidentEvent

_STREAM_LENGTH: Final = 100_000
_KEEP_RESOLVED_S: Final = 7 * 24 * 3600
_TIMEOUT_S: Final = 2.0
_TEXTS: Final = frozenset(
    field["name"] for field in schema()["fields"] if field["type"] in ("string", ["null", "string"])
)
_KEEP_OPEN_S: Final = 60

# KEYS: incidents, incident hash, events stream. ARGV: id, sequence, is open, open_since_ms, stream length,
# seconds to keep, event as JSON, then field, value, ... of the hash.
_APPLY: Final = """
local held = redis.call('HGET', KEYS[2], 'sequence')
if held and tonumber(held) >= tonumber(ARGV[2]) then return 0 end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], unpack(ARGV, 8))
if ARGV[3] == '1' then
  redis.call('ZADD', KEYS[1], ARGV[4], ARGV[1])
else
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('EXPIRE', KEYS[2], ARGV[6])
end
redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[5], '*', 'id', ARGV[1] .. '-' .. ARGV[2], 'event', ARGV[7])
return 1
"""


def is_url(url: str) -> bool:
    """Whether redis-py takes it. Checked to the end, as a connection would: it reads `redis://host/x` as database 0."""
    try:
        pool = redis.ConnectionPool.from_url(url)
        pool.connection_class(**pool.connection_kwargs)
        database = urlsplit(url).path.strip("/")
    except (ValueError, TypeError, redis.RedisError):
        return False
    return url.startswith("unix:") or not database or database.isdecimal()


class RedisEventSink:
    """An EventSink over redis-py."""

    def __init__(self, url: str, cluster_id: str) -> None:
        self._url = url
        self._prefix = f"txnwatch:{cluster_id}:"
        # No retries and short timeouts: the outbox keeps what could not be delivered, and the batch must go on.
        self._client = redis.Redis.from_url(
            url,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
        )
        self._apply = self._client.register_script(_APPLY)

    @property
    def name(self) -> str:
        """For messages and metrics; without the password a URL may hold."""
        return f"Redis {self._url.rpartition('@')[2].removeprefix('redis://')}"

    def deliver(self, events: Sequence[IncidentEvent]) -> None:
        """See EventSink.

        Raises:
            SinkError: Redis is away, or refuses.
        """
        try:
            for event in events:
                self._deliver_one(event)
        except redis.RedisError as exc:
            raise SinkError(f"{self.name}: {exc}") from exc

    def _deliver_one(self, event: IncidentEvent) -> None:
        values = {name: _text(value) for name, value in asdict(event).items() if value is not None}
        self._apply(
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
                json.dumps(asdict(event), separators=(",", ":")),
                *(part for pair in values.items() for part in pair),
            ],
        )

    def has_lost_everything(self) -> bool:
        """See EventSink. Of several instances one is told so and fills it for all."""
        try:
            return bool(self._client.set(f"{self._prefix}filled", _now_ms(self._client), nx=True))
        except redis.RedisError:
            return False

    def forget(self, is_past: Callable[[str], bool]) -> None:
        """See EventSink. One that was away when an incident ended, and until we forgot how, shows it for ever."""
        try:
            shown: Any = self._client.zrange(f"{self._prefix}incidents", 0, -1)
            for incident_id in filter(is_past, (member.decode() for member in shown)):
                with self._client.pipeline(transaction=True) as changes:
                    changes.zrem(f"{self._prefix}incidents", incident_id)
                    changes.delete(f"{self._prefix}incident:{incident_id}")
                    changes.execute()
        except redis.RedisError:
            return  # it is asked again

    def show_open(self, transactions: Sequence[OpenTransaction]) -> None:
        """Replaces the set of open transactions, as a whole.

        Raises:
            SinkError: Redis is away, or refuses.
        """
        key = f"{self._prefix}open"
        try:
            with self._client.pipeline(transaction=True) as changes:
                changes.delete(key)
                if transactions:
                    changes.zadd(key, {_member(told): told.since_ms for told in transactions})
                    changes.expire(key, _KEEP_OPEN_S)
                changes.execute()
        except redis.RedisError as exc:
            raise SinkError(f"{self.name}: {exc}") from exc

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()


def read_open_incidents(url: str) -> tuple[list[IncidentEvent], dict[str, str]]:
    """The open incidents of every cluster this Redis knows, oldest first; and the keys that could not be read, and why.

    Raises:
        SinkError: Redis is away, or holds nothing of ours.
    """
    where = f"Redis {url.rpartition('@')[2].removeprefix('redis://')}"
    try:
        client: Any = redis.Redis.from_url(
            url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S, decode_responses=True
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
    except redis.RedisError as exc:
        raise SinkError(f"{where}: {exc}") from exc
    finally:
        client.close()
    return sorted(found, key=lambda event: event.open_since_ms), unread


def _open_under(
    client: Any,  # noqa: ANN401 - redis-py types answers as anything
    prefix: str,
    unread: dict[str, str],
) -> Iterator[IncidentEvent]:
    for incident_id in client.zrange(f"{prefix}incidents", 0, -1):
        key = f"{prefix}incident:{incident_id}"
        held = client.hgetall(key)
        if not held:  # a resolved one keeps its hash
            unread[key] = "an open incident, and its hash is gone: does this Redis evict keys?"
            continue
        try:
            event = event_of({name: _value(name, value) for name, value in held.items()})
        except (ValueError, TypeError) as exc:
            unread[key] = f"expected the fields of an incident event: {exc}"
            continue
        if event.is_open:  # else it was resolved in between
            yield event


def _value(name: str, text: str) -> object:
    return text if name in _TEXTS else json.loads(text)


def _member(told: OpenTransaction) -> str:
    """Told often, changed seldom: nothing in it grows with time."""
    described = {
        "transactional_id": told.transactional_id,
        "producer_id": told.producer_id,
        "state": told.state,
        "partitions": [str(span.partition) for span in told.spans],
    }
    return json.dumps(described, separators=(",", ":"))


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"))


def _now_ms(client: redis.Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000
