"""Reading under a quota of 1 MB/s: our Fetch beside librdkafka, at the same time, each under its own client id."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.results import Point, Row
from bench.scan_ways import messages_of
from support.answers import listed
from support.quotas import CONSUMER_BYTE_RATE, quota
from support.raw_log import range_of
from support.raw_producer import RawProducer
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security
from txnwatch.streaming.log.fetch import read_ranges
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

RATE, BATCH, BYTES = 1_000_000, 100_000, 40_000_000
COUNTS = (1, 10, 100)
THEIRS = "librdkafka"


def run(directory: Path, rows: list[Row]) -> None:
    """One broker, the same bytes in one partition and in more."""
    row = Row("quota", f"{BYTES / 1e6:.0f} MB", "partitions", THEIRS)
    with EmbeddedKafka(directory / "kafka") as kafka:
        kafka.start()
        with closing(Cluster([Endpoint.parse(kafka.bootstrap_servers)], Security(), timeout_s=5.0)) as cluster:
            for count in COUNTS:
                partitions = _written(cluster, kafka.bootstrap_servers, count)
                with ExitStack() as quotas:
                    quotas.enter_context(quota(cluster, CONSUMER_BYTE_RATE, RATE))
                    quotas.enter_context(quota(cluster, CONSUMER_BYTE_RATE, RATE, THEIRS))
                    time.sleep(2.0)
                    row.points.append(_side_by_side(kafka.bootstrap_servers, partitions))
    rows.append(row)


def _written(cluster: Cluster, bootstrap: str, count: int) -> list[TopicPartition]:
    topic = f"quota-{count}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, count, 1)])[topic].result(30.0)
    partitions = [TopicPartition(topic, number) for number in range(count)]
    while not all(cluster.refresh().info(partition) for partition in partitions):
        time.sleep(0.2)
    producer = RawProducer(cluster, topic).init()
    for number in range(BYTES // BATCH):
        producer.produce(partitions[number % count], [bytes(BATCH)], transactional=False)
    return partitions


def _side_by_side(bootstrap: str, partitions: list[TopicPartition]) -> Point:
    took: dict[str, float] = {}
    cpu_begin = time.process_time()
    gaps: list[int] = []
    threads = [
        threading.Thread(target=lambda: took.update(_ours(bootstrap, partitions, gaps))),
        threading.Thread(target=lambda: took.update({THEIRS: _theirs(bootstrap, partitions)})),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    theirs_cpu_s = time.process_time() - cpu_begin - took["ours, CPU"]  # librdkafka has threads of its own
    figures = {"gaps": float(gaps[0]), f"{THEIRS} s": took[THEIRS], f"{THEIRS} CPU s": theirs_cpu_s}
    return Point(len(partitions), took["ours"], took["ours, CPU"], took["ours"] / took[THEIRS], figures)


def _ours(bootstrap: str, partitions: list[TopicPartition], gaps: list[int]) -> dict[str, float]:
    with closing(Cluster([Endpoint.parse(bootstrap)], Security(), timeout_s=5.0)) as cluster:
        cluster.refresh()
        ends = {partition: listed(cluster, partition) for partition in partitions}
        reads = [range_of(cluster, partition, 0, ends[partition].offset) for partition in partitions]
        begin, cpu_begin = time.monotonic(), time.thread_time()
        read_ranges(cluster, reads, patience_s=10.0)
        took = {"ours": time.monotonic() - begin, "ours, CPU": time.thread_time() - cpu_begin}
    gaps.append(sum(len(read.notices) for read in reads))
    return took


def _theirs(bootstrap: str, partitions: list[TopicPartition]) -> float:
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": THEIRS, "client.id": THEIRS})) as consumer:
        consumer.assign([Assigned(partition.topic, partition.partition, 0) for partition in partitions])
        begin = time.monotonic()
        assert sum(map(len, messages_of(consumer, BYTES // BATCH))) == BYTES
        return time.monotonic() - begin
