"""Reading logs: the header walk and the fold beside what else can read a topic.

The same data, the same broker, one way after the other, three rounds; the medians count. A ratio is against librdkafka
with a large queue: below 1 is faster. The bare socket is the limit of the loopback interface of this machine, and the
bare Fetch that of the broker. Between them and the fold stand the header walk and the fold without Arrow; behind it
Spark, beside Spark's own Kafka source.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.results import Point, Row
from bench.scan_ways import (
    HeaderWalk,
    Spent,
    Where,
    bare_fetch,
    bare_socket,
    fetches_of,
    kafka_python,
    librdkafka,
    our_fold,
    ours,
    perf_test,
    segments_of,
)
from support.certificates import Authority
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

ROUNDS, PARTITIONS = 3, 2
SIZES_MB = (4, 40, 400)
ONE_RECORD = (4_000, 40_000, 400_000)
LARGE, MIDDLE = 1_000_000, 16_000
VALUES = 500  # different ones: gzip does not find the same value again within its 32 KB
BESIDE, DEFAULT = "librdkafka, large queue", "librdkafka, default queue"
SPARK = "Spark's Kafka source"
OURS = {"header walk", "fold", "fold to Arrow"}
Places = dict[str, dict[int, Where]]


def run(directory: Path, rows: list[Row]) -> None:
    """Fills a topic of each shape and size, and reads each in every way."""
    authority = Authority(_made(directory / "authority"), "ours").create()
    properties = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(authority.issue("broker", "IP:127.0.0.1"))}
    listeners = {"TLS": "SSL"}
    with EmbeddedKafka(directory, heap="1g", properties=properties, listeners=listeners) as kafka:
        kafka.start()
        ca_file, places = str(authority.certificate), Places()
        for shape, sizes, fill in _shapes():
            topics = {size: fill(kafka.bootstrap_servers, size) for size in sizes}
            plain = {size: Where(kafka, *topic, kafka.bootstrap_servers) for size, topic in topics.items()}
            secured = {size: Where(kafka, *topic, kafka.listener("TLS"), ca_file) for size, topic in topics.items()}
            places |= {shape: plain, f"{shape}, TLS": secured}
        for shape, of_shape in places.items():
            rows += _compare(shape, of_shape)
        rows += _in_spark(places, directory)


def _shapes() -> Iterator[tuple[str, tuple[int, ...], Callable[[str, int], tuple[str, int]]]]:
    yield "1 MB batches", SIZES_MB, partial(_large, batch=LARGE, codec="none")
    yield "16 KB batches", SIZES_MB, partial(_large, batch=MIDDLE, codec="none")
    yield "1 MB batches, gzip", SIZES_MB, partial(_large, batch=LARGE, codec="gzip")
    yield "one-record batches", ONE_RECORD, _small


def _unit(shape: str) -> str:
    return "batches" if shape.startswith("one-record") else "MB"


def _compare(shape: str, topics: dict[int, Where]) -> list[Row]:
    rows: dict[str, Row] = {}
    for size, where in topics.items():
        requests, batches = fetches_of(where)
        ways: dict[str, Callable[[], Spent]] = {
            BESIDE: partial(librdkafka, where),
            "bare Fetch": partial(bare_fetch, where, requests),
            "header walk": partial(ours, where, HeaderWalk),
            "fold": partial(ours, where, PartitionFold),
            "fold to Arrow": partial(our_fold, where),
            "kafka-python": partial(kafka_python, where),
        }
        if not where.ca_file:
            segments = segments_of(where.kafka.log_directory(1), where.topic)
            ways["bare socket"] = partial(bare_socket, segments)
            ways[DEFAULT] = partial(librdkafka, where, has_large_queue=False)
        measured = {way: [read() for _ in range(ROUNDS)] for way, read in ways.items()}
        measured["kafka-consumer-perf-test"] = [perf_test(where)]  # once: it starts a JVM
        theirs = _median(measured[BESIDE])
        for way, found in measured.items():
            row = rows.setdefault(way, Row("scan", f"{shape}: {way}", _unit(shape), BESIDE))
            counted = batches if way in OURS else 0
            row.points.append(_point(size, found, _median(measured["fold to Arrow"]), theirs, counted))
    return list(rows.values())


def _median(found: list[Spent]) -> float:
    return statistics.median(spent.wall_s for spent in found)


def _point(size: int, found: list[Spent], folded_s: float, theirs_s: float, batches: int) -> Point:
    wall_s = _median(found)
    cpu_s = statistics.median(spent.cpu_s for spent in found)
    figures = {"x the fold to Arrow": wall_s / folded_s}
    if found[0].size:
        figures["MB/s"] = found[0].size / wall_s / 1e6
    if batches:
        figures["batches/s"] = batches / wall_s
    return Point(size, wall_s, cpu_s, wall_s / theirs_s, figures)


def _in_spark(places: Places, directory: Path) -> list[Row]:
    """Both sources in one Spark session, in a process of its own: it takes jars at its start."""
    asked = [(where.listener, where.topic, where.ca_file) for of in places.values() for where in of.values()]
    command = [sys.executable, "-m", "bench.scan_spark", json.dumps(asked), str(directory / "spark")]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    found = iter(json.loads(done.stdout.splitlines()[-1]))
    rows: list[Row] = []
    for shape, of in places.items():
        both = {size: next(found) for size in of}
        theirs = [Point(size, *spent) for size, (spent, _) in both.items()]
        ours = [Point(size, *spent, ratio=spent[0] / beside[0]) for size, (beside, spent) in both.items()]
        rows += [
            Row("scan", f"{shape}: {SPARK}", _unit(shape), SPARK, theirs),
            Row("scan", f"{shape}: txnwatch's source in Spark", _unit(shape), SPARK, ours),
        ]
    return rows


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True)
    return directory


def _create(bootstrap: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30.0)
    return topic


def _large(bootstrap: str, megabytes: int, *, batch: int, codec: str) -> tuple[str, int]:
    """Records of which half can be compressed away; the topic and how many they are."""
    topic = _create(bootstrap, f"large-{batch}-{codec}-{megabytes}")
    settings = {"bootstrap.servers": bootstrap, "batch.size": batch, "linger.ms": 100, "compression.type": codec}
    producer = Producer({**settings, "queue.buffering.max.kbytes": 1 << 20, "enable.idempotence": True})
    length = min(10_000, batch // 4)
    values = [os.urandom(length // 2) + bytes(length - length // 2) for _ in range(VALUES)]
    records = megabytes * 1_000_000 // length
    for number in range(records):
        _produce(producer, topic, values[number % VALUES], number * PARTITIONS // records)
    producer.flush()
    return topic, records


def _small(bootstrap: str, batches: int) -> tuple[str, int]:
    topic = _create(bootstrap, f"small-{batches}")
    settings = {"bootstrap.servers": bootstrap, "batch.num.messages": 1, "linger.ms": 0}
    producer = Producer({**settings, "transactional.id": topic})
    producer.init_transactions()
    for first in range(0, batches, 20_000):
        producer.begin_transaction()
        for number in range(first, min(batches, first + 20_000)):
            _produce(producer, topic, b"x" * 20, number % PARTITIONS)
        producer.commit_transaction()
    return topic, batches


def _produce(producer: Producer, topic: str, value: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=partition)
        except BufferError:
            producer.poll(0.05)
        else:
            return
