"""What one committed transaction costs a watch: CPU of all its processes.

One broker and one watch with its default flags, and a writer whose producers each commit their transaction and begin
the next one in every round of a second, with a batch on each of three partitions. So each transaction has a producer of
its own and is open at a barrier, which is the dearest case: the fold joins transactions that one producer ends between
two barriers.

While anything is written, a micro-batch runs at every trigger. So the lowest rate, one transaction a second, costs
nearly all that a micro-batch costs, and `CPU s` of a size is the difference to the lowest rate for each transaction
more. Idle, when barriers are skipped, is measured at the end, with a warm JVM.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from bench.idle import cpu_seconds
from bench.latency import create_topic, durations
from bench.results import Point, Row
from support.fast_writer import Load, writing
from support.raw_producer import RawProducer
from support.watch import RunningWatch
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

RATES = tuple(int(rate) for rate in os.environ.get("BENCH_TRANSACTIONS_S", "1,100,1000,4000").split(","))
PARTITIONS, PLACES = 100, 3
WARM_UP_S, SETTLING_S, MEASURED_S = 60.0, 15.0, 40.0


def run(directory: Path, rows: list[Row]) -> None:
    """Sizes are the transactions that the writer was asked for in a second."""
    drawn = ("CPU ms a transaction, beyond idle",)
    row = Row("transactions", "cost of one transaction", "transactions a second", drawn=drawn)
    with EmbeddedKafka(directory / "kafka", heap="1g") as kafka:
        kafka.start()
        bootstrap = kafka.bootstrap_servers
        for rate in RATES:
            create_topic(bootstrap, f"rate-{rate}", PARTITIONS)
        with closing(Cluster([Endpoint.parse(bootstrap)], Security())) as cluster:
            cluster.refresh()
            RawProducer(cluster, "somebody").init()  # the coordinators' log exists from here on
        with RunningWatch(bootstrap, directory / "checkpoint") as watch:
            watch.until_ready()
            time.sleep(WARM_UP_S)
            row.points = [_at(kafka, watch, rate) for rate in RATES]
            time.sleep(SETTLING_S)
            idle = sum(_cores(watch.pid).values())
    row.points = [_beside(point, row.points[0], idle) for point in row.points]
    rows.append(row)


def _at(kafka: EmbeddedKafka, watch: RunningWatch, rate: int) -> Point:
    port = int(kafka.bootstrap_servers.rpartition(":")[2])
    places = tuple(tuple((number * PLACES + step) % PARTITIONS for step in range(PLACES)) for number in range(rate))
    with writing(Load(port, f"rate-{rate}", places, rate, commits=True)) as written:
        time.sleep(SETTLING_S)
        known, count, since = max(durations(Path(watch.state))), written.value, time.monotonic()
        cores = _cores(watch.pid)
        took_s = time.monotonic() - since
        a_second = (written.value - count) / took_s
        batches_s = (max(durations(Path(watch.state))) - known) / took_s
    figures = {
        "transactions a second": a_second,
        "micro-batches a second": batches_s,
        "CPU s a micro-batch": sum(cores.values()) / batches_s,
        "cores": sum(cores.values()),
        **{f"cores of {name}": of for name, of in sorted(cores.items())},
    }
    point = Point(rate, figures=figures)
    print(f"  {point}", flush=True)
    return point


def _beside(point: Point, lowest: Point, idle: float) -> Point:
    """The point with what one transaction costs."""
    mine, its = point.figures, lowest.figures
    more = mine["transactions a second"] - its["transactions a second"]
    figures = {
        **mine,
        "cores idle": idle,
        "CPU ms a transaction, beyond idle": 1e3 * (mine["cores"] - idle) / mine["transactions a second"],
    }
    return Point(point.size, None, (mine["cores"] - its["cores"]) / more if more > 1 else None, figures=figures)


def _cores(pid: int) -> Counter[str]:
    """The cores that each kind of process of a watch uses."""
    before, since = cpu_seconds(pid), time.monotonic()
    time.sleep(MEASURED_S)
    took_s = time.monotonic() - since
    return Counter({name: (spent - before[name]) / took_s for name, spent in cpu_seconds(pid).items()})
