"""The Redis mirror: current incidents, open transactions and heartbeats, for programs and people.

Keys, under `txnwatch:<cluster id>:`
  incidents         sorted set of open incidents' ids by open_since_ms
  incident:<id>     hash of one incident's latest event, by the event's field names; kept for a week after the end
  events            stream of all events, with a maximum length
  filled            since when the keys exist (epoch milliseconds); missing if Redis was emptied: all is sent again
  heartbeat:<hash>  hash of a watcher's heartbeat and its signature; expires a day after the last one
  open              sorted set of the oldest open transactions, also healthy ones, by their start; each member is a
                    JSON object; expires a minute after the last write

One script changes the first three, and only if the event's sequence is higher than the one in the hash: events may
be delivered twice, late, or by two writers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from txnwatch.sinks.delivery.encoding import plain, to_json
from txnwatch.sinks.delivery.signature import Keys, redis_place
from txnwatch.state.events.heartbeat import KEY_PREFIX, Heartbeat, to_bytes
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.findings import OpenTransaction
from txnwatch.state.model.incident import SPENT_SEQUENCE, IncidentEvent
from txnwatch.state.model.quantities import TimestampMs
from txnwatch.state.text.redaction import shown_place

_STREAM_LENGTH: Final = 100_000
_KEEP_RESOLVED_S: Final = 7 * 24 * 3600
TIMEOUT_S: Final = 2.0
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


def is_url(url: str) -> bool:
    """Whether redis-py accepts the URL, and its database is a number: redis-py reads `redis://host/x` as database 0."""
    try:
        pool = redis.ConnectionPool.from_url(url)
        pool.connection_class(**pool.connection_kwargs)
        database = urlsplit(url).path.strip("/")
    except (ValueError, TypeError, redis.RedisError):
        return False
    return url.startswith("unix:") or not database or database.isdecimal()


class RedisMirror:
    """A Mirror over redis-py, with the view of open incidents, the open transactions and the heartbeats."""

    def __init__(self, url: str, cluster_id: str, keys: Keys | None = None) -> None:
        self._url = url
        self._keys = keys
        self._place = redis_place(cluster_id)
        self._prefix = f"txnwatch:{cluster_id}:"
        # No retries and short timeouts: the outbox keeps undelivered events, and the batch must not wait.
        self._client = redis.Redis.from_url(
            url,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
        )
        self._apply = self._client.register_script(_APPLY)

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
            raise SinkError(f"{self.name}: {exc}") from exc

    def _deliver_one(self, event: IncidentEvent) -> None:
        values = {name: _text(value) for name, value in plain(event).items() if value is not None}
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
                to_json(event),
                SPENT_SEQUENCE,
                *(part for pair in values.items() for part in pair),
            ],
        )

    def has_lost_everything(self) -> bool:
        """See OpenIncidentsView. Only one of several instances gets True; it fills Redis for all."""
        try:
            return bool(self._client.set(f"{self._prefix}filled", _now_ms(self._client), nx=True))
        except redis.RedisError:
            return False

    def forget(self, has_ended: Callable[[str], bool]) -> None:
        """See OpenIncidentsView. A Redis that did not answer when an incident ended would show it as open forever."""
        try:
            shown: Any = self._client.zrange(f"{self._prefix}incidents", 0, -1)
            for incident_id in filter(has_ended, (member.decode(errors="backslashreplace") for member in shown)):
                with self._client.pipeline(transaction=True) as changes:
                    changes.zrem(f"{self._prefix}incidents", incident_id)
                    changes.delete(f"{self._prefix}incident:{incident_id}")
                    changes.execute()
        except redis.RedisError:
            return  # the outbox calls it again

    def show_open(self, transactions: Sequence[OpenTransaction]) -> None:
        """Replaces the whole set of open transactions.

        Raises:
            SinkError: Redis does not answer, or answers with an error.
        """
        key = f"{self._prefix}open"
        try:
            with self._client.pipeline(transaction=True) as changes:
                changes.delete(key)
                if transactions:
                    changes.zadd(key, {_member(transaction): transaction.since_ms for transaction in transactions})
                    changes.expire(key, _KEEP_OPEN_S)
                changes.execute()
        except redis.RedisError as exc:
            raise SinkError(f"{self.name}: {exc}") from exc

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
            with self._client.pipeline(transaction=True) as changes:
                changes.delete(key)
                changes.hset(key, mapping=held)
                changes.expire(key, _KEEP_HEARTBEAT_S)
                changes.execute()
        except redis.RedisError as exc:
            raise SinkError(f"{self.name}: {exc}") from exc

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()


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


def _now_ms(client: redis.Redis) -> TimestampMs:
    seconds, micros = client.time()
    return TimestampMs(int(seconds) * 1000 + int(micros) // 1000)
