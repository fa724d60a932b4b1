"""From one executor to two: the same micro-batches on a standalone cluster of workers with one core each.

Spark's `local-cluster` starts a master and real worker processes. The facts come from the synthetic source of
tests/support/synthetic_source.py, in as many tasks as there are executors. The driver needs a core as well, so two
executors on a machine of two cores show less than on one of three.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from bench.operators import Measured, measure
from bench.results import Point, Row
from support.synthetic_source import a_session
from txnwatch.state.model.policy import DetectionPolicy
from txnwatch.streaming.job.operator import BucketProcessor

EXECUTORS, CHANGING, MEMORY_MB = (1, 2), (500, 5_000, 50_000), 1024


def run(directory: Path, rows: list[Row]) -> None:
    """Each number of executors in a process of its own, because a JVM has one session."""
    tests = str(Path(__file__).resolve().parents[1])  # executors have a working directory of their own
    one: list[Measured] = []
    for executors in EXECUTORS:
        asked = [sys.executable, "-m", "bench.executors", str(executors), str(directory / str(executors))]
        variables = {**os.environ, "PYTHONPATH": tests, "SPARK_WORKER_DIR": str(directory / "work")}
        done = subprocess.run(asked, capture_output=True, check=True, text=True, env=variables)
        found = [Measured(*figures) for figures in json.loads(done.stdout.splitlines()[-1])]
        one = one or found
        points = [
            Point(of.size, of.total_s, of.cpu_s, of.add_s / beside.add_s, {"s of source, state and sink": of.add_s})
            for of, beside in zip(found, one, strict=True)
        ]
        name = f"{executors} executor{'s' if executors > 1 else ''}"
        rows.append(Row("executors", name, "producers that change", "one executor", points))


def main(executors: int, directory: Path) -> None:
    """One number of executors, in this process."""
    import pyspark

    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    # A cluster authenticates, so it needs a secret; that of a real one is in spark-defaults.conf.
    os.environ["PYSPARK_SUBMIT_ARGS"] = "--conf spark.authenticate.secret=benchmark pyspark-shell"
    directory.mkdir(parents=True)
    session = a_session(directory, f"local-cluster[{executors},1,{MEMORY_MB}]", state_partitions=2)
    measure(session, directory, _processor(), CHANGING[0], tasks=executors)  # so that the JVMs are warm
    found = [measure(session, directory, _processor(), changing, tasks=executors) for changing in CHANGING]
    session.stop()
    print(json.dumps(found))


def _processor() -> BucketProcessor:
    return BucketProcessor(DetectionPolicy())


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
