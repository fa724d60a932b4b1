"""`txnwatch page` on two real clusters and a real Redis: one has a hang, one is not watched, and nobody is believed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from support.clusters_world import a_beat
from support.incidents import id_of
from support.page_client import get
from support.page_world import HANG, a_busy_cluster, an_incident
from support.servers import connect
from support.topics import unique
from support.waiting import eventually
from support.watch import RunningPage
from txnwatch.page.announced import document_of, encoded
from txnwatch.sinks.delivery.encoding import Keys, read_keys
from txnwatch.sinks.delivery.events_topic import KafkaEventsTopic, ensure_topic
from txnwatch.sinks.delivery.redis_sink import PageKeys, RedisMirror, prefix_of
from txnwatch.state.incidents.heartbeat import to_bytes
from txnwatch_demo.embedded.real_servers import EmbeddedKafka, EmbeddedRedis

SEEN_S = 30.0


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A second cluster, beside the one that the tests share."""
    kafka = EmbeddedKafka(tmp_path_factory.mktemp("other"))
    kafka.start()
    yield kafka
    kafka.stop()


@dataclass
class Announcing:
    """A watcher as its events topic and its Redis show it: what it publishes, without what it watches."""

    kafka: EmbeddedKafka
    keys: Keys | None = None
    topic: str = field(default_factory=lambda: unique("page-events"))
    alone: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._config = {"bootstrap.servers": self.kafka.bootstrap_servers}
        ensure_topic(self._config, self.topic)
        self.events = KafkaEventsTopic(self._config, self.topic, keys=self.keys)
        with closing(connect(self.kafka)) as cluster:
            self.cluster_id = cluster.known.cluster_id

    def entry(self, name: str, **more: str) -> str:
        values = {"name": name, "bootstrap_server": self.kafka.bootstrap_servers, "events_topic": self.topic, **more}
        return "[[cluster]]\n" + "".join(f'{key} = "{value}"\n' for key, value in values.items())

    def beat(self, age_s: float = 0.0, **changes: Any) -> None:
        with self.alone:
            self.events.beat(a_beat(self.cluster_id, age_s, **changes))
            self.events.publish([])

    def open_hang(self) -> None:
        with self.alone:
            self.events.publish([an_incident("hang", 252, **{**HANG, "cluster_id": self.cluster_id})])

    def forge(self, key: str, value: bytes | None) -> None:
        """A record of somebody else who may write the topic."""
        producer = Producer(self._config)
        producer.produce(self.topic, key=key, value=value)
        assert producer.flush(20.0) == 0


@pytest.fixture
def announcing() -> Iterator[Callable[..., Announcing]]:
    """Makes a watcher whose heartbeats go on until the test ends."""
    with ExitStack() as stack:

        def begin(kafka: EmbeddedKafka, keys: Keys | None = None, **changes: Any) -> Announcing:
            found, over = Announcing(kafka, keys), threading.Event()

            def beat() -> None:
                while not over.wait(1.0):
                    found.beat(**changes)

            thread = threading.Thread(target=beat)
            thread.start()
            stack.callback(found.events.close)
            stack.callback(thread.join)
            stack.callback(over.set)
            return found

        yield begin


@pytest.fixture
def page() -> Iterator[Callable[..., str]]:
    """Starts a page; returns its address."""
    with ExitStack() as stack:
        yield lambda *flags: stack.enter_context(RunningPage(*flags)).url


def state_of(url: str, at: str) -> dict[str, Any]:
    found: dict[str, Any] = get(url, f"/c/{at}/api/v1/status").json
    return found


def until(url: str, at: str, state: str) -> dict[str, Any]:
    """Waits for a state of one cluster."""
    return eventually(
        lambda: found if (found := state_of(url, at))["state"] == state else None,
        SEEN_S,
        lambda: f"{state} instead of {state_of(url, at)}",
    )


def test_a_hang_beside_a_cluster_that_is_not_watched(
    kafka: EmbeddedKafka,
    other: EmbeddedKafka,
    redis_server: EmbeddedRedis,
    announcing: Callable[..., Announcing],
    page: Callable[..., str],
    tmp_path: Path,
) -> None:
    eu, us = announcing(kafka), Announcing(other)
    us.beat(age_s=362)
    eu.open_hang()
    clusters = tmp_path / "clusters.toml"
    clusters.write_text(eu.entry("eu", redis_url=redis_server.url) + us.entry("us"))
    url = page("--clusters-file", str(clusters))
    until(url, "eu", "incident")
    until(url, "us", "unknown")
    lines = eventually(
        lambda: text.splitlines() if "us is not watched" in (text := get(url, "/").text) else None, SEEN_S, "the list"
    )
    assert lines[0] == "eu: 1 partition stands still. us is not watched."
    assert [row["key"] for row in get(url, "/api/v1/clusters").json["rows"]] == [eu.cluster_id, us.cluster_id]
    assert state_of(url, "eu")["open_missing"].startswith("Open transactions are not known here: Redis ")
    assert state_of(url, "us")["open_missing"].endswith("give Redis, or open the watcher's own page.")
    assert "behind checkout-7" in get(url, f"/c/{eu.cluster_id}/").text
    busy = a_busy_cluster()
    with closing(RedisMirror(redis_server.url, eu.cluster_id)) as mirror:
        keys = PageKeys(lambda: mirror.client, eu.cluster_id, None)
        assert eventually(keys.is_wanted, SEEN_S, "the page asks for the document")

        def lane() -> Any:
            keys.write(encoded(document_of(busy.store, a_beat(eu.cluster_id), busy.ends)))
            return get(url, "/c/eu/api/v1/snapshot").json["picture"]["lanes"].get("payments-0")

        assert eventually(lane, SEEN_S, "the lane from Redis")["holder"]["phase"] == "hanging"
        mirror.client.set(f"{prefix_of(eu.cluster_id)}page", b"not a document")
        refused = eventually(
            lambda: found if (found := state_of(url, "eu"))["problem"] is not None else None, SEEN_S, "the refusal"
        )
        assert refused["problem"].startswith("the document in Redis cannot be believed: expected a page document")
        mirror.client.delete(f"{prefix_of(eu.cluster_id)}page")
    us.beat()
    until(url, "us", "clear")
    assert get(url, "/").text.startswith("eu: 1 partition stands still.\n")


def test_what_is_not_signed_makes_a_cluster_unknown_with_the_reason(
    kafka: EmbeddedKafka,
    redis_server: EmbeddedRedis,
    announcing: Callable[..., Announcing],
    page: Callable[..., str],
    tmp_path: Path,
) -> None:
    key_file = tmp_path / "keys"
    key_file.write_text("k" * 40)
    key_file.chmod(0o600)
    keys = read_keys(key_file)
    watcher = announcing(kafka, keys)
    flags = ("-b", kafka.bootstrap_servers, "--events-topic", watcher.topic, "--events-key-file", str(key_file))
    url = page(*flags, "--redis-url", redis_server.url)
    assert get(url, "/").status == 307
    until(url, "cluster", "clear")
    watcher.forge(id_of("hang"), b'{"incident_id": "forged"}')
    status = until(url, "cluster", "unknown")
    assert "1 record of the events topic cannot be believed" in status["problem"]
    assert "found no signature" in status["problem"]
    watcher.forge(id_of("hang"), None)
    until(url, "cluster", "clear")
    forged = a_beat(watcher.cluster_id, unproven_partitions=7)
    watcher.forge(forged.key, to_bytes(forged))
    busy = a_busy_cluster()
    with closing(RedisMirror(redis_server.url, watcher.cluster_id)) as mirror:
        document = encoded(document_of(busy.store, forged, busy.ends))
        for signed_by in (None, Keys((b"another key" * 4,))):
            PageKeys(lambda: mirror.client, watcher.cluster_id, signed_by).write(document)
            status = until(url, "cluster", "unknown")
            assert "the document in Redis cannot be believed" in status["problem"]
            assert status["open_missing"] is not None
        own = encoded(document_of(busy.store, a_beat(watcher.cluster_id), busy.ends))
        PageKeys(lambda: mirror.client, watcher.cluster_id, keys).write(own)
        assert until(url, "cluster", "clear")["partitions"]["unproven"] == 0


def test_a_cluster_that_does_not_answer_is_unknown_and_comes_back(
    other: EmbeddedKafka, announcing: Callable[..., Announcing], page: Callable[..., str]
) -> None:
    watcher = announcing(other)
    url = page("-b", other.bootstrap_servers, "--events-topic", "not.there")
    status = until(url, "cluster", "unknown")
    reason = eventually(lambda: state_of(url, "cluster")["problem"], SEEN_S, "the reason")
    assert "has `txnwatch run` been started on this cluster?" in reason, status
    url = page("-b", "127.0.0.1:1", "--events-topic", watcher.topic)
    assert "Connect" in eventually(lambda: state_of(url, "cluster")["problem"], SEEN_S, "the reason")
    url = page("-b", other.bootstrap_servers, "--events-topic", watcher.topic)
    until(url, "cluster", "clear")


def test_it_asks_the_cluster_for_its_events_topic_only_and_ends_at_once(
    kafka: EmbeddedKafka, announcing: Callable[..., Announcing]
) -> None:
    watcher = announcing(kafka)
    with RunningPage("-b", kafka.bootstrap_servers, "--events-topic", watcher.topic) as running:
        until(running.url, "cluster", "clear")
        assert running.stop() == 0
        assert not [line for line in running.lines if "Traceback" in line or "warning" in line]
