"""From a hang to its event on the topic, while other producers all write each second.

The producers have open transactions. A process of its own writes one batch of each producer after the other, once a
second. It writes to the same broker on the same cores, so the measured latency contains the work of the broker and of
this writer. With the default trigger about half of the producers change in a micro-batch; with a trigger of a second
about all of them do.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from bench.fast_writer import writing
from bench.idle import cpu_seconds
from bench.latency import create_topic, durations, follow_arrivals, highest, one_hang, open_transactions
from bench.results import Point, Row
from support.watch import RunningWatch
from txnwatch.state.model.ids import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.endpoint import Endpoint
from txnwatch.streaming.client.security import Security
from txnwatch_demo.embedded.kafka import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

SIZES, PARTITIONS, HANGS = (100, 1_000, 10_000), 100, 15
WARM_UP_S = 20.0
ROWS = {500: "all producers write all the time", 1_000: "all producers write in about every micro-batch"}


def run(directory: Path, rows: list[Row]) -> None:
    """For each trigger a broker and a watch; sizes are the producers that write."""
    for trigger_ms, name in ROWS.items():
        title = f"{name}, trigger {trigger_ms} ms"
        row = Row("changing", title, "producers that write each second", "none write")
        with EmbeddedKafka(directory / f"kafka-{trigger_ms}") as kafka:
            kafka.start()
            _measure(kafka.bootstrap_servers, directory / f"checkpoint-{trigger_ms}", trigger_ms, row)
        rows.append(row)


def _measure(bootstrap: str, checkpoint: Path, trigger_ms: int, row: Row) -> None:
    set_verification(bootstrap, [1], enabled=False)
    for size in SIZES:
        create_topic(bootstrap, f"changing-{size}", PARTITIONS)
    create_topic(bootstrap, "hung", HANGS * (len(SIZES) + 1))
    hung = (TopicPartition("hung", number) for number in itertools.count())
    with (
        closing(Cluster([Endpoint.parse(bootstrap)], Security())) as cluster,
        RunningWatch(bootstrap, checkpoint, "--trigger-ms", str(trigger_ms)) as watch,
    ):
        cluster.refresh()
        watch.until_ready()
        arrivals = follow_arrivals(bootstrap)

        def some_hangs() -> list[float]:
            return [one_hang(cluster, next(hung), arrivals) for _ in range(HANGS)]

        time.sleep(WARM_UP_S)
        none_s = statistics.median(some_hangs())
        for size in SIZES:
            row.points.append(_while_writing(bootstrap, watch, size, some_hangs, none_s))
            print(f"  {row.points[-1]}", flush=True)


def _while_writing(
    bootstrap: str, watch: RunningWatch, size: int, some_hangs: Callable[[], list[float]], none_s: float
) -> Point:
    topic, checkpoint = f"changing-{size}", Path(watch.checkpoint)
    producers = open_transactions(bootstrap, topic, PARTITIONS, 0, size)
    with writing(int(bootstrap.rpartition(":")[2]), topic, PARTITIONS, producers) as written:
        time.sleep(WARM_UP_S)
        known, before, since = max(durations(checkpoint)), written.value, time.monotonic()
        cpu_before = sum(cpu_seconds(watch.pid).values())
        latencies = some_hangs()
        took_s = time.monotonic() - since
        cpu_s = sum(cpu_seconds(watch.pid).values()) - cpu_before
        writes = written.value - before
        batches = {number: s for number, s in durations(checkpoint).items() if number > known}
    median_s = statistics.median(latencies)
    figures = {
        "99 % within s": highest(latencies),
        "micro-batch s": statistics.median(batches.values()),
        "micro-batch, 99 %, s": highest(batches.values()),
        "writes a second": writes / took_s,
        "writes of each producer in a batch": writes / size / len(batches),
        "CPU s a micro-batch": cpu_s / len(batches),
        "cores": cpu_s / took_s,
    }
    return Point(size, median_s, ratio=median_s / none_s, figures=figures)
