"""The Python processes of Spark in local mode: compiled modules, and one worker from the start on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark

SCRIPT = """
import json, os, sys
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable

from txnwatch.streaming.job.query import spark_session

session = spark_session(sys.argv[1] + "/checkpoint", master="local[1]", state_partitions=1, scratch=Path(sys.argv[1]))
context = session.sparkContext


def workers(_):
    import pyspark

    daemon = os.getppid()
    started = Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()
    modules = sorted(name for name in sys.modules if name.startswith("txnwatch.streaming"))
    yield os.getpid(), pyspark.__file__, modules, [int(pid) for pid in started]


(found,) = context.parallelize([0], 1).mapPartitions(workers).collect()
print(json.dumps(found))
session.stop()
"""


def test_the_first_task_gets_a_worker_with_everything_loaded(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False, env=environ
    )
    assert done.returncode == 0, done.stderr
    pid, file, modules, started = json.loads(done.stdout.splitlines()[-1])
    assert file == pyspark.__file__, "the zip has no compiled modules"
    assert "txnwatch.streaming.job.operator" in modules
    assert started == [pid], "the worker of the warm-up, and no other one"
