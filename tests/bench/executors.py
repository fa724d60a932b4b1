"""From one executor to two, and from one state partition to two: the same micro-batches.

Spark's `local-cluster` runs the master and the workers of a standalone cluster inside the JVM of the driver; each
executor is a process of its own, with one core here. The state partitions are compared in one JVM with two cores, where
a state partition is a task. The facts come from the synthetic source of tests/support/synthetic_source.py. The driver
needs a core as well, so two executors on a machine of two cores show less than on one of three.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from bench.operators import Measured, measure
from bench.results import Point, Row
from support.synthetic_source import a_session
from txnwatch.state.model.policy import DetectionPolicy
from txnwatch.streaming.job.operator import BucketProcessor

CHANGING, MEMORY_MB = (500, 5_000, 50_000), 1024


class Setup(NamedTuple):
    """One row; `tasks` of the source."""

    name: str
    beside: str
    master: str
    state_partitions: int
    tasks: int


SETUPS = (
    Setup("1 executor", "one executor", f"local-cluster[1,1,{MEMORY_MB}]", 2, 1),
    Setup("2 executors", "one executor", f"local-cluster[2,1,{MEMORY_MB}]", 2, 2),
    Setup("two cores, 1 state partition", "one state partition", "local[2]", 1, 1),
    Setup("two cores, 2 state partitions", "one state partition", "local[2]", 2, 1),
)


def run(directory: Path, rows: list[Row]) -> None:
    """Each setup in a process of its own, because a JVM has one session; a pair is compared with its first."""
    tests = str(Path(__file__).resolve().parents[1])  # executors have a working directory of their own
    firsts: dict[str, list[Measured]] = {}
    for number, setup in enumerate(SETUPS):
        asked = [sys.executable, "-m", "bench.executors", str(number), str(directory / str(number))]
        variables = {**os.environ, "PYTHONPATH": tests, "SPARK_WORKER_DIR": str(directory / "work")}
        done = subprocess.run(asked, capture_output=True, check=True, text=True, env=variables)
        found = [Measured(*figures) for figures in json.loads(done.stdout.splitlines()[-1])]
        first = firsts.setdefault(setup.beside, found)
        points = [
            Point(of.size, of.total_s, of.cpu_s, of.add_s / beside.add_s, {"s of source, state and sink": of.add_s})
            for of, beside in zip(found, first, strict=True)
        ]
        rows.append(Row("executors", setup.name, "producers that change", setup.beside, points))


def main(setup: Setup, directory: Path) -> None:
    """One setup, in this process."""
    import pyspark

    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    # A cluster authenticates, so it needs a secret; that of a real one is in spark-defaults.conf.
    os.environ["PYSPARK_SUBMIT_ARGS"] = "--conf spark.authenticate.secret=benchmark pyspark-shell"
    directory.mkdir(parents=True)
    session = a_session(directory, setup.master, state_partitions=setup.state_partitions)
    measure(session, directory, _processor(), CHANGING[0], tasks=setup.tasks)  # so that the JVMs are warm
    found = [measure(session, directory, _processor(), changing, tasks=setup.tasks) for changing in CHANGING]
    session.stop()
    print(json.dumps(found))


def _processor() -> BucketProcessor:
    return BucketProcessor(DetectionPolicy())


if __name__ == "__main__":
    main(SETUPS[int(sys.argv[1])], Path(sys.argv[2]))
