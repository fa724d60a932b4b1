"""Many hangs at once: how long until all are published, and until the outcome of each is known.

Each hang is a late write after an abort, of a producer id of its own, all within a second or two. The clock runs
from the broker's last acknowledgement to the moment a consumer has the event. CPU is that of all processes of the
watch, from the first of these writes until the outcome of the last hang is known.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka.record.default_records import DefaultRecordBatchBuilder

from bench.following import follow_incidents
from bench.results import Point, Row
from bench.usage import usage_of
from support.raw_producer import RawProducer
from support.watch import RunningWatch
from txnwatch.state.model.incident import ExpectedOutcome, IncidentEvent
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import await_end, produce_request, set_verification

SIZES = (10, 100, 1_000)
PARTITIONS = 250
THREADS = 6
IN_TIME_S = 45.0


def run(directory: Path, rows: list[Row]) -> None:
    """One broker, one watch; the time of a row is that of the last one of them."""
    names = ("published", "outcome known")
    _, known = both = [Row("many_hangs", name, "hangs at once", f"{SIZES[0]} hangs") for name in names]
    with EmbeddedKafka(directory / "kafka") as kafka:
        kafka.start()
        bootstrap = kafka.bootstrap_servers
        set_verification(bootstrap, [1], enabled=False)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for size in SIZES:
            admin.create_topics([NewTopic(_topic(size), PARTITIONS, 1)])[_topic(size)].result(30.0)
        with RunningWatch(bootstrap, directory / "checkpoint") as watch:
            watch.until_ready()
            arrived = _follow(bootstrap)
            for size in SIZES:
                producers = _prepare(bootstrap, size)
                time.sleep(5.0)
                with usage_of(watch.pid) as usage:
                    at_s = _hang(bootstrap, producers)
                    _wait(arrived, size)
                for row in both:
                    row.points.append(_point(row, size, _when(arrived, size, at_s, is_known=row is known), usage.cpu_s))
    rows += both


def _topic(size: int) -> str:
    return f"many-{size}"


def _prepare(bootstrap: str, size: int) -> list[RawProducer]:
    """As many producers, each with a transaction that was aborted."""

    def some(first: int) -> list[RawProducer]:
        made = []
        with closing(Cluster([Endpoint.parse(bootstrap)], Security())) as cluster:
            cluster.refresh()
            for number in range(first, size, THREADS):
                producer = RawProducer(cluster, f"{_topic(size)}-{number}").init()
                partition = TopicPartition(_topic(size), number % PARTITIONS)
                producer.add(partition)
                producer.produce(partition)
                producer.end(commit=False)
                made.append(producer)
            for number, producer in zip(range(first, size, THREADS), made, strict=True):
                await_end(cluster, producer, TopicPartition(_topic(size), number % PARTITIONS))
        return made

    with ThreadPoolExecutor(THREADS) as pool:
        parts = list(pool.map(some, range(THREADS)))
    return [parts[number % THREADS][number // THREADS] for number in range(size)]


def _hang(bootstrap: str, producers: list[RawProducer]) -> float:
    """Every late write; when the last one was acknowledged."""
    size = len(producers)

    def some(first: int) -> None:
        with closing(Cluster([Endpoint.parse(bootstrap)], Security())) as cluster:
            cluster.refresh()
            for number in range(first, size, THREADS):
                _produce(cluster, TopicPartition(_topic(size), number % PARTITIONS), producers[number])

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(some, range(THREADS)))
    return time.monotonic()


def _produce(cluster: Cluster, partition: TopicPartition, producer: RawProducer) -> None:
    request = produce_request(partition, _late(producer), transactional_id=producer.transactional_id)
    answer: Any = cluster.node(1).call(request, 30.0)
    assert answer.responses[0].partition_responses[0].error_code == 0


def _late(producer: RawProducer) -> bytes:
    batch = DefaultRecordBatchBuilder(2, 0, True, producer.producer_id, producer.producer_epoch, 1, 1 << 14)
    batch.append(0, time.time_ns() // 1_000_000, None, b"too late", [])
    return bytes(batch.build())


Arrivals = list[tuple[float, IncidentEvent]]


def _follow(bootstrap: str) -> Arrivals:
    arrived: Arrivals = []

    def take(event: IncidentEvent) -> None:
        if (event.topic or "").startswith("many-"):
            arrived.append((time.monotonic(), event))

    follow_incidents(bootstrap, take)
    return arrived


def _wait(arrived: Arrivals, size: int) -> None:
    deadline = time.monotonic() + IN_TIME_S
    while time.monotonic() < deadline:
        if len(_when(arrived, size, 0.0, is_known=True)) >= size:
            return
        time.sleep(0.2)


def _when(arrived: Arrivals, size: int, at_s: float, *, is_known: bool) -> list[float]:
    """When each was published, or its outcome, in seconds after the last write."""
    found: dict[str, float] = {}
    for when_s, event in list(arrived):
        if event.topic == _topic(size) and not (is_known and event.expected_outcome == ExpectedOutcome.UNKNOWN):
            found.setdefault(event.incident_id, when_s - at_s)
    return sorted(found.values())


def _point(row: Row, size: int, seconds: list[float], cpu_s: float) -> Point:
    if not seconds:
        return Point(size, figures={"reported": 0.0})
    figures = {"reported": float(len(seconds)), "half of them after s": seconds[len(seconds) // 2]}
    figures["CPU s of the watch until then"] = cpu_s
    fewest_s = row.points[0].wall_s if row.points else seconds[-1]
    return Point(size, seconds[-1], ratio=seconds[-1] / fewest_s if fewest_s else None, figures=figures)
