"""A history of real transactions: every client generation, every way to end, on one broker that grows up.

The broker starts under transaction.version 0, is raised to 1 and to 2, and is restarted once, so that both versions
of the transaction log's values, several coordinator epochs and every state stand in one log.
"""

from __future__ import annotations

import contextlib
import struct
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from kafka.record.default_records import DefaultRecordBatchBuilder

from support.answers import is_live
from support.kafka_tools import CODECS, upgrade_transaction_version
from support.raw_append import append
from support.raw_producer import RawProducer
from support.servers import connect
from support.topics import create_topic
from support.waiting import eventually
from txnwatch.state.model.transaction import NotDescribed
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition, coordinator_partition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection
from txnwatch.streaming.client.security import Security
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

LOG_PARTITIONS = 2
_LAST_USABLE_EPOCH = 32766  # one more and the coordinator hands out another producer id
_TIMEOUT_MS = 300
_ERRORS_ONLY = {"log_level": 2}
_MAY_WRITE_THE_LOG = "__admin_client"  # the one client id whose records an internal topic takes

PROPERTIES = {
    "transaction.state.log.num.partitions": str(LOG_PARTITIONS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
FIRST_FEATURES = {"transaction.version": 0}


@dataclass(frozen=True, slots=True)
class History:
    """Where it can be read."""

    data: tuple[TopicPartition, ...]
    offsets: TopicPartition
    log: tuple[TopicPartition, ...]


def make_history(kafka: EmbeddedKafka) -> History:
    """Runs it all on a broker that was started with PROPERTIES and FIRST_FEATURES."""
    with contextlib.closing(connect(kafka)) as cluster:
        orders, payments = create_topic(cluster, "orders", 2), create_topic(cluster, "payments")
        data = (*orders, *payments)
        for level in (0, 1, 2):
            if level:
                upgrade_transaction_version(kafka, level)
            explicit_client(cluster, f"explicit-{level}", data)
            librdkafka_client(kafka.bootstrap_servers, f"librdkafka-{level}", data)
            timed_out(cluster, f"late-{level}", data[0])
            if level:
                implicit_client(cluster, f"implicit-{level}", data)
        a_tombstone(cluster, "expired")
        wear_out(cluster, "rotates-at-end")
        wear_out(cluster, "rotates-at-init")
    kafka.broker(1).stop()
    kafka.start_broker(1)
    with contextlib.closing(connect(kafka)) as cluster:
        cluster.refresh()
        rotate(cluster, data[1])
        log = tuple(TopicPartition(TRANSACTION_STATE_TOPIC, number) for number in range(LOG_PARTITIONS))
        return History(data, TopicPartition("__consumer_offsets", 0), log)


def explicit_client(cluster: Cluster, name: str, data: tuple[TopicPartition, ...]) -> None:
    """What clients before 4.0 do: AddPartitionsToTxn, Produce 11, EndTxn 4; commit, abort, and a fenced successor."""
    producer = RawProducer(cluster, name).init()
    for commit, partitions in ((True, data), (False, data[:1])):
        producer.add(*partitions)
        for partition in partitions:
            producer.produce(partition, [b"one", b"two"])
        producer.end(commit=commit)
        await_end(cluster, name)
    producer.add(data[2])
    producer.produce(data[2])
    RawProducer(cluster, name).init()
    await_end(cluster, name)


def implicit_client(cluster: Cluster, name: str, data: tuple[TopicPartition, ...]) -> None:
    """What clients since 4.0 do: Produce 12 adds the partition, EndTxn 5 raises the epoch; and an empty abort."""
    producer = RawProducer(cluster, name).init()
    for commit, partitions in ((True, data), (False, data[1:])):
        for partition in partitions:
            producer.produce(partition, [b"three"], version=12)
        producer.end(commit=commit, version=5)
        await_end(cluster, name)
    producer.end(commit=False, version=5)
    await_end(cluster, name)


def librdkafka_client(bootstrap: str, name: str, data: tuple[TopicPartition, ...]) -> None:
    """A commit and an abort in every codec, then consumed offsets sent to a transaction."""
    for number, codec in enumerate(CODECS):
        settings = {"bootstrap.servers": bootstrap, "transactional.id": f"{name}-{codec}", "compression.type": codec}
        producer = Producer({**_ERRORS_ONLY, **settings})
        producer.init_transactions(30.0)
        for commit in (True, False):
            producer.begin_transaction()
            partition = data[number % len(data)]
            for value in range(20):
                producer.produce(partition.topic, b"squeeze me " * 20 + b"%d" % value, partition=partition.partition)
            producer.flush(30.0)
            if commit and codec == "none":
                send_offsets(producer, bootstrap, name, partition)
            (producer.commit_transaction if commit else producer.abort_transaction)(30.0)


def send_offsets(producer: Producer, bootstrap: str, group: str, partition: TopicPartition) -> None:
    """Offsets of a group, in the producer's transaction."""
    consumer = Consumer({**_ERRORS_ONLY, "bootstrap.servers": bootstrap, "group.id": group})
    position = Position(partition.topic, partition.partition, 7)
    producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), 30.0)
    consumer.close()


def timed_out(cluster: Cluster, name: str, partition: TopicPartition) -> None:
    """Opened and left to the coordinator to abort."""
    producer = RawProducer(cluster, name, timeout_ms=_TIMEOUT_MS).init()
    producer.add(partition)
    producer.produce(partition)
    await_end(cluster, name)


def await_end(cluster: Cluster, name: str) -> None:
    """Waits until every marker of the id is written."""
    admin = ClusterAdmin(cluster)

    def is_over() -> bool:
        found = admin.describe_transactions([name])[name]
        return not isinstance(found, NotDescribed) and not is_live(found)

    eventually(is_over, 20.0, f"the transaction of {name} to end")


def a_tombstone(cluster: Cluster, name: str) -> None:
    """What the coordinator writes when an id has expired."""
    RawProducer(cluster, name).init()
    inject(cluster, name, None)


def wear_out(cluster: Cluster, name: str) -> None:
    """Puts the id one epoch before its last; the coordinator believes it when it loads its log again."""
    producer = RawProducer(cluster, name).init()
    now_ms = time.time_ns() // 1_000_000
    fields = struct.pack(">hqhib", 1, producer.producer_id, _LAST_USABLE_EPOCH - 1, 60_000, 0)
    tags = b"\x01\x00\x08" + struct.pack(">q", producer.producer_id)
    inject(cluster, name, fields + b"\x00" + struct.pack(">qq", now_ms, -1) + tags)


def rotate(cluster: Cluster, partition: TopicPartition) -> None:
    """Two ids get another producer id: one when its transaction ends, one when it starts anew."""
    ending, starting = RawProducer(cluster, "rotates-at-end").init(), RawProducer(cluster, "rotates-at-init").init()
    former = ending.producer_id, starting.producer_id
    assert (ending.producer_epoch, starting.producer_epoch) == (_LAST_USABLE_EPOCH, _LAST_USABLE_EPOCH)
    ending.produce(partition, version=12)
    ending.end(commit=True, version=5)
    starting.init()
    await_end(cluster, ending.transactional_id)
    assert ending.producer_id != former[0]
    assert starting.producer_id != former[1]


def inject(cluster: Cluster, name: str, value: bytes | None) -> None:
    """Writes a record to the coordinator's log, as only its own client may; the coordinator does not notice."""
    partition = TopicPartition(TRANSACTION_STATE_TOPIC, coordinator_partition(name, LOG_PARTITIONS))
    info = cluster.refresh().info(partition)
    assert info is not None
    batch = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 16)
    key = struct.pack(">hh", 0, len(name)) + name.encode()
    batch.append(0, time.time_ns() // 1_000_000, key, value, [])
    endpoint = cluster.known.brokers[info.leader]
    with contextlib.closing(Connection(endpoint, Security(), client_id=_MAY_WRITE_THE_LOG)) as connection:
        append(connection, partition, bytes(batch.build()))
