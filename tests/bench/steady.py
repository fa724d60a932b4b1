"""Memory and micro-batches under load, while transactional ids come, and go after four minutes instead of an hour.

One broker. Four clients begin, write and commit transactions, each under a new transactional id five times a second;
one transaction in a hundred is left to its timeout of ten seconds. A bucket of the state removes idle ids when it
writes a snapshot: at the latest after 256 micro-batches that change it. So there are several removals between two
looks, and the slowest micro-batch stands beside the median. The first and the last look end with a full collection of
the JVM, after their memory has been read.
"""

from __future__ import annotations

import itertools
import os
import statistics
import threading
import time
from contextlib import closing
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.idle import cpu_seconds, pss_bytes, pss_of
from bench.jvm_heap import committed_mb, jvm_of, live_mb
from bench.latency import durations
from bench.results import Point, Row
from support.raw_producer import RawProducer
from support.watch import RunningWatch
from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

MINUTES = int(os.environ.get("BENCH_STEADY_MINUTES", "60"))
CLIENTS, PARTITIONS, WARM_UP_MINUTES, EVERY_MINUTES = 4, 12, 5, 5
NEW_ID_S, LEFT_EVERY, TIMEOUT_MS = 0.2, 100, 10_000
RETENTION_MS = 240_000
DRAWN = ("PSS MB", "PSS MB of JVM", "PSS MB of driver", "PSS MB of workers", "JVM heap MB, committed")


def run(directory: Path, rows: list[Row]) -> None:
    """One watch; sizes are minutes after its start."""
    row = Row("steady", "transactional ids come and go", "minutes", "the first look", drawn=DRAWN)
    with EmbeddedKafka(directory / "kafka") as kafka:
        kafka.start()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_topics([NewTopic("steady", PARTITIONS, 1)])["steady"].result(30.0)
        is_over = threading.Event()
        watch = RunningWatch(kafka.bootstrap_servers, directory / "checkpoint")
        at = watch.command.index("txnwatch")
        watch.command[at : at + 1] = ["support.short_retention", str(RETENTION_MS)]
        with watch:
            watch.until_ready()
            begin = time.monotonic()
            made, ids = itertools.count(), itertools.count()
            batches = _Batches(directory / "checkpoint", is_over)
            batches.start()
            clients = [
                threading.Thread(target=_load, args=(kafka.bootstrap_servers, made, ids, is_over), daemon=True)
                for _ in range(CLIENTS)
            ]
            for client in clients:
                client.start()
            minutes = range(WARM_UP_MINUTES, MINUTES + 1, EVERY_MINUTES)
            for minute in minutes:
                time.sleep(max(0.0, begin + minute * 60.0 - time.monotonic()))
                counted = batches.take()
                counted |= {"transactions so far": float(next(made)), "ids so far": float(next(ids))}
                is_end = minute in {minutes[0], minutes[-1]}
                row.points.append(_look(watch.pid, minute, row, counted, collects=is_end))
                print(f"  {row.points[-1]}", flush=True)
            is_over.set()
            for client in clients:
                client.join(30.0)
    rows.append(row)


class _Batches(threading.Thread):
    """The durations of the micro-batches since they were taken last; Spark keeps the last hundred."""

    def __init__(self, checkpoint: Path, is_over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._checkpoint = checkpoint
        self._is_over = is_over
        self._first = max(durations(checkpoint), default=-1) + 1
        self._seen: dict[int, float] = {}

    def run(self) -> None:
        while not self._is_over.wait(10.0):
            self._see()

    def _see(self) -> None:
        found = durations(self._checkpoint).items()
        self._seen.update({number: took_s for number, took_s in found if number >= self._first})

    def take(self) -> dict[str, float]:
        """How many there were, the median and the slowest of them."""
        self._see()
        found, self._seen = self._seen, {}
        self._first = max(found, default=self._first - 1) + 1
        took_s = list(found.values())
        return {
            "micro-batches": float(len(took_s)),
            "median micro-batch s": statistics.median(took_s) if took_s else 0.0,
            "slowest micro-batch s": max(took_s, default=0.0),
        }


def _look(pid: int, minute: int, row: Row, counted: dict[str, float], *, collects: bool) -> Point:
    memory = pss_bytes(pid)
    driver = pss_of(pid)
    memory["python"] -= driver
    total = (sum(memory.values()) + driver) / 1e6
    first = row.points[0].figures["PSS MB"] if row.points else total
    figures = {
        "PSS MB": total,
        "PSS MB of driver": driver / 1e6,
        "PSS MB of JVM": memory.pop("java") / 1e6,
        "PSS MB of workers": sum(memory.values()) / 1e6,
        "JVM heap MB, committed": committed_mb(jvm_of(pid)),
        "CPU s so far": sum(cpu_seconds(pid).values()),
        **counted,
    }
    if collects:
        figures["JVM heap MB, live"] = live_mb(jvm_of(pid))
    return Point(minute, ratio=total / first, figures=figures)


def _load(bootstrap: str, made: itertools.count[int], ids: itertools.count[int], is_over: threading.Event) -> None:
    with closing(Cluster([Endpoint.parse(bootstrap)], Security())) as cluster:
        cluster.refresh()
        for number in ids:
            if is_over.is_set():
                return
            try:
                producer = RawProducer(cluster, f"steady-{number}", TIMEOUT_MS).init()
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
