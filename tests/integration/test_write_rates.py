"""The estimates of the bytes of a scan and of a census, from a real broker."""

from __future__ import annotations

import socket
import struct
import sys
import time
from contextlib import closing

import pytest
from confluent_kafka import Producer

from support.raw_producer import RawProducer
from support.servers import connect
from support.topics import create_topic, unique
from txnwatch.streaming.admin.write_rates import write_rates
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.source.census_bytes import CensusBytes, census_bytes
from txnwatch_demo.embedded.kafka import EmbeddedKafka


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
