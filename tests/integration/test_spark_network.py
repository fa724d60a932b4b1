"""Spark's network on a cluster: without a secret nothing starts, with one it is authenticated and encrypted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

# In a process of its own: the JVM of a process is started once.
SCRIPT = """
import json, sys
from txnwatch.streaming.job.query import spark_session
session = spark_session(sys.argv[1], master="local-cluster[1,1,1024]", state_partitions=1)
total = session.range(0, 100, 1, 2).selectExpr("sum(id)").collect()[0][0]
conf = session.sparkContext.getConf()
names = ("spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled")
print(json.dumps([total, *(conf.get(name) for name in names)]))
session.stop()
"""


def started(directory: Path, *conf: str) -> subprocess.CompletedProcess[str]:
    submit = " ".join([*(f"--conf {one}" for one in conf), "pyspark-shell"])
    environ = {**os.environ, "PYSPARK_SUBMIT_ARGS": submit, "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    command = [sys.executable, "-P", "-W", "ignore", "-c", SCRIPT, str(directory)]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=180.0)


def test_a_cluster_without_a_secret_does_not_start(tmp_path: Path) -> None:
    done = started(tmp_path)
    assert done.returncode != 0
    assert "spark.authenticate.secret" in done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        (["spark.authenticate.secret=kanarienvogel"], ["true", "true", "true"]),
        (["spark.authenticate=false", "spark.network.crypto.enabled=false"], ["false", "false", "true"]),
    ],
    ids=["a secret", "the operator decides otherwise"],
)
def test_a_cluster_runs_with_what_the_operator_sets(tmp_path: Path, conf: list[str], expected: list[str]) -> None:
    done = started(tmp_path, *conf)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [4950, *expected]
