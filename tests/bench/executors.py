"""From one executor to two, and from one state partition to two: the same micro-batches.

A standalone cluster of Spark: a master and workers, each a process with a directory of its own and one core. RPC and
blocks are encrypted, as by default. The state partitions are compared in one JVM with two cores, where a state
partition is a task. The facts come from the synthetic source of tests/support/synthetic_source.py. The driver needs a
core as well, so two executors on a machine of two cores show less than on one of three.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.operators import Measured, measure
from bench.results import Point, Row
from support.spark_cluster import SECRET, SparkCluster
from support.synthetic_source import a_session

CHANGING = (500, 5_000, 50_000)
HOST = "127.0.0.1"


class Setup(NamedTuple):
    """One row; `workers` of a cluster, none for one JVM with two cores; `tasks` of the source."""

    name: str
    beside: str
    workers: int
    state_partitions: int
    tasks: int


SETUPS = (
    Setup("1 executor", "one executor", 1, 2, 1),
    Setup("2 executors", "one executor", 2, 2, 2),
    Setup("two cores, 1 state partition", "one state partition", 0, 1, 1),
    Setup("two cores, 2 state partitions", "one state partition", 0, 2, 1),
)


def run(directory: Path, rows: list[Row]) -> None:
    """Each setup in a process of its own, because a JVM has one session; a pair is compared with its first."""
    firsts: dict[str, list[Measured]] = {}
    for number, setup in enumerate(SETUPS):
        with _master(setup, directory / f"cluster-{number}") as master:
            asked = [sys.executable, "-m", "bench.executors", str(number), str(directory / str(number)), master]
            done = subprocess.run(asked, stdout=subprocess.PIPE, check=True, text=True)
        found = [Measured(*figures) for figures in json.loads(done.stdout.splitlines()[-1])]
        first = firsts.setdefault(setup.beside, found)
        points = [
            Point(of.size, of.total_s, of.cpu_s, of.add_s / beside.add_s, {"s of source, state and sink": of.add_s})
            for of, beside in zip(found, first, strict=True)
        ]
        rows.append(Row("executors", setup.name, "producers that change", setup.beside, points))


@contextmanager
def _master(setup: Setup, directory: Path) -> Iterator[str]:
    if setup.workers == 0:
        yield "local[2]"
        return
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])  # executors have directories of their own
    with SparkCluster(directory, setup.workers, host=HOST) as cluster:
        yield cluster.master


def main(setup: Setup, directory: Path, master: str) -> None:
    """One setup, in this process."""
    session = session_on(master, directory, setup.state_partitions)

    def measured(changing: int) -> Measured:
        # The executors of a cluster are descendants of the parent of this process.
        return measure(session, directory, changing, tasks=setup.tasks, root=os.getppid())

    measured(CHANGING[0])  # so that the JVMs are warm
    found = [measured(changing) for changing in CHANGING]
    session.stop()
    print(json.dumps(found))


def session_on(master: str, directory: Path, state_partitions: int) -> Any:
    """A session on a SparkCluster, with files in a new directory."""
    # An operator has these in spark-defaults.conf.
    conf = (f"spark.authenticate.secret={SECRET}", f"spark.driver.host={HOST}")
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join([*(f"--conf {one}" for one in conf), "pyspark-shell"])
    directory.mkdir(parents=True)
    return a_session(directory, master, state_partitions=state_partitions)


if __name__ == "__main__":
    main(SETUPS[int(sys.argv[1])], Path(sys.argv[2]), sys.argv[3])
