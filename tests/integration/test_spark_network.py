"""Spark's network on a cluster: without a secret nothing starts, with one it is authenticated and encrypted.

A JVM that nobody has started for this driver gets in only with the secret.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from support.spark_cluster import OPENED, SECRET
from support.waiting import eventually

# In a process of its own: the JVM of a process is started once.
SCRIPT = """
import json, sys
from pathlib import Path
from txnwatch.streaming.job.query import spark_session
from txnwatch.streaming.job.spark_conf import SessionSettings
from txnwatch.streaming.job.jvm import StartingJvm
session = spark_session(StartingJvm(SessionSettings(sys.argv[1], "local-cluster[1,1,1024]", Path(sys.argv[1]))))
total = session.range(0, 100, 1, 2).selectExpr("sum(id)").collect()[0][0]
conf = session.sparkContext.getConf()
names = ("spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled")
print(json.dumps([total, *(conf.get(name) for name in names)]))
session.stop()
"""

LISTENING = """
import sys
from pathlib import Path
from txnwatch.streaming.job.query import spark_session
from txnwatch.streaming.job.spark_conf import SessionSettings
from txnwatch.streaming.job.jvm import StartingJvm
session = spark_session(StartingJvm(SessionSettings(sys.argv[1], "local-cluster[1,1,1024]", Path(sys.argv[1]))))
conf = session.sparkContext.getConf()
print(conf.get("spark.driver.host") + ":" + conf.get("spark.driver.port"), flush=True)
sys.stdin.read()
session.stop()
"""
JARS = Path(pyspark.__file__).parent / "jars"
AUTHENTICATES = ("-Dspark.authenticate=true", "-Dspark.network.crypto.enabled=true")
BACKEND = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
REGISTERED = "Successfully registered with driver"
ANSWERS_S = 60.0


def started(directory: Path, *conf: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-W", "ignore", "-c", SCRIPT, str(directory)]
    return subprocess.run(command, env=environ_with(*conf), capture_output=True, text=True, check=False, timeout=180.0)


def environ_with(*conf: str) -> dict[str, str]:
    submit = " ".join([*(f"--conf {one}" for one in conf), "pyspark-shell"])
    return {**os.environ, "PYSPARK_SUBMIT_ARGS": submit, "SPARK_HOME": str(Path(pyspark.__file__).parent)}


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[str]:
    """Host and port of a driver with the secret."""
    command = [sys.executable, "-P", "-W", "ignore", "-c", LISTENING, str(tmp_path)]
    environ = environ_with(f"spark.authenticate.secret={SECRET}")
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.communicate(timeout=60.0)


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


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "secret", "gets_in"),
    [(AUTHENTICATES, SECRET, True), (AUTHENTICATES, "canary", False), ((), None, False)],
    ids=["the secret", "another secret", "no authentication"],
)
def test_a_foreign_jvm_gets_in_only_with_the_secret(
    driver: str, tmp_path: Path, settings: tuple[str, ...], secret: str | None, *, gets_in: bool
) -> None:
    log = tmp_path / "executor.log"
    command = ["java", *OPENED, *settings, "-cp", f"{JARS}/*", BACKEND, "--executor-id", "99", "--cores", "1"]
    command += ["--driver-url", f"spark://CoarseGrainedScheduler@{driver}", "--app-id", "foreign"]
    command += ["--bind-address", "127.0.0.1", "--hostname", "127.0.0.1", "--resourceProfileId", "0"]
    environ = os.environ if secret is None else {**os.environ, "_SPARK_AUTH_SECRET": secret}
    with log.open("w") as file, subprocess.Popen(command, env=environ, stdout=file, stderr=file) as executor:
        try:
            eventually(lambda: REGISTERED in log.read_text() or executor.poll() is not None, ANSWERS_S, "an answer")
            found = (REGISTERED in log.read_text(), executor.poll() is None)
            assert found == (gets_in, gets_in), log.read_text()[-2000:]
        finally:
            executor.kill()
