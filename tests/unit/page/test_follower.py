"""The reader of one cluster: a topic that cannot be read makes it unknown, and it is read again; so is a silent one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from support.clusters_world import a_beat
from support.log_lines import LogLines
from support.page_world import HANG, OWNERS, a_busy_cluster, an_incident, now_ms
from support.waiting import eventually
from txnwatch.page.announced import document_of, encoded
from txnwatch.page.follower import ClusterSource, Follower
from txnwatch.page.picture import Knowledge
from txnwatch.page.store import KnownNow, PageStore
from txnwatch.page.truth import PageState, judge
from txnwatch.state.incidents.heartbeat import TopicRecord
from txnwatch.state.model.errors import BadEventError, BrokerError, SinkError, SkipReason
from txnwatch.state.model.values import TimestampMs
from txnwatch.state.telling.commands import Origin

EU = "EU"


@dataclass
class Topic:
    """An events topic; while `error` is set, it cannot be opened, and `broken` breaks while it is read."""

    records: list[TopicRecord] = field(default_factory=list)
    coming: deque[TopicRecord] = field(default_factory=deque)
    error: str | None = None
    broken: bool = False
    opened: int = 0
    closed: int = 0
    cluster_id: str = EU

    def open(self) -> Topic:
        if self.error is not None:
            raise BrokerError(self.error)
        self.opened += 1
        return self

    def history(self) -> Iterator[TopicRecord]:
        yield from self.records
        if self.broken:
            raise BrokerError("events topic 'e': no answer")

    def new_records(self) -> Iterator[TopicRecord]:
        while self.coming:
            yield self.coming.popleft()

    def close(self) -> None:
        self.closed += 1


@dataclass
class Redis:
    """Documents; an error is raised instead."""

    answer: bytes | SinkError | None = None
    name: str = "Redis r:6379"
    wanted: list[bool] = field(default_factory=list)

    def read(self, cluster_id: str, *, is_wanted: bool) -> bytes | None:
        assert cluster_id == EU
        self.wanted.append(is_wanted)
        if isinstance(self.answer, SinkError):
            raise self.answer
        return self.answer

    def close(self) -> None:
        """Nothing is open."""


class Reading:
    """A follower at work, with a clock that can be put ahead."""

    def __init__(self, topic: Topic, redis: Redis | None = None) -> None:
        self.ahead_ms = 0
        self.lines = LogLines()
        self.store = PageStore(seen=KnownNow())
        source = ClusterSource(
            name="eu",
            open_log=topic.open,  # type: ignore[arg-type]
            origin_of=lambda cluster_id: Origin(cluster_id, "kafka-1:9092", owners=OWNERS),
            owners=OWNERS,
            redis=redis,
            watcher_url="https://watch.example/",
        )
        self.follower = Follower(source, self.store, self.now_ms, self.lines, lambda: True)

    def now_ms(self) -> TimestampMs:
        return TimestampMs(now_ms() + self.ahead_ms)

    @property
    def state(self) -> PageState:
        known = Knowledge(store=self.store, seen=self.store.seen, now_ms=self.now_ms())
        return judge(known.facts).state

    def until(self, condition: Callable[[], object], what: str) -> None:
        eventually(lambda: condition() or None, 10.0, lambda: f"{what}: {self.store.seen}")


@pytest.fixture
def follow() -> Iterator[Callable[..., Reading]]:
    """Starts a follower."""
    started: list[Follower] = []

    def begin(topic: Topic, redis: Redis | None = None) -> Reading:
        reading = Reading(topic, redis)
        reading.follower.start()
        started.append(reading.follower)
        return reading

    yield begin
    for follower in started:
        follower.stop()


def test_before_the_topic_is_read_nothing_is_known() -> None:
    reading = Reading(Topic([a_beat(EU)]))
    assert reading.state is PageState.UNKNOWN
    assert reading.store.seen.open_missing == (
        "Open transactions are not known here: give Redis, or open the watcher's own page https://watch.example/."
    )


def test_the_history_and_what_follows_it(follow: Callable[..., Reading]) -> None:
    topic = Topic([a_beat(EU)])
    reading = follow(topic)
    reading.until(lambda: reading.state is PageState.CLEAR, "all clear")
    assert reading.store.latencies_ms == ()
    topic.coming.append(an_incident("hang", 60, **{**HANG, "cluster_id": EU}))
    reading.until(lambda: reading.state is PageState.INCIDENT, "the incident")
    assert reading.store.latencies_ms == (1_100,), "only what came now says how fast it is now"
    assert [len(life.moments) for life in reading.store.lives.values()] == [1]


def test_a_topic_that_cannot_be_opened_is_the_reason_and_is_tried_again(follow: Callable[..., Reading]) -> None:
    topic = Topic([a_beat(EU)], error="events topic 'e': no answer from redis://user:secret@host")
    reading = follow(topic)
    reading.until(lambda: reading.store.seen.problem, "the reason")
    assert "secret" not in str(reading.store.seen.problem)
    assert reading.state is PageState.UNKNOWN
    topic.error = None
    reading.until(lambda: reading.state is PageState.CLEAR, "all clear")
    assert "\n".join(reading.lines).count("no answer") == 1
    assert "can be read again" in "\n".join(reading.lines)


def test_a_history_that_breaks_off_proves_nothing(follow: Callable[..., Reading]) -> None:
    topic = Topic([a_beat(EU)], broken=True)
    reading = follow(topic)
    reading.until(lambda: reading.store.seen.problem, "the reason")
    assert reading.state is PageState.UNKNOWN
    assert topic.closed >= 1


def test_a_topic_that_is_silent_is_opened_again(follow: Callable[..., Reading]) -> None:
    topic = Topic([a_beat(EU), an_incident("hang", 60, **{**HANG, "cluster_id": EU})])
    reading = follow(topic)
    reading.until(lambda: reading.state is PageState.INCIDENT, "the incident")
    topic.records = []
    reading.ahead_ms = 61_000
    reading.until(lambda: topic.opened == 2, "it is opened again")
    reading.until(lambda: not reading.store.seen.incidents, "what is not there any more is gone")
    assert topic.closed == 1
    topic.error = "events topic 'e': gone"
    reading.ahead_ms += 121_000
    reading.until(lambda: reading.store.seen.problem == "events topic 'e': gone", "it cannot be read again")
    assert reading.state is PageState.UNKNOWN


def a_document(age_s: float = 0.0) -> bytes:
    world = a_busy_cluster()
    return encoded(document_of(world.store, a_beat(EU, age_s), world.ends))


def test_redis_has_the_open_transactions(follow: Callable[..., Reading]) -> None:
    redis = Redis(a_document())
    reading = follow(Topic([a_beat(EU)]), redis)
    reading.until(lambda: reading.store.seen.open_missing is None, "the open transactions")
    assert reading.store.seen.totals.open == 9_871
    assert redis.wanted[0] is True
    redis.answer = None
    reading.until(lambda: reading.store.seen.open_missing, "no document")
    assert reading.store.seen.open_missing == (
        "Open transactions are not known here: Redis r:6379 has no document of the last seconds. "
        "Open the watcher's own page https://watch.example/."
    )


@pytest.mark.parametrize(
    ("answer", "state", "text"),
    [
        (SinkError("Redis r:6379: no answer"), PageState.CLEAR, "not known here: Redis r:6379: no answer"),
        (BadEventError(SkipReason.UNSIGNED, "found no signature"), PageState.UNKNOWN, "found no signature"),
        (b"not a document", PageState.UNKNOWN, "expected a page document"),
    ],
)
def test_a_redis_that_fails_hides_no_incident_and_one_that_lies_makes_it_unknown(
    follow: Callable[..., Reading], answer: bytes | SinkError, state: PageState, text: str
) -> None:
    topic = Topic([a_beat(EU)])
    reading = follow(topic, Redis(answer))
    reading.until(lambda: text in f"{reading.store.seen.open_missing} {reading.store.seen.problem}", text)
    assert reading.state is state
    topic.coming.append(an_incident("hang", 60, **{**HANG, "cluster_id": EU}))
    reading.until(lambda: reading.state is PageState.INCIDENT, "the incident")


def test_a_redis_that_does_not_answer_delays_nothing(follow: Callable[..., Reading]) -> None:
    answered, redis, topic = threading.Event(), Redis(), Topic([a_beat(EU)])
    redis.read = lambda *_, **__: answered.wait(20.0) and None  # type: ignore[method-assign]
    reading = follow(topic, redis)
    try:
        reading.until(lambda: reading.state is PageState.CLEAR, "all clear")
        topic.coming.append(an_incident("hang", 60, **{**HANG, "cluster_id": EU}))
        reading.until(lambda: reading.state is PageState.INCIDENT, "the incident")
    finally:
        answered.set()
