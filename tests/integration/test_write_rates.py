"""The estimates of the bytes of a scan, of the coordinators' log and of a census, from a real broker."""

from __future__ import annotations

import socket
import struct
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.topics import create_topic, unique
from txnwatch.streaming.checks.checkup import CensusBytes, LogBytes, census_bytes, coordinator_log_bytes, write_rates
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka


def test_the_rate_of_a_topic_is_what_was_written_in_the_last_hour(kafka: EmbeddedKafka) -> None:
    name, idle = unique("rated"), unique("idle")
    with closing(connect(kafka)) as cluster:
        create_topic(cluster, name, 2)
        create_topic(cluster, idle)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": "none"})
        for number in range(2_000):
            producer.produce(name, b"x" * 1_000, partition=number % 2)
        producer.flush(30.0)
        cluster.refresh()
        found = write_rates(cluster, [name, idle], int(time.time() * 1000))
    assert found.problem is None
    assert 2_000_000 < found.by_topic[name] * 3_600 < 2_200_000
    assert found.by_topic[idle] == 0


def counted_by_the_kernel(cluster: Cluster) -> int:
    """The bytes that the only connection has sent and received: two fields of Linux's struct tcp_info."""
    info = cluster.any_connection()._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return sum(struct.unpack_from("=QQ", info, 120))


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO is of Linux")
def test_the_bytes_of_a_census_are_those_of_its_connection(kafka: EmbeddedKafka) -> None:
    few, many = unique("census-few"), unique("census-many")
    with closing(connect(kafka)) as cluster:
        create_topic(cluster, few)
        partitions = create_topic(cluster, many, 50)
        producer = RawProducer(cluster, unique("producer")).init()
        producer.add(*partitions)
        for partition in partitions:
            producer.produce(partition)
        producer.end(commit=True)
    with closing(connect(kafka)) as cluster:
        cluster.refresh()
        before = counted_by_the_kernel(cluster)
        small, large = (census_bytes(cluster, [name], int(time.time() * 1000)) for name in (few, many))
        assert small.moved + large.moved == counted_by_the_kernel(cluster) - before
        assert census_bytes(cluster, [], 0) == CensusBytes()
    assert (small.partitions, large.partitions, small.failed, large.failed) == (1, 50, 0, 0)
    assert large.moved > 50 * 40, "each partition has a row with a producer"


def test_the_bytes_of_the_coordinators_log_are_those_of_its_files(clusters: Clusters, tmp_path: Path) -> None:
    """The broker is new, so the whole log is of the last hour."""
    kafka = clusters.start("log-bytes", lambda: EmbeddedKafka(tmp_path / "log-bytes"))
    try:
        with closing(connect(kafka)) as cluster:
            cluster.refresh()
            assert coordinator_log_bytes(cluster, int(time.time() * 1000)) == LogBytes()
            name = unique("data")
            create_topic(cluster, name)
            producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("producer")})
            producer.init_transactions(30.0)
            for _ in range(100):
                producer.begin_transaction()
                producer.produce(name, b"x")
                producer.commit_transaction(30.0)
            cluster.refresh()
            found = coordinator_log_bytes(cluster, int(time.time() * 1000))
    finally:
        clusters.end("log-bytes")
    assert found.size is not None
    assert found.size > 300 * 61, "three records of each transaction: Ongoing, PrepareCommit, CompleteCommit"
    assert (found.unread, found.problem) == (0, None)
    assert found.per_second * 3_600 == pytest.approx(found.size, rel=0.05)
