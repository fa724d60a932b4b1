"""From a hang to its event on the topic, while other producers all write each second.

The producers have open transactions. A process of its own writes one batch of each producer after the other, once a
second, or as fast as the machine can. It writes to the same broker on the same
cores, so the measured latency contains the work of the broker and of this writer.
"""

from __future__ import annotations

import itertools
import statistics
import time
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


def run(directory: Path, rows: list[Row]) -> None:
    """One broker, one watch; sizes are the producers that write."""
    row = Row("changing", "all producers write all the time", "producers that write each second", "none write")
    with EmbeddedKafka(directory / "kafka") as kafka:
        kafka.start()
        bootstrap = kafka.bootstrap_servers
        set_verification(bootstrap, [1], enabled=False)
        for size in SIZES:
            create_topic(bootstrap, f"changing-{size}", PARTITIONS)
        create_topic(bootstrap, "hung", HANGS * (len(SIZES) + 1))
        hung = (TopicPartition("hung", number) for number in itertools.count())
        with (
            closing(Cluster([Endpoint.parse(bootstrap)], Security())) as cluster,
            RunningWatch(bootstrap, directory / "checkpoint") as watch,
        ):
            cluster.refresh()
            watch.until_ready()
            arrivals = follow_arrivals(bootstrap)
            time.sleep(WARM_UP_S)
            none_s = statistics.median(one_hang(cluster, next(hung), arrivals) for _ in range(HANGS))
            for size in SIZES:
                topic = f"changing-{size}"
                producers = open_transactions(bootstrap, topic, PARTITIONS, 0, size)
                with writing(int(bootstrap.rpartition(":")[2]), topic, PARTITIONS, producers) as written:
                    time.sleep(WARM_UP_S)
                    known, before, since = max(durations(directory / "checkpoint")), written.value, time.monotonic()
                    cpu_before = sum(cpu_seconds(watch.pid).values())
                    latencies = [one_hang(cluster, next(hung), arrivals) for _ in range(HANGS)]
                    took_s = time.monotonic() - since
                    cpu_s = sum(cpu_seconds(watch.pid).values()) - cpu_before
                    writes = written.value - before
                batches = {n: s for n, s in durations(directory / "checkpoint").items() if n > known}
                median_s = statistics.median(latencies)
                figures = {
                    "99 % within s": highest(latencies),
                    "micro-batch s": statistics.median(batches.values()),
                    "micro-batch, 99 %, s": highest(batches.values()),
                    "writes a second": writes / took_s,
                    "writes of each producer in a batch": writes / size / len(batches),
                    "cores": cpu_s / took_s,
                }
                row.points.append(Point(size, median_s, ratio=median_s / none_s, figures=figures))
                print(f"  {row.points[-1]}", flush=True)
    rows.append(row)
