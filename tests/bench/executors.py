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

from bench.operators import measure
from bench.results import Point, Row
from support.synthetic_source import a_session
from txnwatch.state.model.policy import DetectionPolicy
from txnwatch.streaming.job.operator import BucketProcessor

EXECUTORS, CHANGING, MEMORY_MB = (1, 2), 50_000, 1024


def run(directory: Path, rows: list[Row]) -> None:
    """Each size in a process of its own, because a JVM has one session."""
    row = Row("executors", f"{CHANGING:,} producers change in each batch", "executors", "one executor")
    one: float | None = None
    tests = str(Path(__file__).resolve().parents[1])  # executors have a working directory of their own
    for executors in EXECUTORS:
        asked = [sys.executable, "-m", "bench.executors", str(executors), str(directory / str(executors))]
        variables = {**os.environ, "PYTHONPATH": tests, "SPARK_WORKER_DIR": str(directory / "work")}
        done = subprocess.run(asked, capture_output=True, check=True, text=True, env=variables)
        total_s, add_s, cpu_s = json.loads(done.stdout.splitlines()[-1])
        one = one if one is not None else add_s
        row.points.append(Point(executors, total_s, cpu_s, add_s / one, {"s of source, state and sink": add_s}))
    rows.append(row)


def main(executors: int, directory: Path) -> None:
    """One size, in this process."""
    import pyspark

    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    # A cluster authenticates, so it needs a secret; that of a real one is in spark-defaults.conf.
    os.environ["PYSPARK_SUBMIT_ARGS"] = "--conf spark.authenticate.secret=benchmark pyspark-shell"
    directory.mkdir(parents=True)
    session = a_session(directory, f"local-cluster[{executors},1,{MEMORY_MB}]", state_partitions=2)
    processor = BucketProcessor(DetectionPolicy())
    found = [measure(session, directory, processor, CHANGING, tasks=executors) for _ in range(2)][1]
    session.stop()
    print(json.dumps([found.total_s, found.add_s, found.cpu_s]))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
