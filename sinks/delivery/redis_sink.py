"""What a watcher writes to Redis: current incidents, open transactions and heartbeats.

Keys, under `txnwatch:{<cluster id>}:`
  incidents         sorted set of open incidents' ids by open_since_ms
  incident:<id>     hash of one incident's latest event, by the event's field names; kept for a week after the end
  events            stream of all events, with a maximum length
  filled            since when the keys exist (epoch milliseconds); missing if Redis was emptied: all is sent again
  heartbeat:<hash>  hash of a watcher's heartbeat and its signature; expires a day after the last one
  open              sorted set of the oldest open transactions, also healthy ones, by their start; each member is a
                    JSON object; expires a minute after the last write

One script changes the first three, and only if the event's sequence is higher than the one in the hash: events may
be delivered twice, late, or by a former speaker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import redis
from redis.commands.core import Script

from txnwatch.sinks.delivery.encoding import Keys, plain, redis_place, to_json
from txnwatch.sinks.delivery.redis_client import hint_of, redis_client, said
from txnwatch.state.incidents.heartbeat import KEY_PREFIX, Heartbeat, to_bytes
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.findings import OpenTransaction
from txnwatch.state.model.incident import SPENT_SEQUENCE, IncidentEvent
from txnwatch.state.model.values import TimestampMs
from txnwatch.state.text import shown_place

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
        return SinkError(f"{self.name}: {said(exc)}{hint_of(exc)}")

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
