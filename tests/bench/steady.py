"""Memory and micro-batches of an hour under load, while transactional ids come and go.

One broker. Four clients begin, write and commit transactions, each under a new transactional id every second; one
transaction in a hundred is left to its timeout of ten seconds. All processes are measured every minute. The result has
the first measurement after the warm-up, the last one, and the slowest micro-batch between them.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from contextlib import closing
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.idle import cpu_seconds, pss_bytes
from bench.latency import durations
from bench.results import Point, Row
from support.watch import RunningWatch
from txnwatch.embedded.kafka import EmbeddedKafka
from txnwatch.embedded.raw_producer import RawProducer
from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.ids import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.endpoint import Endpoint
from txnwatch.streaming.client.security import Security

MINUTES = int(os.environ.get("BENCH_STEADY_MINUTES", "60"))
CLIENTS, PARTITIONS, WARM_UP_MINUTES = 4, 12, 5
NEW_ID_S, LEFT_EVERY, TIMEOUT_MS = 1.0, 100, 10_000


def run(directory: Path, rows: list[Row]) -> None:
    """One watch; sizes are minutes after its start."""
    row = Row("steady", "new transactional ids each second", "minutes", "the first look")
    with EmbeddedKafka(directory / "kafka") as kafka:
        kafka.start()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_topics([NewTopic("steady", PARTITIONS, 1)])["steady"].result(30.0)
        is_over = threading.Event()
        with RunningWatch(kafka.bootstrap_servers, directory / "checkpoint") as watch:
            watch.until_ready()
            begin = time.monotonic()
            made = itertools.count()
            slowest = _Slowest(directory / "checkpoint", is_over)
            slowest.start()
            clients = [
                threading.Thread(target=_load, args=(kafka.bootstrap_servers, number, made, is_over), daemon=True)
                for number in range(CLIENTS)
            ]
            for client in clients:
                client.start()
            for minute in range(1, MINUTES + 1):
                time.sleep(max(0.0, begin + minute * 60.0 - time.monotonic()))
                if minute == WARM_UP_MINUTES or (minute > WARM_UP_MINUTES and minute % 5 == 0):
                    row.points.append(_look(watch.pid, minute, row, slowest.take(), next(made)))
                    print(f"  {row.points[-1]}", flush=True)
            is_over.set()
            for client in clients:
                client.join(30.0)
    rows.append(row)


class _Slowest(threading.Thread):
    """The slowest micro-batch since it was asked last; Spark keeps the last hundred. Those before it do not count."""

    def __init__(self, checkpoint: Path, is_over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._checkpoint = checkpoint
        self._is_over = is_over
        self._first = max(durations(checkpoint), default=-1) + 1
        self._seen: dict[int, float] = {}

    def run(self) -> None:
        while not self._is_over.wait(20.0):
            found = durations(self._checkpoint).items()
            self._seen.update({number: took_s for number, took_s in found if number >= self._first})

    def take(self) -> float:
        found, self._seen = self._seen, {}
        return max(found.values(), default=0.0)


def _look(pid: int, minute: int, row: Row, slowest_s: float, ids: int) -> Point:
    memory = pss_bytes(pid)
    total = sum(memory.values()) / 1e6
    first = row.points[0].figures["PSS MB"] if row.points else total
    figures = {
        "PSS MB": total,
        **{f"PSS MB of {name}": size / 1e6 for name, size in sorted(memory.items())},
        "slowest micro-batch s": slowest_s,
        "transactions so far": float(ids),
        "CPU s so far": sum(cpu_seconds(pid).values()),
    }
    return Point(minute, ratio=total / first, figures=figures)


def _load(bootstrap: str, client: int, made: itertools.count[int], is_over: threading.Event) -> None:
    with closing(Cluster([Endpoint.parse(bootstrap)], Security())) as cluster:
        cluster.refresh()
        for number in itertools.count():
            if is_over.is_set():
                return
            try:
                producer = RawProducer(cluster, f"steady-{client}-{number}", TIMEOUT_MS).init()
            except TxnwatchError:
                continue  # the coordinator is busy
            until = time.monotonic() + NEW_ID_S
            while time.monotonic() < until:
                if is_over.is_set():
                    return
                count = next(made)
                partition = TopicPartition("steady", count % PARTITIONS)
                try:
                    producer.add(partition)
                    producer.produce(partition)
                    if count % LEFT_EVERY == 0:
                        break
                    producer.end(commit=True)
                except TxnwatchError:
                    break  # it was fenced, or came too late
                time.sleep(0.05)
