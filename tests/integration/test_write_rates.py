"""The estimate of the bytes of a scan, from a real broker."""

from __future__ import annotations

import time
from contextlib import closing

from confluent_kafka import Producer

from support.servers import connect
from support.topics import create_topic, unique
from txnwatch.streaming.admin.write_rates import write_rates
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
