"""A Kafka log that one executor of a standalone Spark cluster reads, and that two of them read.

All records have a batch of their own, so the walk in Python takes most of the time, and not the broker. Master,
workers, driver and broker share the machine: on two cores the two executors do not have a core each.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.executors import HOST
from bench.results import Point, Row
from bench.scan import ONE_RECORD, ROUNDS, small_batches
from bench.scan_ways import spark_source
from support.spark_cluster import SECRET, SparkCluster
from support.synthetic_source import a_session
from txnwatch_demo.embedded.kafka import EmbeddedKafka

BESIDE = "one executor"


def run(directory: Path, rows: list[Row]) -> None:
    """Each number of workers with a driver of its own, because a JVM has one session."""
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])  # executors have directories of their own
    with EmbeddedKafka(directory / "kafka", heap="1g") as kafka:
        kafka.start()
        topics = [small_batches(kafka.bootstrap_servers, size)[0] for size in ONE_RECORD]
        found = [_read(kafka.bootstrap_servers, topics, directory / f"cluster-{count}", count) for count in (1, 2)]
    for count, seconds in enumerate(found, 1):
        points = [
            Point(size, wall_s, ratio=wall_s / beside_s, figures={"batches/s": size / wall_s})
            for size, wall_s, beside_s in zip(ONE_RECORD, seconds, found[0], strict=True)
        ]
        rows.append(Row("workers", f"{count} executor{'s' * (count > 1)}", "batches of one record", BESIDE, points))


def _read(bootstrap: str, topics: Sequence[str], directory: Path, workers: int) -> list[float]:
    """The median seconds of each topic."""
    with SparkCluster(directory, workers, host=HOST) as cluster:
        asked = [sys.executable, "-m", "bench.workers", bootstrap, cluster.master, str(workers), *topics]
        done = subprocess.run(asked, cwd=directory, stdout=subprocess.PIPE, check=True, text=True)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(bootstrap: str, master: str, tasks: str, *topics: str) -> None:
    """Reads the topics in this process; the first reading of each does not count."""
    # An operator has these in spark-defaults.conf.
    conf = (f"spark.authenticate.secret={SECRET}", f"spark.driver.host={HOST}")
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join([*(f"--conf {one}" for one in conf), "pyspark-shell"])
    directory = Path("driver").absolute()
    directory.mkdir()
    session = a_session(directory, master, state_partitions=1)
    options = {"kafka.bootstrap.servers": bootstrap, "startingOffsets": "earliest", "inputPartitions": tasks}
    found: list[float] = []
    for topic in topics:
        read = [
            spark_source(session, "kafka-transactions", {**options, "subscribe": topic}).wall_s
            for _ in range(1 + ROUNDS)
        ]
        found.append(statistics.median(read[1:]))
    session.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
