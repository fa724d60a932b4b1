"""A thousand hangs at once: how long until all are told, and until the outcome of each is known.

Each hang is a late write after an abort, of a producer id of its own, all within a second or two. The clock runs
from the broker's last acknowledgement to the moment a consumer has the event.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

from support.watch import RunningWatch
from txnwatch.clients import librdkafka_config
from txnwatch.config import EVENTS_TOPIC
from txnwatch.connection import options_of
from txnwatch.embedded.faults import await_end, set_verification
from txnwatch.embedded.kafka import EmbeddedKafka
from txnwatch.embedded.raw_producer import RawProducer
from txnwatch.sinks.event_log import read_events
from txnwatch.state.ids import TopicPartition
from txnwatch.state.incident import IncidentEvent
from txnwatch.state.outcome import UNKNOWN
from txnwatch.streaming.broker import Endpoint
from txnwatch.streaming.cluster import Cluster
from txnwatch.streaming.security import Security

HANGS = 1000
PARTITIONS = 250
THREADS = 6
IN_TIME_S = 45.0
TOPIC = "many-hangs"


def run(directory: Path) -> None:
    """One broker, one watch."""
    with EmbeddedKafka(directory / "kafka") as kafka:
        kafka.start()
        bootstrap = kafka.bootstrap_servers
        set_verification(bootstrap, [1], enabled=False)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30.0)
        with RunningWatch(bootstrap, directory / "checkpoint") as watch:
            watch.until_ready()
            arrived = _follow(bootstrap)
            producers = _prepare(bootstrap)
            time.sleep(5.0)
            at_s = _hang(bootstrap, producers)
            _wait(arrived)
        _print(arrived, at_s)


def _prepare(bootstrap: str) -> list[RawProducer]:
    """As many producers, each with a transaction that was aborted."""

    def some(first: int) -> list[RawProducer]:
        made = []
        with closing(Cluster([Endpoint.parse(bootstrap)], Security())) as cluster:
            cluster.refresh()
            for number in range(first, HANGS, THREADS):
                producer = RawProducer(cluster, f"many-{number}").init()
                partition = TopicPartition(TOPIC, number % PARTITIONS)
                producer.add(partition)
                producer.produce(partition)
                producer.end(commit=False)
                made.append(producer)
            for number, producer in zip(range(first, HANGS, THREADS), made, strict=True):
                await_end(cluster, producer, TopicPartition(TOPIC, number % PARTITIONS))
        return made

    with ThreadPoolExecutor(THREADS) as pool:
        parts = list(pool.map(some, range(THREADS)))
    return [parts[number % THREADS][number // THREADS] for number in range(HANGS)]


def _hang(bootstrap: str, producers: list[RawProducer]) -> float:
    """Every late write; when the last one was acknowledged."""

    def some(first: int) -> None:
        with closing(Cluster([Endpoint.parse(bootstrap)], Security())) as cluster:
            cluster.refresh()
            for number in range(first, HANGS, THREADS):
                _produce(cluster, number % PARTITIONS, producers[number])

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(some, range(THREADS)))
    return time.monotonic()


def _produce(cluster: Cluster, partition: int, producer: RawProducer) -> None:
    version, topic = 11, ProduceRequest.TopicProduceData
    data = topic.PartitionProduceData(version=version, index=partition, records=_late(producer))
    request = ProduceRequest(
        version=version,
        transactional_id=producer.transactional_id,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[topic(version=version, partition_data=[data], name=TOPIC)],
    )
    answer: Any = cluster.node(1).call(request, 30.0)
    assert answer.responses[0].partition_responses[0].error_code == 0


def _late(producer: RawProducer) -> bytes:
    batch = DefaultRecordBatchBuilder(2, 0, True, producer.producer_id, producer.producer_epoch, 1, 1 << 14)
    batch.append(0, time.time_ns() // 1_000_000, None, b"too late", [])
    return bytes(batch.build())


Arrivals = list[tuple[float, IncidentEvent]]


def _follow(bootstrap: str) -> Arrivals:
    arrived: Arrivals = []

    def follow() -> None:
        for event in read_events(librdkafka_config(options_of(bootstrap, None)), EVENTS_TOPIC, follow=True):
            if isinstance(event, IncidentEvent) and event.topic == TOPIC:
                arrived.append((time.monotonic(), event))

    threading.Thread(target=follow, daemon=True).start()
    return arrived


def _wait(arrived: Arrivals) -> None:
    deadline = time.monotonic() + IN_TIME_S
    while time.monotonic() < deadline:
        known = {event.incident_id for _, event in list(arrived) if event.expected_outcome != UNKNOWN}
        if len(known) >= HANGS:
            return
        time.sleep(0.2)


def _print(arrived: Arrivals, at_s: float) -> None:
    told: dict[str, float] = {}
    known: dict[str, float] = {}
    for when_s, event in arrived:
        told.setdefault(event.incident_id, when_s - at_s)
        if event.expected_outcome != UNKNOWN:
            known.setdefault(event.incident_id, when_s - at_s)
    print(f"  {HANGS} hangs at once on {PARTITIONS} partitions")
    print(f"  told: {_spread(told.values())}")
    print(f"  outcomes known: {_spread(known.values())}")


def _spread(seconds: Iterable[float]) -> str:
    found = sorted(seconds)
    if not found:
        return "none"
    return f"{len(found)}, half of them after {found[len(found) // 2]:.1f} s, the last after {found[-1]:.1f} s"
