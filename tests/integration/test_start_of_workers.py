"""The processes of Spark in local mode: compiled modules, one worker from the start on, few jars to look into."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from txnwatch.streaming.job.jvm import installed_spark, prepared_for

SCRIPT = """
import json, os, sys
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable

from txnwatch.streaming.job.query import spark_session
from txnwatch.streaming.job.spark_conf import SessionSettings
from txnwatch.streaming.job.jvm import StartingJvm

scratch = Path(sys.argv[1])
session = spark_session(StartingJvm(SessionSettings(str(scratch / "checkpoint"), "local[1]", scratch)))
context = session.sparkContext


def workers(_):
    import time

    import pyspark

    needed = {"txnwatch.streaming.job.bucket_step", "txnwatch.streaming.source.tasks"}
    end_s = time.monotonic() + 60.0
    while not needed <= sys.modules.keys() and time.monotonic() < end_s:
        time.sleep(0.01)  # they are imported in a thread that the warm-up has left
    daemon = os.getppid()
    started = Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()
    modules = sorted(name for name in sys.modules if name.startswith("txnwatch.streaming"))
    yield os.getpid(), pyspark.__file__, modules, [int(pid) for pid in started]


def place_of(name):
    of_class = context._jvm.java.lang.Class.forName(name)
    return of_class.getProtectionDomain().getCodeSource().getLocation().getPath()



(found,) = context.parallelize([0], 1).mapPartitions(workers).collect()
jars = context._jvm.java.lang.System.getProperty("java.class.path").split(os.pathsep)
jvm = context._jvm.java.lang.ProcessHandle.current().pid()
mapped = [line.split()[-1] for line in Path(f"/proc/{jvm}/maps").read_text().splitlines() if line.endswith(".jsa")]
print(json.dumps([*found, place_of("org.apache.spark.sql.SparkSession"), jars, mapped]))
session.stop()
"""
PREPARED = prepared_for(installed_spark())


def test_the_first_task_gets_a_worker_that_loads_everything(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "pyspark_other.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')")
    environ["PYTHONPATH"] = str(tmp_path / "other")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False, env=environ
    )
    assert done.returncode == 0, done.stderr
    pid, file, modules, started, place, jars, mapped = json.loads(done.stdout.splitlines()[-1])
    assert file == pyspark.__file__, "the zip has no compiled modules"
    assert {"txnwatch.streaming.job.bucket_step", "txnwatch.streaming.source.tasks"} <= set(modules)
    assert started == [pid], "the worker of the warm-up, and no other one"
    names = [Path(jar).name for jar in jars]
    assert names.index(Path(place).name) < 10, "the jars with most classes are the first"
    assert not [name for name in names if name.startswith("spark-mllib_")]
    assert PREPARED is not None, "make the archive with `txnwatch prepare`, as scripts/venv.sh does"
    assert str(PREPARED.archive) in mapped, "the JVM uses the archive"
    assert not (tmp_path / "imported").exists(), "no Python process looks for other data sources"


DAMAGED = """
import sys
from pathlib import Path

from txnwatch.streaming.job import jvm

real = jvm.installed_spark()
sys.prefix = sys.argv[1] + "/environment"
with jvm.new_archive(real) as archive:
    archive.write_bytes(b"no archive" * 1000)
"""


@pytest.mark.long
def test_an_archive_that_the_jvm_does_not_know_has_no_consequence(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DAMAGED + SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *lines, answer = done.stdout.splitlines()
    assert not [path for path in json.loads(answer)[-1] if path.startswith(str(tmp_path))]
    assert not [line for line in (*lines, *done.stderr.splitlines()) if "archive" in line.lower() or "jsa" in line]


PREPARE = """
import sys
from pathlib import Path

from txnwatch.spark_start import prepared

sys.prefix, scratch = sys.argv[1] + "/environment", Path(sys.argv[2])
scratch.mkdir()
print(prepared(scratch / "spark.log", scratch).stat().st_mtime_ns)
"""


@pytest.mark.long
def test_an_archive_can_be_made_again(tmp_path: Path) -> None:
    made = []
    for scratch in (tmp_path / "first", tmp_path / "second"):
        command = [sys.executable, "-c", PREPARE, str(tmp_path), str(scratch)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        made.append(int(done.stdout))
    assert made[0] < made[1]
