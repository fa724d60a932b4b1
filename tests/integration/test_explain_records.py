"""`explain TOPIC-PARTITION@OFFSET` on a real broker: each answer, with what a real read_committed consumer gets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position

from support.kafka_faults import end_by_hand, late_write, next_transaction, stray_write
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.topics import admin_of, create_topic, unique
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import await_end, set_verification

Row = dict[str, Any]
Ask = Callable[..., Row]
SOON = {
    "log.cleaner.backoff.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


@pytest.fixture(scope="module")
def cleaning(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker that compacts at once, and does not verify transactional writes."""
    directory = tmp_path_factory.mktemp("cleaning")
    kafka = clusters.start("cleaning", lambda: EmbeddedKafka(directory, properties=SOON))
    set_verification(kafka.bootstrap_servers, [1], enabled=False)
    yield kafka
    clusters.end("cleaning")


@pytest.fixture
def cluster(cleaning: EmbeddedKafka) -> Iterator[Cluster]:
    with closing(connect(cleaning)) as found:
        yield found


@pytest.fixture
def partition(cluster: Cluster) -> TopicPartition:
    (created,) = create_topic(cluster, unique("orders"))
    return created


@pytest.fixture
def ask(cleaning: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> Ask:
    """The one row of `explain` of an offset; its text is one line. The exit code is 3 unless the record is visible."""

    def asked(partition: TopicPartition, offset: int) -> Row:
        server = ("--bootstrap-server", cleaning.bootstrap_servers, "--format", "json", "--fail-on-found")
        code = main(["explain", f"{partition}@{offset}", *server])
        answer = json.loads(capsys.readouterr().out)
        assert answer["complete"], answer["not_checked"]
        (row,) = answer["rows"]
        assert code == (0 if row["state"] == "visible" else 3)
        assert row["target"] == f"{partition}@{offset}"
        return {**row, "text": " ".join(row["text"])}

    return asked


def plain(kafka: EmbeddedKafka, partition: TopicPartition, *values: str, key: str | None = None) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in values:
        producer.produce(partition.topic, partition=partition.partition, key=key, value=value)
        assert producer.flush(10.0) == 0


def a_transaction(cluster: Cluster, partition: TopicPartition, *, commit: bool, version: int = 11) -> RawProducer:
    """One of two records, and its marker."""
    producer = RawProducer(cluster, unique("app")).init()
    if version < 12:
        producer.add(partition)
    producer.produce(partition, [b"one", b"two"], version=version)
    producer.end(commit=commit, version=4 if version < 12 else 5)
    await_end(cluster, producer, partition)
    return producer


def received(kafka: EmbeddedKafka, partition: TopicPartition, up_to: int) -> set[int]:
    """The offsets that a real read_committed consumer gets, until it has passed an offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": unique("oracle"),
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([Position(partition.topic, partition.partition, 0)])
    found: set[int] = set()

    def is_past() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.add(message.offset())
        (at,) = consumer.position([Position(partition.topic, partition.partition)])
        return at.offset >= up_to

    eventually(is_past, 20.0, f"a consumer to pass {up_to}")
    consumer.close()
    return found


@pytest.mark.parametrize("version", [11, 12])
def test_committed_and_aborted_records_and_markers_are_as_a_consumer_gets_them(
    cleaning: EmbeddedKafka, cluster: Cluster, partition: TopicPartition, ask: Ask, version: int
) -> None:
    committed = a_transaction(cluster, partition, commit=True, version=version)
    aborted = a_transaction(cluster, partition, commit=False, version=version)
    plain(cleaning, partition, "plain")
    rows = {offset: ask(partition, offset) for offset in range(7)}
    states = ["visible", "visible", "control", "aborted", "aborted", "control", "visible"]
    assert [rows[offset]["state"] for offset in range(7)] == states
    assert received(cleaning, partition, 7) == {offset for offset in rows if states[offset] == "visible"}
    assert [rows[offset]["transactional_id"] for offset in (1, 2, 4, 5)] == [
        *[committed.transactional_id] * 2,
        *[aborted.transactional_id] * 2,
    ]
    assert "It began at offset 0 of this partition and was committed by the marker at offset 2" in rows[1]["text"]
    assert "after its start: its client ended it." in rows[1]["text"]
    assert "It began at offset 3 of this partition and was aborted by the marker at offset 5" in rows[4]["text"]
    assert "It is a COMMIT marker of producer id " in rows[2]["text"]
    assert "It is an ABORT marker of producer id " in rows[5]["text"]
    assert "It belongs to no transaction." in rows[6]["text"]


def test_an_open_transaction_is_explained_and_holds_what_is_behind_it(
    cleaning: EmbeddedKafka, cluster: Cluster, partition: TopicPartition, ask: Ask
) -> None:
    a_transaction(cluster, partition, commit=True)
    open_one = RawProducer(cluster, unique("open")).init()
    open_one.add(partition)
    open_one.produce(partition)
    plain(cleaning, partition, "behind")
    behind = a_transaction(cluster, partition, commit=True)
    assert ask(partition, 0)["state"] == "visible"
    row = ask(partition, 3)
    assert (row["state"], row["transactional_id"], row["ends_by_itself"]) == ("open", open_one.transactional_id, "yes")
    assert "do not get it now: its transaction is open" in row["text"]
    for offset in (4, 5):
        held = ask(partition, offset)
        assert held["state"] == "held"
        assert "The last stable offset is 3." in held["text"]
        assert held["next"].startswith("txnwatch explain --topic ")
    assert behind.producer_id != open_one.producer_id
    assert received(cleaning, partition, 3) == {0, 1}
    open_one.end(commit=True)
    await_end(cluster, open_one, partition)
    assert [ask(partition, offset)["state"] for offset in (3, 4, 5)] == ["visible"] * 3
    assert received(cleaning, partition, 9) == {0, 1, 3, 4, 5, 6}


def test_a_record_of_a_hang_is_explained_and_then_who_ended_it(
    cluster: Cluster, partition: TopicPartition, ask: Ask
) -> None:
    late = late_write(cluster, unique("late"), partition, commit=False)
    row = ask(partition, 2)
    assert (row["state"], row["transactional_id"]) == ("hanging", late.transactional_id)
    assert "HANGING" in row["text"]
    assert "--start-offset 2" in row["next"]
    end_by_hand(cluster, partition, late.producer_id, commit=False)
    after = ask(partition, 2)
    assert after["state"] == "aborted"
    assert "or an administrator has written the marker" in after["text"]


def test_data_that_a_later_transaction_took_in_says_so(cluster: Cluster, partition: TopicPartition, ask: Ask) -> None:
    name = unique("stray")
    stray_write(cluster, name, partition)
    next_transaction(cluster, name, partition)
    eventually(lambda: ask(partition, 0)["state"] != "open", 10.0, "the marker")
    row = ask(partition, 0)
    assert row["state"] == "visible"
    assert "Its data has more than one producer epoch" in row["text"]


def test_a_timeout_is_named_as_the_end_of_a_record(cluster: Cluster, partition: TopicPartition, ask: Ask) -> None:
    producer = RawProducer(cluster, unique("slow"), 1_000).init()
    producer.add(partition)
    producer.produce(partition)
    await_end(cluster, producer, partition)
    eventually(lambda: "at its timeout" in ask(partition, 0)["text"], 10.0, "the end in the log")
    assert ask(partition, 0)["state"] == "aborted"


def test_offsets_outside_of_the_log(
    cleaning: EmbeddedKafka, cluster: Cluster, partition: TopicPartition, ask: Ask
) -> None:
    plain(cleaning, partition, *"abcde")
    place = Position(partition.topic, partition.partition, 3)
    admin = admin_of(cluster)
    admin.delete_records([place])[place].result(10.0)
    assert [ask(partition, offset)["state"] for offset in (0, 2, 3, 4)] == ["below_log_start"] * 2 + ["visible"] * 2
    assert [ask(partition, offset)["state"] for offset in (5, 10**15)] == ["beyond_end"] * 2
    assert "from 3 up to 5" in ask(partition, 0)["text"]


def test_a_record_that_compaction_has_removed(cleaning: EmbeddedKafka, cluster: Cluster, ask: Ask) -> None:
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.0"}
    (partition,) = create_topic(cluster, unique("compacted"), config=config)
    for number in range(4):
        plain(cleaning, partition, str(number), key="same")
        time.sleep(0.2)  # the next record begins another segment
    eventually(lambda: ask(partition, 0)["state"] == "compacted", 30.0, "the log cleaner")
    assert ask(partition, 3)["state"] == "visible"
    assert received(cleaning, partition, 4).isdisjoint({0})
