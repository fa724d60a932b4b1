"""From a hang to its event on the topic, and what a micro-batch costs, idle and under the demo's load.

Each hang is a late write after an abort (embedded/faults.py) on a partition of its own, at a random moment; the clock
runs from the broker's acknowledgement of the write to the moment a consumer has the `opened` event. A micro-batch
is timed from outside: from its offset file to its commit file. Then the same without load, while more and more healthy
transactions are open.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.following import follow_incidents
from bench.idle import cpu_seconds
from bench.results import Point, Row
from support.kafka_faults import late_write_after_abort
from support.raw_producer import RawProducer
from support.watch import RunningWatch
from txnwatch.state.model.ids import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.endpoint import Endpoint
from txnwatch.streaming.client.security import Security
from txnwatch_demo.embedded.applications import exactly_once_copier, idempotent_writer, transactional_writer
from txnwatch_demo.embedded.kafka import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

HANGS = 30
WARM_UP_S, IDLE_S = 60.0, 30.0
SETTLING = 5  # batches after the load has ended
THREADS = 6
TRIGGERS_MS = (500, 250)
OPEN, OPEN_ON, TRIED, OPEN_FOR_MS = (100, 1_000, 10_000), 16, 10, 900_000


def run(directory: Path, rows: list[Row]) -> None:
    """One broker, one watch for each trigger, and one more."""
    with EmbeddedKafka(directory / "kafka") as kafka:
        kafka.start()
        set_verification(kafka.bootstrap_servers, [1], enabled=False)
        for trigger_ms in TRIGGERS_MS:
            point = _loaded(kafka, directory / f"checkpoint-{trigger_ms}", trigger_ms)
            rows.append(Row("latency", f"the demo's load, trigger {trigger_ms} ms", "hangs", points=[point]))
        rows.append(_among_open(kafka, directory / "checkpoint-open"))


def _loaded(kafka: EmbeddedKafka, checkpoint: Path, trigger_ms: int) -> Point:
    bootstrap, topic = kafka.bootstrap_servers, f"bench-{trigger_ms}"
    create_topic(bootstrap, topic, HANGS)
    cluster = Cluster([Endpoint.parse(bootstrap)], Security())
    cluster.refresh()
    begin = time.monotonic()
    with RunningWatch(bootstrap, checkpoint, "--trigger-ms", str(trigger_ms)) as watch, ExitStack() as stack:
        watch.until_ready()
        ready_s = time.monotonic() - begin
        arrivals = follow_arrivals(bootstrap)
        _load(bootstrap, topic, stack)
        time.sleep(WARM_UP_S)
        known, before, since = max(durations(checkpoint)), sum(cpu_seconds(watch.pid).values()), time.monotonic()
        latencies = [one_hang(cluster, TopicPartition(topic, number), arrivals) for number in range(HANGS)]
        loaded = durations(checkpoint)
        cpu_s, took_s = sum(cpu_seconds(watch.pid).values()) - before, time.monotonic() - since
        stack.close()
        time.sleep(IDLE_S)
        idle = {number: took for number, took in durations(checkpoint).items() if number > max(loaded) + SETTLING}
    cluster.close()
    figures = {
        "99 % within s": highest(latencies),
        "micro-batch s": statistics.median(loaded.values()),
        "micro-batch, 99 %, s": highest(loaded.values()),
        "idle micro-batch s": statistics.median(idle.values()),
        "CPU s a micro-batch": cpu_s / (max(loaded) - known),
        "cores": cpu_s / took_s,
        "ready s": ready_s,
    }
    return Point(HANGS, statistics.median(latencies), figures=figures)


def _among_open(kafka: EmbeddedKafka, checkpoint: Path) -> Row:
    """A watch without load; what is open is healthy, and was begun by clients that live."""
    bootstrap, row = (
        kafka.bootstrap_servers,
        Row("latency", "nothing else is written", "open transactions", "none open"),
    )
    create_topic(bootstrap, "healthy", OPEN_ON)
    create_topic(bootstrap, "hung", TRIED * (len(OPEN) + 1))
    hung = (TopicPartition("hung", number) for number in itertools.count())
    with (
        closing(Cluster([Endpoint.parse(bootstrap)], Security())) as cluster,
        RunningWatch(bootstrap, checkpoint) as watch,
    ):
        cluster.refresh()
        watch.until_ready()
        arrivals = follow_arrivals(bootstrap)
        time.sleep(WARM_UP_S / 2)
        made, none, none_cpu_s = 0, 0.0, 0.0
        for size in (0, *OPEN):
            open_transactions(bootstrap, "healthy", OPEN_ON, made, size)
            made = size
            time.sleep(IDLE_S / 3)
            before, since = sum(cpu_seconds(watch.pid).values()), time.monotonic()
            time.sleep(IDLE_S)
            cpu_s = (sum(cpu_seconds(watch.pid).values()) - before) / (time.monotonic() - since)
            reported_s = statistics.median(one_hang(cluster, next(hung), arrivals) for _ in range(TRIED))
            if size == 0:
                none, none_cpu_s = reported_s, cpu_s
                continue
            figures = {"idle cores": cpu_s, "idle cores, x none open": cpu_s / none_cpu_s}
            row.points.append(Point(size, reported_s, ratio=reported_s / none, figures=figures))
    return row


def open_transactions(bootstrap: str, topic: str, partitions: int, first: int, end: int) -> list[RawProducer]:
    """Begins transactions `first` to `end` with one batch each; they stay open for longer than a benchmark takes."""

    def some(thread: int) -> dict[int, RawProducer]:
        made = {}
        with closing(Cluster([Endpoint.parse(bootstrap)], Security())) as cluster:
            cluster.refresh()
            for number in range(first + thread, end, THREADS):
                made[number] = RawProducer(cluster, f"{topic}-{number}", OPEN_FOR_MS).init()
                partition = TopicPartition(topic, number % partitions)
                made[number].add(partition)
                made[number].produce(partition)
        return made

    with ThreadPoolExecutor(THREADS) as pool:
        made = {
            number: producer for some_made in pool.map(some, range(THREADS)) for number, producer in some_made.items()
        }
    return [made[number] for number in range(first, end)]


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30.0)


def follow_arrivals(bootstrap: str) -> dict[tuple[str | None, int | None], float]:
    arrivals: dict[tuple[str | None, int | None], float] = {}

    follow_incidents(bootstrap, lambda event: arrivals.setdefault((event.topic, event.partition), time.monotonic()))
    return arrivals


def _load(bootstrap: str, topic: str, stack: ExitStack) -> None:
    copies = f"{topic}-copies"
    create_topic(bootstrap, copies, 3)
    applications = [
        transactional_writer(bootstrap, f"{topic}-1", copies, seed=1),
        transactional_writer(bootstrap, f"{topic}-2", copies, seed=2, abort_every=3),
        transactional_writer(bootstrap, f"{topic}-3", copies, seed=3, pause_s=1.0),
        exactly_once_copier(bootstrap, f"{topic}-4", copies, f"{topic}-sink"),
        idempotent_writer(bootstrap, f"{topic}-5", copies),
    ]
    for application in applications:
        stack.callback(application.start().stop)


def one_hang(
    cluster: Cluster, partition: TopicPartition, arrivals: dict[tuple[str | None, int | None], float]
) -> float:
    time.sleep(random.uniform(0.5, 1.5))
    late_write_after_abort(cluster, f"zombie-{partition}", partition)
    begin = time.monotonic()
    while partition not in arrivals:
        assert time.monotonic() < begin + 60.0, f"no event about {partition}"
        time.sleep(0.002)
    return arrivals[partition] - begin


def durations(checkpoint: Path) -> dict[int, float]:
    """Seconds of each of the last micro-batches, as many as Spark keeps."""
    return {
        int(entry.name): entry.stat().st_mtime - (checkpoint / "offsets" / entry.name).stat().st_mtime
        for entry in (checkpoint / "commits").iterdir()
        if entry.name.isdigit() and (checkpoint / "offsets" / entry.name).exists()
    }


def highest(seconds: Iterable[float]) -> float:
    found = sorted(seconds)
    return found[min(len(found) - 1, int(len(found) * 0.99))]
