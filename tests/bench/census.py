"""What a round of the census costs: by partitions, against `kafka-transactions.sh find-hanging --broker-id`.

One broker, topics of 500 partitions, nothing open. A round is what txnwatch takes of partitions it does not scan;
the tool is run as an operator would, as a process. Requests are counted at the connection.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Collection
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.idle import children_cpu_s
from bench.results import Point, Row
from support.raw_producer import RawProducer
from txnwatch.state.model.facts import CensusTaken
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security
from txnwatch.streaming.source.census_schedule import Asked, Census, take_census
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

SIZES = (100, 1_000, 10_000)
PARTITIONS_OF_A_TOPIC = 500
ROUNDS = 3


def run(directory: Path, rows: list[Row]) -> None:
    """One broker that grows."""
    row = Row("census", "a round", "partitions", "find-hanging --broker-id")
    with EmbeddedKafka(directory / "kafka", heap="2g") as kafka:
        kafka.start()
        cluster = Cluster([Endpoint.parse(kafka.bootstrap_servers)], Security(), timeout_s=30.0)
        RawProducer(cluster, "somebody").init()
        made = 0
        for size in SIZES:
            made = grow(kafka, made, size)
            row.points.append(_measure(kafka, cluster, made))
        cluster.close()
    rows.append(row)


def grow(kafka: EmbeddedKafka, made: int, size: int) -> int:
    """Creates topics until the cluster has `size` partitions of them, of which it has `made`."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    while made < size:
        count = min(PARTITIONS_OF_A_TOPIC, size - made)
        name = f"census-{made}"
        admin.create_topics([NewTopic(name, count, 1)], request_timeout=120.0)[name].result(150.0)
        made += count
    return made


def _measure(kafka: EmbeddedKafka, cluster: Cluster, expected: int) -> Point:
    census = whole_census(cluster, expected)
    while len(_taken(cluster, census)) < expected:  # a leader that has just been elected refuses for a moment
        time.sleep(0.5)
    sent = 0
    send = Connection.send

    def counting(connection: Connection, request: object, *more: float) -> None:
        nonlocal sent
        sent += 1
        send(connection, request, *more)

    times: list[float] = []
    cpu_times: list[float] = []
    Connection.send = counting  # type: ignore[method-assign]
    try:
        for _ in range(ROUNDS):
            begin, cpu_begin = time.perf_counter(), time.process_time()
            assert len(_taken(cluster, census)) == expected
            times.append(time.perf_counter() - begin)
            cpu_times.append(time.process_time() - cpu_begin)
    finally:
        Connection.send = send  # type: ignore[method-assign]
    begin, cpu_begin = time.perf_counter(), children_cpu_s()
    done = kafka.tool(
        "org.apache.kafka.tools.TransactionsCommand",
        *("--bootstrap-server", kafka.bootstrap_servers, "find-hanging", "--broker-id", "1"),
    )
    assert done.returncode == 0, done.stderr
    tool, tool_cpu_s = time.perf_counter() - begin, children_cpu_s() - cpu_begin
    ours = statistics.median(times)
    figures = {"requests": sent / ROUNDS, "find-hanging s": tool, "find-hanging CPU s": tool_cpu_s}
    return Point(expected, ours, statistics.median(cpu_times), ours / tool, figures)


def _taken(cluster: Cluster, census: Census) -> Collection[TopicPartition]:
    (found,) = [fact for fact in take_census(cluster, census) if isinstance(fact, CensusTaken)]
    return found.taken.keys()


def whole_census(cluster: Cluster, expected: int) -> Census:
    """All partitions, once every one of them has a leader."""
    while True:
        topics = [topic for topic in cluster.refresh().topics.values() if topic.name.startswith("census-")]
        asked = {
            TopicPartition(topic.name, number): Asked(topic.topic_id)
            for topic in topics
            for number, info in topic.partitions.items()
            if info.leader is not None
        }
        if len(asked) == expected:
            return Census(asked, 1, is_round=True)
        time.sleep(0.5)
