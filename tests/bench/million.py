"""A `__transaction_state` of many ids and the whole job: from the start of the process to the first verdict.

One broker. The ids' records are written to its log one record a batch, as a coordinator writes them; 1 % of the first
million are Ongoing. A hang is there before the watch starts. Memory is the largest sum over all processes of the watch
that was seen, a look every half second. `BENCH_MILLION_MAX=10000000` adds ten million ids, which take minutes to write
and two gigabytes of disk.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.following import follow_incidents
from bench.idle import cpu_seconds, pss_bytes
from bench.results import Point, Row
from support.kafka_faults import late_write_after_abort
from support.transaction_log import a_key, a_value
from support.watch import RunningWatch
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition, coordinator_partition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security
from txnwatch.streaming.wire.internal_topics import TransactionLogValue
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

LARGEST = int(os.environ.get("BENCH_MILLION_MAX", "1000000"))
SIZES = tuple(size for size in (10_000, 100_000, 1_000_000, 10_000_000) if size <= LARGEST)
LIVE_EVERY, LIVE_BELOW = 100, 1_000_000
IN_TIME_S, LOOK_S, WRITTEN_S = 600.0, 0.5, 600.0
_FIRST_ID, _NUMBER = 10**12, "#" * 16
_PLACE = _FIRST_ID + 0x1234567


def run(directory: Path, rows: list[Row]) -> None:
    """One broker whose log grows; a new watch for each size."""
    row = Row("million", "start to first verdict", "transactional ids", "the smallest")
    with EmbeddedKafka(directory / "kafka", heap="1g") as kafka:
        kafka.start()
        set_verification(kafka.bootstrap_servers, [1], enabled=False)
        with closing(Cluster([Endpoint.parse(kafka.bootstrap_servers)], Security())) as cluster:
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
            admin.create_topics([NewTopic("hung", len(SIZES), 1)])["hung"].result(30.0)
            cluster.refresh()
            written = 0
            for number, size in enumerate(SIZES):
                late_write_after_abort(cluster, f"zombie-{size}", TopicPartition("hung", number))
                write_ids(kafka.bootstrap_servers, cluster, written, size)
                written = size
                row.points.append(_measure(kafka.bootstrap_servers, directory, size, number, row))
    rows.append(row)


def write_ids(bootstrap: str, cluster: Cluster, first: int, end: int) -> None:
    """Writes records of ids to the coordinators' log: those of the encoders, with other names and producer ids."""
    idle = TransactionLogValue(
        1, _PLACE, 0, 900_000, TransactionState.EMPTY, None, time.time_ns() // 10**6, None, _PLACE
    )
    live = replace(idle, state=TransactionState.ONGOING, partitions=(("hung", (0,)),), start_ms=idle.last_update_ms)
    key = a_key(f"app-{_NUMBER}")
    values = [a_value(idle), a_value(live)]
    place, name = _PLACE.to_bytes(8, "big"), _NUMBER.encode()
    count = len(cluster.refresh().topics[TRANSACTION_STATE_TOPIC].partitions)
    settings = {"bootstrap.servers": bootstrap, "client.id": "__admin_client", "batch.num.messages": 1, "linger.ms": 0}
    producer = Producer({**settings, "acks": "1", "queue.buffering.max.messages": 500_000})
    for number in range(first, end):
        value = values[number < LIVE_BELOW and number % LIVE_EVERY == 0].replace(
            place, (_FIRST_ID + number).to_bytes(8, "big")
        )
        while True:
            try:
                producer.produce(
                    TRANSACTION_STATE_TOPIC,
                    value,
                    key.replace(name, b"%016d" % number),
                    coordinator_partition(f"app-{number:016d}", count),
                )
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(WRITTEN_S) == 0


def _measure(bootstrap: str, directory: Path, size: int, number: int, row: Row) -> Point:
    arrived = _follow(bootstrap)
    begin = time.monotonic()
    with RunningWatch(bootstrap, directory / f"checkpoint-{size}") as watch:
        peak = _peak(watch.pid)
        watch.until_ready()
        ready_s = time.monotonic() - begin
        while number not in arrived:
            assert time.monotonic() < begin + IN_TIME_S, "the hang was not published"
            time.sleep(0.01)
        verdict_s = arrived[number] - begin
        cpu_s = sum(cpu_seconds(watch.pid).values())
        time.sleep(5.0)
        figures = {"ready s": ready_s, "peak PSS MB": max(peak) / 1e6}
    ratio = verdict_s / (row.points[0].wall_s or verdict_s) if row.points else 1.0
    return Point(size, verdict_s, cpu_s, ratio, figures)


def _peak(pid: int) -> list[int]:
    seen: list[int] = [0]

    def look() -> None:
        while found := sum(pss_bytes(pid).values()):
            seen.append(found)
            time.sleep(LOOK_S)

    threading.Thread(target=look, daemon=True).start()
    return seen


def _follow(bootstrap: str) -> dict[int | None, float]:
    """The time of the first event about the hang on each partition, from now on."""
    arrived: dict[int | None, float] = {}
    since_ms = time.time_ns() // 10**6

    def take(event: IncidentEvent) -> None:
        if event.topic == "hung" and event.time_ms >= since_ms:
            arrived.setdefault(event.partition, time.monotonic())

    follow_incidents(bootstrap, take)
    return arrived
