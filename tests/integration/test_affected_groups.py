"""Consumers that really stand still: committed offsets of librdkafka's and of Java's clients, behind a real hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from support.kafka_faults import late_write_after_abort
from support.plans import FollowUpReads
from support.raw_producer import RawProducer
from support.topics import create_topic, unique
from support.waiting import eventually
from txnwatch.state.incidents.checking import Surroundings
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.groups import ClusterGroups
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import await_end

BEFORE, AFTER, MORE = 7, 20, 5
COMMIT_INTERVAL_MS = 100
AffectedGroups = dict[str, tuple[str, int, int]]


class Reader:
    """A consumer that polls in a thread and commits every `COMMIT_INTERVAL_MS`."""

    def __init__(self, bootstrap: str, group_id: str, topic: str, isolation: str) -> None:
        self.group_id = group_id
        self.count = 0
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group_id,
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": COMMIT_INTERVAL_MS,
            }
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.05)
            self.count += message is not None and message.error() is None

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10.0)
        self._consumer.close()


@pytest.fixture
def partition(cluster: Cluster) -> TopicPartition:
    (created,) = create_topic(cluster, unique("affected"))
    return created


@pytest.fixture
def readers(kafka: EmbeddedKafka, partition: TopicPartition) -> Iterator[dict[str, Reader]]:
    made = {
        isolation: Reader(kafka.bootstrap_servers, unique(isolation), partition.topic, isolation)
        for isolation in ("read_committed", "read_uncommitted")
    }
    yield made
    for reader in made.values():
        reader.close()


def write(kafka: EmbeddedKafka, partition: TopicPartition, count: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(count):
        producer.produce(partition.topic, partition=partition.partition, value=str(number))
    assert producer.flush(10.0) == 0


def look(follow_up: FollowUpReads, partition: TopicPartition, now_ms: int) -> Surroundings:
    return follow_up.around(follow_up.admin.read_partitions([partition]), now_ms)[partition]


def by_group(found: Surroundings) -> AffectedGroups:
    groups = found.consumer_groups or ()
    return {one.group_id: (one.state, one.committed_offset, one.hidden_lag) for one in groups}


def settled(follow_up: FollowUpReads, partition: TopicPartition, groups: set[str]) -> AffectedGroups:
    """Waits until exactly these groups are affected and no offset was committed for ten commit intervals."""

    def unchanged() -> AffectedGroups | None:
        before = by_group(look(follow_up, partition, 0))
        time.sleep(10 * COMMIT_INTERVAL_MS / 1_000)
        found = by_group(look(follow_up, partition, 0))
        return found if found == before and found.keys() == groups else None

    return eventually(unchanged, 20.0, "the offsets to be committed")


def hang_with_traffic(kafka: EmbeddedKafka, cluster: Cluster, partition: TopicPartition) -> int:
    """Records, an aborted transaction, a hang and more records; returns the last stable offset."""
    write(kafka, partition, BEFORE)
    aborted = RawProducer(cluster, unique("aborted")).init()
    aborted.add(partition)
    aborted.produce(partition)
    aborted.end(commit=False)
    await_end(cluster, aborted, partition)
    late_write_after_abort(cluster, unique("zombie"), partition)
    write(kafka, partition, AFTER)
    return ClusterAdmin(cluster).read_partitions([partition])[partition].last_stable_offset


def test_the_read_committed_group_is_stopped_and_the_other_is_not_affected(
    kafka: EmbeddedKafka, cluster: Cluster, partition: TopicPartition, readers: dict[str, Reader]
) -> None:
    stable = hang_with_traffic(kafka, cluster, partition)
    reports: list[str] = []
    follow_up = FollowUpReads(ClusterAdmin(cluster), ClusterGroups(cluster), reports.append)
    frozen, free = readers["read_committed"], readers["read_uncommitted"]
    end = BEFORE + AFTER + 5  # an aborted record, another one, their two markers, and the one that hangs
    eventually(lambda: frozen.count >= BEFORE and free.count >= end - 2, 20.0, "both to read what they can")
    first = settled(follow_up, partition, {frozen.group_id})
    assert first[frozen.group_id][0] == "at_risk", "one look proves nothing"
    write(kafka, partition, MORE)

    now = look(follow_up, partition, 10_000)

    state, committed, hidden = by_group(now)[frozen.group_id]
    assert state == "stopped"
    assert BEFORE <= committed <= stable
    assert hidden == end + MORE - committed
    assert now.lso_standing_ms == 10_000
    assert frozen.count == BEFORE
    assert reports == []


@pytest.mark.long
def test_a_java_consumer_that_does_not_move_is_stopped(
    kafka: EmbeddedKafka, cluster: Cluster, partition: TopicPartition
) -> None:
    stable, group = hang_with_traffic(kafka, cluster, partition), unique("console")
    arguments = (
        *("--bootstrap-server", kafka.bootstrap_servers, "--topic", partition.topic, "--from-beginning"),
        *("--group", group, "--isolation-level", "read_committed", "--timeout-ms", "20000"),
        *("--command-property", "auto.commit.interval.ms=100"),
    )
    thread = threading.Thread(target=kafka.tool, args=("org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments))
    thread.start()
    follow_up = FollowUpReads(ClusterAdmin(cluster), ClusterGroups(cluster), lambda _: None)

    def arrived() -> bool:
        state, committed, _ = by_group(look(follow_up, partition, 0)).get(group, ("", -1, 0))
        return state == "at_risk" and committed >= BEFORE

    eventually(arrived, 15.0, "the group to commit what it can read")
    write(kafka, partition, MORE)
    state, committed, _ = by_group(look(follow_up, partition, 10_000))[group]
    assert (state, BEFORE <= committed <= stable) == ("stopped", True)
    thread.join()
