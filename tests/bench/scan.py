"""The header scan and the fold against librdkafka's consumer and Kafka's own kafka-consumer-perf-test.

The same data, the same broker, one after the other, three rounds; the medians are printed. librdkafka is read the
fastest way its Python client has (consume() in large batches, nothing done with the messages).
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from txnwatch.embedded.kafka import EmbeddedKafka
from txnwatch.state import ids
from txnwatch.streaming.broker import Endpoint
from txnwatch.streaming.cluster import Cluster
from txnwatch.streaming.fetch import read_ranges
from txnwatch.streaming.fold import PartitionFold
from txnwatch.streaming.range_read import RangeRead
from txnwatch.streaming.rows import fact_rows, record_batch
from txnwatch.streaming.security import Security
from txnwatch.streaming.wire.record_batch import HEADER

ROUNDS = 3
LARGE_BATCHES, LARGE_BATCH_BYTES = 800, 1_000_000
SMALL_BATCHES = 400_000


@dataclass(frozen=True)
class Measure:
    seconds: float
    size: int
    batches: int


class BareScan:
    """Walks headers and does nothing with them: what the fold is compared with."""

    def __init__(self, start: int, end: int) -> None:
        self.position, self.end = start, end
        self.leader_epoch = -1
        self.size = self.batches = 0

    @property
    def is_done(self) -> bool:
        return self.position >= self.end

    def feed(self, buffer: memoryview | bytes) -> None:
        at, size, unpack = 0, len(buffer), HEADER.unpack_from
        batches, position = 0, self.position
        while at + 61 <= size:
            header = unpack(buffer, at)
            if at + 12 + header[1] > size:
                break
            position = header[0] + header[6] + 1
            at += 12 + header[1]
            batches += 1
        self.batches += batches
        self.position = position
        self.size += at


def run(directory: Path) -> None:
    """Fills two topics and reads each in every way."""
    with EmbeddedKafka(directory, heap="1g") as kafka:
        kafka.start()
        bootstrap = kafka.bootstrap_servers
        topics = {"1 MB batches": _large(bootstrap), "one-record batches": _small(bootstrap)}
        cluster = Cluster([Endpoint.parse(bootstrap)], Security())
        cluster.refresh()
        for name, topic in topics.items():
            _compare(name, topic, cluster, kafka)
        cluster.close()


def _compare(name: str, topic: str, cluster: Cluster, kafka: EmbeddedKafka) -> None:
    ways: dict[str, Callable[[], Measure]] = {
        "bare header scan": lambda: _ours(cluster, topic, BareScan),
        "fold to Arrow": lambda: _ours(cluster, topic, PartitionFold),
        "librdkafka consumer": lambda: _librdkafka(kafka.bootstrap_servers, topic),
        "kafka-consumer-perf-test": lambda: _perf_test(kafka, topic),
    }
    shape = ways["bare header scan"]()
    seconds = {way: statistics.median(measure().seconds for _ in range(ROUNDS)) for way, measure in ways.items()}
    print(f"{name}: {shape.size / 1e6:.0f} MB in {shape.batches} batches, one process, median of {ROUNDS}")
    folded = seconds["fold to Arrow"]
    for way, took in seconds.items():
        rate = f"{shape.size / took / 1e6:8.0f} MB/s {shape.batches / took:12,.0f} batches/s"
        print(f"  {way:26} {took:7.3f} s {rate}   {took / folded:6.1f} x the time of fold to Arrow")


def _ours(cluster: Cluster, topic: str, fold: Callable[[int, int], object]) -> Measure:
    info = cluster.known.topics[topic]
    partitions = [ids.TopicPartition(topic, number) for number in info.partitions]
    begin = time.perf_counter()
    ends = cluster.list_offsets(partitions)
    reads = [
        RangeRead(partition, info.topic_id, 0, ends[partition].offset, -1, must_check=False, new_fold=fold)
        for partition in partitions
    ]
    read_ranges(cluster, reads, patience_s=5.0)
    if fold is PartitionFold:
        record_batch(
            row for read in reads for row in fact_rows(read.fold.facts(read.partition, read.topic_id, 0), buckets=16)
        )
    took = time.perf_counter() - begin
    assert not any(read.notices for read in reads)
    return Measure(took, sum(read.fold.size for read in reads), sum(read.fold.batches for read in reads))


def _librdkafka(bootstrap: str, topic: str) -> Measure:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"bench-{time.time_ns()}",
            "isolation.level": "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 16 << 20,
            "fetch.max.bytes": 64 << 20,
            "queued.max.messages.kbytes": 1 << 20,
            "check.crcs": False,
        }
    )
    partitions = list(consumer.list_topics(topic).topics[topic].partitions)
    begin = time.perf_counter()
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    ended = size = 0
    while ended < len(partitions):
        for message in consumer.consume(10_000, timeout=1.0):
            if message.error() is not None:
                ended += 1
            else:
                size += len(message)
    took = time.perf_counter() - begin
    consumer.close()
    return Measure(took, size, 0)


def _perf_test(kafka: EmbeddedKafka, topic: str) -> Measure:
    """Kafka's Java consumer; the tool's own measure, without the JVM's start."""
    count = sum(listed.offset for listed in _ends(kafka, topic))
    done = kafka.tool(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", kafka.bootstrap_servers, "--topic", topic, "--messages", str(count)),
        *("--timeout", "5000", "--fetch-size", str(16 << 20), "--hide-header"),
        timeout_s=120.0,
    )
    columns = [column.strip() for column in done.stdout.strip().splitlines()[-1].split(",")]
    fetch_ms = float(columns[7])
    return Measure(fetch_ms / 1000, 0, 0)


def _ends(kafka: EmbeddedKafka, topic: str) -> list[object]:
    cluster = Cluster([Endpoint.parse(kafka.bootstrap_servers)], Security())
    cluster.refresh()
    partitions = [ids.TopicPartition(topic, number) for number in cluster.known.topics[topic].partitions]
    found = list(cluster.list_offsets(partitions).values())
    cluster.close()
    return found


def _create(bootstrap: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30.0)
    return topic


def _large(bootstrap: str) -> str:
    topic = _create(bootstrap, "large")
    settings = {"bootstrap.servers": bootstrap, "batch.size": LARGE_BATCH_BYTES, "linger.ms": 100}
    producer = Producer({**settings, "queue.buffering.max.kbytes": 1 << 20, "enable.idempotence": True})
    value = os.urandom(10_000)
    records = LARGE_BATCHES * LARGE_BATCH_BYTES // len(value)
    for number in range(records):
        _produce(producer, topic, value, number * 2 // records)
    producer.flush()
    return topic


def _small(bootstrap: str) -> str:
    topic = _create(bootstrap, "small")
    settings = {"bootstrap.servers": bootstrap, "batch.num.messages": 1, "linger.ms": 0}
    producer = Producer({**settings, "transactional.id": "bench"})
    producer.init_transactions()
    for first in range(0, SMALL_BATCHES, 20_000):
        producer.begin_transaction()
        for number in range(first, first + 20_000):
            _produce(producer, topic, b"x" * 20, number % 2)
        producer.commit_transaction()
    return topic


def _produce(producer: Producer, topic: str, value: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=partition)
        except BufferError:
            producer.poll(0.05)
        else:
            return
