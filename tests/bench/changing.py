"""From a hang to its event on the topic, while other producers all write each second.

A process of its own writes to the same broker on the same cores, so the latency contains the work of the broker and of
this writer. Two rows append one batch a second to each of many open transactions: there are no markers and no
records of coordinators. With the default trigger about half of the producers change in a micro-batch; with a trigger
of a second about all of them do. In the third row each producer commits its transaction and begins the next one in
every round: a batch, a marker and three records of a coordinator for each. The broker needs longer than a second for
such a round of ten thousand; then the next round begins at once.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from bench.latency import create_topic, durations, follow_arrivals, highest, one_hang
from bench.results import Point, Row
from bench.usage import usage_of
from support.fast_writer import Load, writing
from support.watch import RunningWatch
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

SIZES, PARTITIONS, HANGS = (100, 1_000, 10_000), 100, 15
WARM_UP_S, QUIET_S = 20.0, 10.0


class Kind(NamedTuple):
    """One row: how the producers write, and the trigger of the watch."""

    name: str
    trigger_ms: int
    commits: bool


KINDS = (
    Kind("a batch of each open transaction every second", 500, commits=False),
    Kind("a batch of each open transaction in about every micro-batch", 1_000, commits=False),
    Kind("each transaction ends and the next one begins in every round", 500, commits=True),
)


def run(directory: Path, rows: list[Row]) -> None:
    """For each kind a broker and a watch; sizes are the producers that write."""
    for number, kind in enumerate(KINDS):
        title = f"{kind.name}, trigger {kind.trigger_ms} ms"
        row = Row("changing", title, "producers that write", "none write")
        with EmbeddedKafka(directory / f"kafka-{number}", heap="1g") as kafka:
            kafka.start()
            _measure(kafka, directory / f"checkpoint-{number}", kind, row)
        rows.append(row)


def _measure(kafka: EmbeddedKafka, checkpoint: Path, kind: Kind, row: Row) -> None:
    bootstrap = kafka.bootstrap_servers
    set_verification(bootstrap, [1], enabled=False)
    for size in SIZES:
        create_topic(bootstrap, f"changing-{size}", PARTITIONS)
    create_topic(bootstrap, "hung", HANGS * (len(SIZES) + 1))
    hung = (TopicPartition("hung", number) for number in itertools.count())
    with (
        closing(Cluster([Endpoint.parse(bootstrap)], Security())) as cluster,
        RunningWatch(bootstrap, checkpoint, "--trigger-ms", str(kind.trigger_ms)) as watch,
    ):
        cluster.refresh()
        watch.until_ready()
        arrivals = follow_arrivals(bootstrap)

        def some_hangs() -> list[float]:
            return [one_hang(cluster, next(hung), arrivals) for _ in range(HANGS)]

        time.sleep(WARM_UP_S)
        none_s = statistics.median(some_hangs())
        for size in SIZES:
            row.points.append(_while_writing(kafka, watch, kind, size, some_hangs, none_s))
            print(f"  {row.points[-1]}", flush=True)
            time.sleep(QUIET_S)


def _while_writing(
    kafka: EmbeddedKafka,
    watch: RunningWatch,
    kind: Kind,
    size: int,
    some_hangs: Callable[[], list[float]],
    none_s: float,
) -> Point:
    port, checkpoint = int(kafka.bootstrap_servers.rpartition(":")[2]), Path(watch.state)
    places = tuple((number % PARTITIONS,) for number in range(size))
    with writing(Load(port, f"changing-{size}", places, size, kind.commits)) as written:
        time.sleep(WARM_UP_S)
        known, before = max(durations(checkpoint)), written.value
        with usage_of(watch.pid) as usage, usage_of(kafka.broker(1).pid) as of_broker:
            latencies = some_hangs()
        writes = written.value - before
        latest = max(durations(checkpoint))
        batches = {number: s for number, s in durations(checkpoint).items() if number > known}
    median_s, what = statistics.median(latencies), "transactions" if kind.commits else "writes"
    figures = {
        "99 % within s": highest(latencies),
        "micro-batch s": statistics.median(batches.values()),
        "micro-batch, 99 %, s": highest(batches.values()),
        f"{what} a second": writes / usage.took_s,
        f"{what} of each producer in a batch": writes / size / (latest - known),
        "CPU s a micro-batch": usage.cpu_s / (latest - known),
        "cores": usage.cores,
        "cores of the broker": of_broker.cores,
    }
    return Point(size, median_s, ratio=median_s / none_s, figures=figures)
