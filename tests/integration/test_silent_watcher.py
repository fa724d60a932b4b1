"""Two watches of one real Kafka, composed as by `run`, with a finder in place of Spark: what the silent one shows."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.http_receiver import Receiver, receiving
from support.kafka_faults import late_write_after_abort
from support.push_world import ids_of
from support.speaking_process import Finder
from support.topics import create_topic, unique
from support.waiting import eventually
from txnwatch.app import Watch
from txnwatch.config import RunSettings
from txnwatch.named_files import NamedFiles
from txnwatch.push.push_file import PushFile, WebhookTarget
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

_LONG_S = 40.0


class Watcher:
    """One of the two."""

    def __init__(self, brokers: str, events: str, topic: str, checkpoint: Path, receiver: Receiver) -> None:
        settings = RunSettings(bootstrap_server=brokers, events_topic=events, topics=topic, checkpoint=str(checkpoint))
        push = PushFile(webhook=[WebhookTarget(name="chat", url=receiver.url)])
        self.watch = Watch(settings, NamedFiles(push=push), logging.getLogger("txnwatch"), lambda _: None)
        self.watch.check()
        self.ledger = self.watch.open_ledger()
        assert self.watch.sinks is not None
        self.cluster = self.watch.sinks.cluster
        self.finder = Finder(self.cluster, topic)

    def close(self) -> None:
        self.watch.close()
        self.cluster.close()

    def round(self) -> bool:
        """What a micro-batch does; returns whether it speaks."""
        assert self.watch.sinks is not None
        self.watch.sinks.on_batch(self.finder.look())
        return self.ledger.speaks

    def life(self) -> list[str]:
        return [moment.status for life in self.watch.page.lives.values() for moment in life.moments]

    def counted(self) -> float | None:
        labels = {"verdict": "hanging", "status": "opened"}
        return self.watch.metrics.registry.get_sample_value("txnwatch_events_total", labels)


@pytest.fixture
def partition(kafka: EmbeddedKafka, cluster: Cluster) -> TopicPartition:
    set_verification(kafka.bootstrap_servers, [1], enabled=False)
    (partition,) = create_topic(cluster, unique("silent"))
    return partition


@pytest.fixture
def two(
    kafka: EmbeddedKafka, partition: TopicPartition, receiver: Receiver, tmp_path: Path
) -> Iterator[tuple[Watcher, Watcher]]:
    events = unique("silent.events")
    with contextlib.ExitStack() as closing:
        watchers: list[Watcher] = []
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            watcher = Watcher(kafka.bootstrap_servers, events, partition.topic, tmp_path / name, receiver)
            closing.callback(watcher.close)
            watchers.append(watcher)
            eventually(lambda: True in [one.round() for one in watchers], _LONG_S, "a speaker")
        one, other = watchers
        yield one, other


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def test_the_silent_one_shows_the_life_and_counts_and_sends_nothing(
    two: tuple[Watcher, Watcher], receiver: Receiver, cluster: Cluster, partition: TopicPartition
) -> None:
    one, other = two
    late_write_after_abort(cluster, unique("zombie"), partition)

    def is_shown() -> bool:
        assert (one.round(), other.round()) == (True, False)
        return one.life() == other.life() == ["opened"]

    eventually(is_shown, _LONG_S, lambda: f"the life on both pages: {one.life()}, {other.life()}")
    eventually(lambda: receiver.taken, _LONG_S, "the message")
    assert len(ids_of(receiver.taken)) == 1
    assert (one.counted(), other.counted()) == (1.0, 0.0)
    assert [outbox.waiting for outbox in other.ledger.outboxes] == [0, 0]
    sinks = one.watch.sinks
    assert sinks is not None
    assert sinks.push.may_send()
    one.watch.close()
    eventually(lambda: not sinks.push.may_send(), _LONG_S, "the end of the push, also before another query has begun")
