"""From a hang to its event on the topic, and what a micro-batch costs, idle and under the demo's load.

Each hang is a late write after an abort (embedded/faults.py) on a partition of its own, at a random moment; the clock
runs from the broker's acknowledgement of the write to the moment a consumer has the `opened` event. A micro-batch
is timed from outside: from its offset file to its commit file.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from support.watch import RunningWatch
from txnwatch.clients import librdkafka_config
from txnwatch.config import EVENTS_TOPIC
from txnwatch.connection import options_of
from txnwatch.embedded.applications import exactly_once_copier, idempotent_writer, transactional_writer
from txnwatch.embedded.faults import late_write_after_abort, set_verification
from txnwatch.embedded.kafka import EmbeddedKafka
from txnwatch.sinks.event_log import read_events
from txnwatch.state.errors import SinkError
from txnwatch.state.ids import TopicPartition
from txnwatch.streaming.broker import Endpoint
from txnwatch.streaming.cluster import Cluster
from txnwatch.streaming.security import Security

HANGS = 30
WARM_UP_S, IDLE_S = 60.0, 30.0
SETTLING = 5  # batches after the load has ended
TRIGGERS_MS = (500, 250)


def run(directory: Path) -> None:
    """One broker, one watch for each trigger."""
    with EmbeddedKafka(directory / "kafka") as kafka:
        kafka.start()
        set_verification(kafka.bootstrap_servers, [1], enabled=False)
        for trigger_ms in TRIGGERS_MS:
            _measure(kafka, directory / f"checkpoint-{trigger_ms}", trigger_ms)


def _measure(kafka: EmbeddedKafka, checkpoint: Path, trigger_ms: int) -> None:
    bootstrap, topic = kafka.bootstrap_servers, f"bench-{trigger_ms}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, HANGS, 1)])[topic].result(30.0)
    cluster = Cluster([Endpoint.parse(bootstrap)], Security())
    cluster.refresh()
    begin = time.monotonic()
    with RunningWatch(bootstrap, checkpoint, "--trigger-ms", str(trigger_ms)) as watch, ExitStack() as stack:
        watch.until_ready()
        print(f"trigger {trigger_ms} ms: ready {time.monotonic() - begin:.1f} s after the start of the process")
        arrivals = _follow(bootstrap)
        _load(bootstrap, topic, stack)
        time.sleep(WARM_UP_S)
        latencies = [_one_hang(cluster, TopicPartition(topic, number), arrivals) for number in range(HANGS)]
        loaded = _durations(checkpoint)
        stack.close()
        time.sleep(IDLE_S)
        idle = {number: took for number, took in _durations(checkpoint).items() if number > max(loaded) + SETTLING}
    cluster.close()
    print(f"  hang to event on the topic, {HANGS} hangs: {_spread(latencies)}")
    print(f"  micro-batch under the demo's load: {_spread(loaded.values())}; idle: {_spread(idle.values())}")


def _follow(bootstrap: str) -> dict[tuple[str | None, int | None], float]:
    arrivals: dict[tuple[str | None, int | None], float] = {}

    def follow() -> None:
        for event in read_events(librdkafka_config(options_of(bootstrap, None)), EVENTS_TOPIC, follow=True):
            if not isinstance(event, SinkError):
                arrivals.setdefault((event.topic, event.partition), time.monotonic())

    threading.Thread(target=follow, daemon=True).start()
    return arrivals


def _load(bootstrap: str, topic: str, stack: ExitStack) -> None:
    copies = f"{topic}-copies"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(copies, 3, 1)])[copies].result(30.0)
    applications = [
        transactional_writer(bootstrap, f"{topic}-1", copies, seed=1),
        transactional_writer(bootstrap, f"{topic}-2", copies, seed=2, abort_every=3),
        transactional_writer(bootstrap, f"{topic}-3", copies, seed=3, pause_s=1.0),
        exactly_once_copier(bootstrap, f"{topic}-4", copies, f"{topic}-sink"),
        idempotent_writer(bootstrap, f"{topic}-5", copies),
    ]
    for application in applications:
        stack.callback(application.start().stop)


def _one_hang(
    cluster: Cluster, partition: TopicPartition, arrivals: dict[tuple[str | None, int | None], float]
) -> float:
    time.sleep(random.uniform(0.5, 1.5))
    late_write_after_abort(cluster, f"zombie-{partition}", partition)
    begin = time.monotonic()
    while partition not in arrivals:
        assert time.monotonic() < begin + 60.0, f"no event about {partition}"
        time.sleep(0.002)
    return arrivals[partition] - begin


def _durations(checkpoint: Path) -> dict[int, float]:
    """Seconds of each of the last micro-batches, as many as Spark keeps."""
    return {
        int(entry.name): entry.stat().st_mtime - (checkpoint / "offsets" / entry.name).stat().st_mtime
        for entry in (checkpoint / "commits").iterdir()
        if entry.name.isdigit() and (checkpoint / "offsets" / entry.name).exists()
    }


def _spread(seconds: Iterable[float]) -> str:
    found = sorted(seconds)
    high = found[min(len(found) - 1, int(len(found) * 0.99))]
    return f"p50 {statistics.median(found) * 1000:.0f} ms, p99 {high * 1000:.0f} ms"
