"""From a hang to its event on the topic, and what a micro-batch costs, idle and under the demo's load.

Each hang is a late write after an abort (tests/support/kafka_faults.py) on a partition of its own, at a random moment;
the clock runs from the broker's acknowledgement of the write to the moment a consumer has the `opened` event. A
micro-batch is timed from outside: from its offset file to its commit file. Then the same without load on another
broker, while more and more healthy transactions are open. Idle is measured for a minute, which contains one census of
the scanned partitions, and before the first hang.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.following import follow_incidents
from bench.results import Point, Row
from bench.usage import usage_of
from support.fast_producers import FastProducers
from support.fast_writer import TIMEOUT_MS
from support.kafka_faults import late_write_after_abort
from support.raw_producer import RawProducer
from support.watch import RunningWatch
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security
from txnwatch_demo.embedded.applications import exactly_once_copier, idempotent_writer, transactional_writer
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

HANGS = 30
WARM_UP_S, IDLE_S = 60.0, 30.0
SETTLING = 5  # batches after the load has ended
TRIGGERS_MS = (500, 250)
OPEN, OPEN_ON, TRIED = (100, 1_000, 10_000, 100_000), 16, 10
MEASURED_S, SETTLED_S = 60.0, 20.0


def run(directory: Path, rows: list[Row]) -> None:
    """A watch for each trigger on one broker, and one more on another broker."""
    with EmbeddedKafka(directory / "kafka") as kafka:
        kafka.start()
        set_verification(kafka.bootstrap_servers, [1], enabled=False)
        for trigger_ms in TRIGGERS_MS:
            point = _loaded(kafka, directory / f"checkpoint-{trigger_ms}", trigger_ms)
            rows.append(Row("latency", f"the demo's load, trigger {trigger_ms} ms", "hangs", points=[point]))
    # Another broker: while a hang is open, no barrier is skipped.
    with EmbeddedKafka(directory / "kafka-open", heap="2g") as kafka:
        kafka.start()
        set_verification(kafka.bootstrap_servers, [1], enabled=False)
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
        state = Path(watch.state)
        known = max(durations(state))
        with usage_of(watch.pid) as usage:
            latencies = [one_hang(cluster, TopicPartition(topic, number), arrivals) for number in range(HANGS)]
        loaded = durations(state)
        stack.close()
        time.sleep(IDLE_S)
        idle = {number: took for number, took in durations(state).items() if number > max(loaded) + SETTLING}
    cluster.close()
    figures = {
        "99 % within s": highest(latencies),
        "micro-batch s": statistics.median(loaded.values()),
        "micro-batch, 99 %, s": highest(loaded.values()),
        "idle micro-batch s": statistics.median(idle.values()),
        "CPU s a micro-batch": usage.cpu_s / (max(loaded) - known),
        "cores": usage.cores,
        "ready s": ready_s,
    }
    return Point(HANGS, statistics.median(latencies), figures=figures)


def _among_open(kafka: EmbeddedKafka, checkpoint: Path) -> Row:
    """A watch without load; what is open is healthy, and was begun by clients that live.

    Transactions are opened in steps, and each step is measured idle before there is any hang. Then hangs are made at
    the largest size, the last step is committed, and so on down to none.
    """
    bootstrap, port = kafka.bootstrap_servers, int(kafka.bootstrap_servers.rpartition(":")[2])
    for size in OPEN:
        create_topic(bootstrap, _step(size), OPEN_ON)
    create_topic(bootstrap, "hung", TRIED * (len(OPEN) + 1))
    hung = (TopicPartition("hung", number) for number in itertools.count())
    idle: list[Idle] = []
    reported_s: list[float] = []
    steps: list[tuple[FastProducers, range]] = []
    with (
        closing(Cluster([Endpoint.parse(bootstrap)], Security())) as cluster,
        RunningWatch(bootstrap, checkpoint) as watch,
    ):
        cluster.refresh()
        RawProducer(cluster, "somebody").init()  # the coordinators' log exists from here on
        watch.until_ready()
        arrivals = follow_arrivals(bootstrap)
        time.sleep(2 * WARM_UP_S)
        idle.append(_idle(watch))
        for made, size in itertools.pairwise((0, *OPEN)):
            begin = time.monotonic()
            numbers = range(size - made)
            producers = FastProducers(port, _step(size), [(number % OPEN_ON,) for number in numbers], TIMEOUT_MS)
            producers.begin(numbers)
            steps.append((producers, numbers))
            print(f"  {size:,} are open; the last step took {time.monotonic() - begin:.0f} s", flush=True)
            time.sleep(SETTLED_S)
            idle.append(_idle(watch))
            print(f"  {idle[-1]}", flush=True)
        while True:
            reported_s.insert(0, statistics.median(one_hang(cluster, next(hung), arrivals) for _ in range(TRIED)))
            if not steps:
                break
            producers, numbers = steps.pop()
            producers.commit(numbers)
            producers.close()
            time.sleep(SETTLED_S)
    points = [
        Point(size, took_s, ratio=took_s / reported_s[0] if size else None, figures=of.figures(idle[0]))
        for size, took_s, of in zip((0, *OPEN), reported_s, idle, strict=True)
    ]
    return Row("latency", "nothing else is written", "open transactions", "none open", points)


def _step(size: int) -> str:
    return f"open-{size}"


class Idle(NamedTuple):
    """A minute without writes: all processes of the watch, and the median micro-batch."""

    cores: float
    batch_s: float
    batch_cpu_s: float

    def figures(self, none: Idle) -> dict[str, float]:
        """The figures of a size, beside those without any open transaction."""
        return {
            "idle cores": self.cores,
            "idle cores, x none open": self.cores / none.cores,
            "idle micro-batch s": self.batch_s,
            "idle micro-batch, x none open": self.batch_s / none.batch_s,
            "CPU s an idle micro-batch": self.batch_cpu_s,
        }


def _idle(watch: RunningWatch) -> Idle:
    state = Path(watch.state)
    known = max(durations(state))
    with usage_of(watch.pid) as usage:
        time.sleep(MEASURED_S)
    found = {number: took for number, took in durations(state).items() if number > known}
    return Idle(usage.cores, statistics.median(found.values()), usage.cpu_s / (max(found) - known))


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


def durations(state: Path) -> dict[int, float]:
    """Seconds of each of the last micro-batches, as many as Spark keeps."""
    return {
        int(entry.name): entry.stat().st_mtime - (state / "offsets" / entry.name).stat().st_mtime
        for entry in (state / "commits").iterdir()
        if entry.name.isdigit() and (state / "offsets" / entry.name).exists()
    }


def highest(seconds: Iterable[float]) -> float:
    found = sorted(seconds)
    return found[min(len(found) - 1, int(len(found) * 0.99))]
