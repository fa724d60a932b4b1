"""The coordinators' log, read by one executor of a standalone Spark cluster, and by two of them.

Master, workers, driver and broker share the machine: on two cores the two executors do not have a core each.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.executors import HOST, session_on
from bench.million import write_ids
from bench.results import Point, Row
from bench.scan_ways import spark_source
from support.kafka_faults import late_write_after_abort
from support.spark_cluster import SparkCluster
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

SIZES, ROUNDS = (10_000, 100_000, 1_000_000), 3
TOPIC = "hung"


def run(directory: Path, rows: list[Row]) -> None:
    """The log grows from size to size; each cluster has a driver of its own, because a JVM has one session."""
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])  # executors have directories of their own
    found: dict[int, list[Point]] = {1: [], 2: []}
    with EmbeddedKafka(directory / "kafka", heap="1g") as kafka:
        kafka.start()
        set_verification(kafka.bootstrap_servers, [1], enabled=False)
        with closing(Cluster([Endpoint.parse(kafka.bootstrap_servers)], Security())) as cluster:
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
            admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30.0)
            cluster.refresh()
            late_write_after_abort(cluster, "zombie", TopicPartition(TOPIC, 0))
            for written, size in zip((0, *SIZES), SIZES, strict=False):
                write_ids(kafka.bootstrap_servers, cluster, written, size)
                for workers, points in found.items():
                    wall_s = _read(kafka.bootstrap_servers, directory / f"{size}-{workers}", workers)
                    beside_s = found[1][-1].wall_s if workers > 1 else wall_s
                    points.append(Point(size, wall_s, ratio=wall_s / (beside_s or wall_s)))
    rows += [
        Row("workers", f"{workers} executor{'s' * (workers > 1)}", "transactional ids", "one executor", points)
        for workers, points in found.items()
    ]


def _read(bootstrap: str, directory: Path, workers: int) -> float:
    """The median of the seconds."""
    with SparkCluster(directory, workers, host=HOST) as cluster:
        asked = [sys.executable, "-m", "bench.workers", bootstrap, cluster.master, str(workers)]
        done = subprocess.run(asked, cwd=directory, stdout=subprocess.PIPE, check=True, text=True)
    found: float = json.loads(done.stdout.splitlines()[-1])
    return found


def main(bootstrap: str, master: str, tasks: str) -> None:
    """Reads the log in this process; the first reading does not count, because the JVMs are cold."""
    session = session_on(master, Path("driver").absolute(), 1)
    log = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC}
    options = {**log, "startingOffsets": "earliest", "inputPartitions": tasks}
    read = [spark_source(session, "kafka-transactions", options).wall_s for _ in range(1 + ROUNDS)]
    session.stop()
    print(json.dumps(statistics.median(read[1:])))


if __name__ == "__main__":
    main(*sys.argv[1:])
