"""The Spark program of the README, started by the Python of an environment that is not activated."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from support.raw_producer import RawProducer
from support.topics import create_topic, unique
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

ROOT = Path(__file__).parents[2]
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a JVM that lives for seconds compiles little
BEFORE = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
"""
AFTER = """
print(finished.count(), "finished")
spark.stop()
"""


def program(bootstrap: str, topic: str) -> str:
    """The program of the section for Spark users."""
    section = (ROOT / "README.md").read_text().partition("## For Spark users")[2]
    code = section.partition("```python\n")[2].partition("```")[0]
    return BEFORE + code.replace("broker:9092", bootstrap).replace('"payments"', f'"{topic}"') + AFTER


@pytest.fixture
def without_txnwatch(tmp_path: Path) -> dict[str, str]:
    """An environment whose first `python3` is a Python without packages."""
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    names = {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH", "VIRTUAL_ENV", "SPARK_HOME"}
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return {**kept, "PATH": f"{tmp_path / 'bare' / 'bin'}{os.pathsep}{kept['PATH']}", "JAVA_TOOL_OPTIONS": QUICK}


@pytest.mark.long
def test_it_runs_in_the_python_of_the_program(
    kafka: EmbeddedKafka, cluster: Cluster, without_txnwatch: dict[str, str], tmp_path: Path
) -> None:
    (partition,) = create_topic(cluster, unique("program"))
    producer = RawProducer(cluster, unique("program")).init()
    producer.add(partition)
    producer.produce(partition, [b"a"])
    producer.end(commit=True)
    file = tmp_path / "program.py"
    file.write_text(program(kafka.bootstrap_servers, partition.topic))
    done = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, check=False, env=without_txnwatch, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert done.stdout.splitlines()[-1] == "1 finished"
