"""What a watch costs, and when it tells a hang, while more and more bytes are written: three ways to watch.

One broker and two hundred partitions. Four transactional clients write to fifty partitions each and commit once a
second, so only the size of the records differs between two rates. Each hang is a late write on a partition that is
being written to. CPU is that of all processes of the watch. Bytes are those of the answers that it gets, counted by a
gate in front of the broker; the load goes past the gate.
"""

from __future__ import annotations

import multiprocessing
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from confluent_kafka import Producer

from bench.latency import create_topic, follow_arrivals, highest, one_hang
from bench.partitions import WATCH, CountingGate
from bench.results import Point, Row
from bench.usage import usage_of
from support.gate import GatedKafka
from support.kafka_faults import abort_by_hand
from support.raw_producer import RawProducer
from support.watch import RunningWatch
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security
from txnwatch_demo.late_write import set_verification

TOPIC, PARTITIONS, CLIENTS = "written", 200, 4
RATES_MB = (0, 1, 10, 50)
WAYS = {
    "everything is scanned": ("--max-bytes-per-second", "0"),
    "within the budget": (),
    "by census": ("--topics", "nothing"),
}
YARDSTICK = "everything is scanned"
HANGS = 10
SETTLED_S, MEASURED_S, OVER_S = 30.0, 40.0, 8.0
BEYOND = "txnwatch_beyond_budget_partitions"


def run(directory: Path, rows: list[Row]) -> None:
    """A watch for each way on the same broker."""
    numbers = count()
    with CountingGate() as gate, GatedKafka(directory / "kafka", gate, heap="2g") as kafka:
        kafka.start()
        bootstrap = kafka.bootstrap_servers
        set_verification(bootstrap, [1], enabled=False)
        create_topic(bootstrap, TOPIC, PARTITIONS)
        create_topic(bootstrap, "nothing", 1)
        scanned: dict[float, float] = {}
        with closing(Cluster([Endpoint.parse(bootstrap)], Security())) as cluster:
            cluster.refresh()
            RawProducer(cluster, "somebody").init()  # the coordinators' log exists from here on
            arrivals = follow_arrivals(bootstrap)
            for way, flags in WAYS.items():
                row = Row("budget", way, "MB a second", YARDSTICK)
                with RunningWatch(gate.address, directory / way, *flags, "--http-port", "0") as watch:
                    watch.until_ready()
                    for rate in RATES_MB:
                        with _written(bootstrap, rate):
                            figures = _measured(gate, watch)
                            made = [TopicPartition(TOPIC, next(numbers)) for _ in range(HANGS)]
                            latencies = [one_hang(cluster, partition, arrivals) for partition in made]
                        _ended(cluster, made)
                        figures |= {"99 % within s": highest(latencies)}
                        scanned.setdefault(rate, figures["cores"])
                        ratio = None if way == YARDSTICK else figures["cores"] / scanned[rate]
                        row.points.append(Point(rate, statistics.median(latencies), ratio=ratio, figures=figures))
                        print(f"  {way}: {row.points[-1]}", flush=True)
                rows.append(row)


def _measured(gate: CountingGate, watch: RunningWatch) -> dict[str, float]:
    time.sleep(SETTLED_S)
    before = gate.seen(WATCH)
    with usage_of(watch.pid) as usage:
        time.sleep(MEASURED_S)
    now = gate.seen(WATCH)
    return {
        "cores": usage.cores,
        "MB/s received": (now.back - before.back) / usage.took_s / 1e6,
        "requests/s": (now.requests - before.requests) / usage.took_s,
        "partitions beyond the budget": _beyond(watch),
    }


def _beyond(watch: RunningWatch) -> float:
    with urlopen(watch.metrics_url, timeout=10.0) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(BEYOND))


def _ended(cluster: Cluster, partitions: list[TopicPartition]) -> None:
    """Ends the hangs, and waits until the watch has seen it."""
    for partition, reading in ClusterAdmin(cluster).read_partitions(partitions).items():
        for row in reading.producers:
            if row.txn_start_offset is not None:
                abort_by_hand(cluster, partition, row.producer_id)
    time.sleep(OVER_S)


@contextmanager
def _written(bootstrap: str, rate_mb: int) -> Iterator[None]:
    """Writes while the block runs, in a process of its own."""
    if not rate_mb:
        yield
        return
    context = multiprocessing.get_context("spawn")
    is_over = context.Event()
    process = context.Process(target=_write, args=(bootstrap, rate_mb * 1_000_000 // PARTITIONS, is_over), daemon=True)
    process.start()
    try:
        yield
        assert process.is_alive(), "the writer failed"
    finally:
        is_over.set()
        process.join(60.0)


def _write(bootstrap: str, size: int, is_over: Any) -> None:
    threads = [threading.Thread(target=_client, args=(bootstrap, number, size, is_over)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _client(bootstrap: str, number: int, size: int, is_over: Any) -> None:
    """One record a second for each of its partitions, in one transaction."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"writer-{number}", "linger.ms": 5})
    producer.init_transactions(60.0)
    partitions = range(number, PARTITIONS, CLIENTS)
    while not is_over.is_set():
        due = time.monotonic()
        producer.begin_transaction()
        for partition in partitions:
            producer.produce(TOPIC, bytes(size), partition=partition)
            producer.poll(0)
            due += 1.0 / len(partitions)
            time.sleep(max(0.0, due - time.monotonic()))
        producer.commit_transaction(60.0)
