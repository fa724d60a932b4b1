"""What a program that knows only the documented keys sees in Redis."""

from __future__ import annotations

import json
from typing import Any

import redis

from txnwatch.sinks.delivery.encoding import from_bytes
from txnwatch.state.model.incident import IncidentEvent


class RedisView:
    """Reads the keys of one cluster."""

    def __init__(self, url: str, cluster_id: str) -> None:
        self._client = redis.Redis.from_url(url, decode_responses=True)
        self._prefix = f"txnwatch:{{{cluster_id}}}:"

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def keys(self) -> set[str]:
        """Every key of the cluster, without the prefix."""
        return {key.removeprefix(self._prefix) for key in self._client.scan_iter(f"{self._prefix}*")}

    def evict(self, key: str) -> None:
        """As a Redis does that is full."""
        self._client.delete(key)

    def set_field(self, key: str, field: str, value: str) -> None:
        """Somebody writes where only we should."""
        self._client.hset(key, field, value)

    def set_text(self, key: str, value: str) -> None:
        """The same, where we have a hash."""
        self._client.set(key, value)

    def hash(self, incident_id: str) -> dict[str, str]:
        """One incident's hash."""
        return self._client.hgetall(f"{self._prefix}incident:{incident_id}")  # type: ignore[no-any-return]

    def view(self) -> dict[str, tuple[int, str]]:
        """Each incident's sequence and status."""
        ids = [key.removeprefix("incident:") for key in self.keys() if key.startswith("incident:")]
        held = {incident_id: self.hash(incident_id) for incident_id in ids}
        return {incident_id: (int(one["sequence"]), one["status"]) for incident_id, one in held.items()}

    def open_ids(self) -> list[str]:
        """The open incidents, oldest first."""
        return self._client.zrange(f"{self._prefix}incidents", 0, -1)  # type: ignore[no-any-return]

    def scores(self) -> dict[str, float]:
        """The open incidents with their scores."""
        return dict(self._client.zrange(f"{self._prefix}incidents", 0, -1, withscores=True))

    def open_transactions(self) -> list[tuple[dict[str, Any], float]]:
        """What is shown as open, oldest first, with when it began."""
        members = self._client.zrange(f"{self._prefix}open", 0, -1, withscores=True)
        return [(json.loads(member), score) for member, score in members]

    def seconds_of(self, key: str) -> int:
        """How long a key still has."""
        return int(self._client.ttl(f"{self._prefix}{key}"))

    def open_seconds_to_live(self) -> int:
        """How long the set of open transactions is kept; below 0 for ever, or if there is none."""
        return int(self._client.ttl(f"{self._prefix}open"))

    def stream(self) -> list[dict[str, str]]:
        """The entries of the events stream, oldest first."""
        return [entry for _, entry in self._client.xrange(f"{self._prefix}events")]

    def stream_events(self) -> list[IncidentEvent]:
        """The events in the stream."""
        return [from_bytes(entry["event"].encode()) for entry in self.stream()]

    def published(self) -> list[str]:
        """The ids of the events in the stream."""
        return [entry["id"] for entry in self.stream()]

    def seconds_to_live(self, incident_id: str) -> int | None:
        """How long the incident's hash is kept; None for ever."""
        left = int(self._client.ttl(f"{self._prefix}incident:{incident_id}"))
        return left if left >= 0 else None

    def spoil(self, key: str) -> None:
        """Puts a value of another type there."""
        self._client.set(f"{self._prefix}{key}", "not ours")

    def empty(self) -> None:
        """Deletes every key of the cluster, as a FLUSHALL or an eviction would."""
        for key in list(self._client.scan_iter(f"{self._prefix}*")):
            self._client.delete(key)

    @staticmethod
    def json(text: str) -> Any:
        """A field that is JSON."""
        return json.loads(text)
