"""Idle Python workers of a real Spark: no more than tasks run at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# In a process of its own: the JVM of a process is started once. Each task uses two workers at the same time.
SCRIPT = """
import json, os, sys
from support.process_memory import descendants
from support.waiting import eventually
from txnwatch.streaming.job.query import spark_session
session = spark_session(sys.argv[1], master="local[2]", state_partitions=1, conf=json.loads(sys.argv[2]))
one_worker_each = session.sparkContext.parallelize(range(4), 4).map(lambda number: number + 1)
assert one_worker_each.coalesce(2).map(lambda number: number).sum() == 10
def workers():  # the driver, the JVM, the daemon; all others are workers
    return len(descendants(os.getpid())) - 3
eventually(lambda: workers() == int(sys.argv[3]), 10.0, "the number of workers")
session.stop()
"""


@pytest.mark.parametrize(
    ("conf", "workers"),
    [({}, 2), ({"spark.python.factory.idleWorkerMaxPoolSize": "4"}, 4)],
    ids=["as many as tasks", "the operator decides otherwise"],
)
def test_no_more_workers_stay_than_tasks_run(tmp_path: Path, conf: dict[str, str], workers: int) -> None:
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(tmp_path), json.dumps(conf), str(workers)]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=120.0)
    assert done.returncode == 0, done.stderr[-2000:]
