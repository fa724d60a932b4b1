"""Fills the store of one cluster from its events topic and, if there is one, from Redis.

Apart: cli/page.py makes the sources from flags and files, and this follows one of them.

Law:
    * Each source has a thread of its own, so a Redis that does not answer delays no incident. The thread of the topic
      alone writes the store.
    * A topic that cannot be read makes the cluster unknown, with the reason. It is opened again with growing pauses;
      also if nothing comes from it for a while, because certificates or the topic itself may have been replaced.
    * The cluster is asked for nothing but the records of its events topic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from txnwatch.page.announced import Announced, FromRedis, decoded
from txnwatch.page.store import KnownNow, PageStore
from txnwatch.sinks.delivery.events_topic import EventLog
from txnwatch.sinks.delivery.outbox import WorkerThread
from txnwatch.state.incidents.heartbeat import TopicRecord
from txnwatch.state.model.errors import BadEventError, SinkError, TxnwatchError
from txnwatch.state.model.ownership import OwnerLookup
from txnwatch.state.model.pauses import GrowingPause
from txnwatch.state.model.ports import Log
from txnwatch.state.model.values import AT_ONCE, DurationMs, TimestampMs
from txnwatch.state.telling.commands import Origin
from txnwatch.state.text import Said, redacted

_PAUSE_MS: Final = 250.0
_REDIS_PAUSE_MS: Final = 1_000.0
_FIRST_MS, _LONGEST_MS = DurationMs(1_000), DurationMs(30_000)
_SILENT_MS, _LONGEST_SILENT_MS = DurationMs(60_000), DurationMs(600_000)
_STOP_S: Final = 0.5
NOT_ANNOUNCED: Final = "Open transactions are not known here"


class PageReader(Protocol):
    """Where the documents of watchers are."""

    name: str

    def read(self, cluster_id: str, *, is_wanted: bool) -> bytes | None:
        """The document of a cluster; None if there is none."""

    def close(self) -> None:
        """Closes the connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSource:
    """Where the knowledge about one cluster is.

    Attributes:
        open_log: connects to the events topic; raises a TxnwatchError.
        origin_of: what the commands of a cluster share, by its id.
        redis: the documents of the watchers; None without Redis.
        watcher_url: the page of the watcher itself, from the operator.
    """

    name: str
    open_log: Callable[[], EventLog]
    origin_of: Callable[[str], Origin]
    owners: OwnerLookup
    redis: PageReader | None = None
    watcher_url: str | None = None

    @property
    def missing(self) -> str:
        """Why the open transactions are not known, if no document shows them."""
        where = (
            f"the watcher's own page {self.watcher_url}" if self.watcher_url is not None else "the watcher's own page"
        )
        if self.redis is None:
            return f"{NOT_ANNOUNCED}: give Redis, or open {where}."
        return f"{NOT_ANNOUNCED}: {self.redis.name} has no document of the last seconds. Open {where}."


@dataclass(slots=True)
class Follower:
    """Reads one cluster until it is stopped.

    Attributes:
        is_looked_at: whether somebody looks at the page; else no watcher is asked for documents.
    """

    source: ClusterSource
    store: PageStore
    now_ms: Callable[[], TimestampMs]
    log: Log
    is_looked_at: Callable[[], bool] = lambda: False
    _announced: Announced | None = None
    _events: EventLog | None = None
    _redis: FromRedis = field(init=False)
    _topic: WorkerThread = field(init=False)
    _heard_ms: TimestampMs = AT_ONCE
    _opening: GrowingPause[DurationMs] = field(default_factory=lambda: GrowingPause(_FIRST_MS, _LONGEST_MS))
    _silence: GrowingPause[DurationMs] = field(default_factory=lambda: GrowingPause(_SILENT_MS, _LONGEST_SILENT_MS))
    _said: Said[str] = field(default_factory=Said)
    _threads: list[WorkerThread] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._redis = FromRedis(self.source.missing)
        self.store.seen = KnownNow(open_missing=self.source.missing)
        self._topic = WorkerThread(f"the page of {self.source.name}", self._read_topic, self.log)
        self._threads.append(self._topic)
        if self.source.redis is not None:
            name = f"{self.source.redis.name} for {self.source.name}"
            self._threads.append(WorkerThread(name, self._read_redis, self.log))

    def start(self) -> None:
        """Starts the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends the threads; one that waits for a server is left behind."""
        for thread in self._threads:
            thread.stop(_STOP_S)

    # The thread of the topic.

    def _read_topic(self) -> float:
        if self._topic.is_stopping:
            self._close()
            return _PAUSE_MS
        if self._events is None:
            return self._open()
        assert self._announced is not None
        has_heard = False
        for found in self._events.new_records():
            has_heard = True
            self._take(self._announced, found, is_new=True)
        self._show()
        self._reopen_if_silent(has_heard=has_heard)
        return _PAUSE_MS

    def _open(self) -> float:
        """Reads the history; returns the pause in milliseconds."""
        try:
            events = self.source.open_log()
        except TxnwatchError as exc:
            return self._failed(exc)
        try:
            announced = Announced(events.cluster_id, self.source.owners)
            for found in events.history():
                self._take(announced, found, is_new=False)
        except TxnwatchError as exc:
            events.close()
            return self._failed(exc)
        self.store.origin = self.source.origin_of(events.cluster_id)
        self._events, self._announced = events, announced
        self._heard_ms = self.now_ms()
        self._opening.end()
        if self._said.is_over("topic"):
            self.log.info(f"{self.source.name}: the events topic can be read again")
        self._show()
        return _PAUSE_MS

    def _take(self, announced: Announced, found: TopicRecord, *, is_new: bool) -> None:
        event = announced.take(found, self.now_ms())
        if event is not None:
            self.store.take_event(event, is_new=is_new)

    def _failed(self, exc: TxnwatchError) -> float:
        problem = redacted(str(exc))
        if self._said.is_new("topic", problem):
            self.log.warning(f"{self.source.name}: {problem}")
        self._show(problem)
        return self._opening.next()

    def _reopen_if_silent(self, *, has_heard: bool) -> None:
        now_ms = self.now_ms()
        if has_heard:
            self._heard_ms = now_ms
            self._silence.end()
        elif now_ms - self._heard_ms > self._silence.length:
            self._silence.next()
            self._close()

    def _close(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events = None

    def _show(self, problem: str | None = None) -> None:
        now_ms, redis, announced = self.now_ms(), self._redis, self._announced
        if announced is None:
            seen = KnownNow(open_missing=self.source.missing, problem=problem)
        else:
            seen = announced.seen(now_ms, redis, problem)
            self.store.access = announced.access(redis.document, now_ms)
        if seen != self.store.seen:
            self.store.replace(seen)

    # The thread of Redis.

    def _read_redis(self) -> float:
        origin, reader, missing = self.store.origin, self.source.redis, self.source.missing
        assert reader is not None
        if origin is None:
            return _PAUSE_MS
        try:
            value = reader.read(origin.cluster_id, is_wanted=self.is_looked_at())
            document = decoded(value, origin.cluster_id) if value is not None else None
            self._redis = FromRedis(missing, document)
        except BadEventError as exc:
            self._redis = FromRedis(missing, refusal=str(exc))
        except SinkError as exc:
            self._redis = FromRedis(f"{NOT_ANNOUNCED}: {redacted(str(exc))}")
        return _REDIS_PAUSE_MS
