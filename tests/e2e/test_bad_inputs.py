"""What Spark cannot run ends `txnwatch run` with one line that has the root cause and what to do, and exit code 1.

Inputs that are refused without Spark are in tests/integration/test_errors.py.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from support.bad_inputs import BadInputs
from support.waiting import eventually
from support.watch import RunningWatch
from txnwatch.cli.output import FAILURE, USAGE
from txnwatch.state.model.values import CoordinatorAccess
from txnwatch.streaming.job.state_directory import state_name
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

ENDS_S = 120.0
EVENTS = ("--events-topic", "bad-inputs.events")
INCIDENT = re.compile(r"Z  (OPENED|UPDATED|RESOLVED) ")
REFUSING = (
    *("--master", "spark://127.0.0.1:1", "--checkpoint-is-shared", "true"),
    *("--spark-conf", "spark.authenticate.secret=kanarienvogel"),
)


def end_of(kafka: EmbeddedKafka, *flags: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Runs `txnwatch run` to its end; returns its exit code and its last line."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "txnwatch", "run", "--bootstrap-server", kafka.bootstrap_servers, *EVENTS, *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=ENDS_S,
        env={**os.environ, "PYTHONWARNINGS": "ignore", **(env or {})},
    )
    assert "Traceback" not in done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    return done.returncode, line


def without_java(directory: Path) -> dict[str, str]:
    for tool in ("bash", "dirname", "env"):
        (directory / tool).symlink_to(str(shutil.which(tool)))
    return {"PATH": str(directory), "JAVA_HOME": ""}


def hidden(directory: Path, package: str) -> Path:
    """A directory for PYTHONPATH in which a package is missing."""
    place = directory / package.replace(".", "/")
    place.mkdir(parents=True)
    (place / "__init__.py").write_text(f"raise ModuleNotFoundError({f'No module named {package!r}'!r})")
    if "." in package:
        (place.parent / "__init__.py").touch()
    return directory


def driver_without_pandas(directory: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(hidden(directory, "pandas"))}


def workers_without_protobuf(directory: Path) -> dict[str, str]:
    path = hidden(directory / "packages", "google.protobuf")
    python = directory / "python"
    python.write_text(f'#!/bin/bash\nexport PYTHONPATH="{path}:$PYTHONPATH"\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return {"PYSPARK_PYTHON": str(python)}


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("environment", "flags", "expected"),
    [
        (without_java, (), "JAVA_HOME is not set; install Java 17 or later"),
        (lambda _: {}, ("--master", "bogus", "--checkpoint-is-shared", "true"), "check --master: local[N]"),
        (lambda _: {}, ("--checkpoint", "s3a://bucket/x"), "S3AFileSystem not found; --checkpoint: add the jars"),
        (lambda _: {"PYSPARK_PYTHON": "/no/python"}, (), "PYSPARK_PYTHON: expected a Python interpreter"),
        (driver_without_pandas, (), "check PYSPARK_PYTHON: it must be a Python"),
        pytest.param(
            *(workers_without_protobuf, (), "check PYSPARK_PYTHON: it must be a Python"), marks=pytest.mark.long
        ),
    ],
    ids=["no Java", "bad master", "no jars", "no interpreter", "no pandas", "no protobuf"],
)
def test_a_permanent_error_of_spark_ends_run_with_one_line(
    kafka: EmbeddedKafka,
    tmp_path: Path,
    environment: Callable[[Path], dict[str, str]],
    flags: tuple[str, ...],
    expected: str,
    bad_inputs: BadInputs,
) -> None:
    (tmp_path / "bin").mkdir()
    own = () if "--checkpoint" in flags else ("--checkpoint", str(tmp_path / "checkpoint"))
    code, line = end_of(kafka, *own, *flags, env=environment(tmp_path / "bin"))
    assert expected in line
    assert code == FAILURE
    bad_inputs.keep("Spark", line, code=code)


def state_in(checkpoint: Path) -> Path:
    """The state of this version."""
    return checkpoint / state_name(CoordinatorAccess.LOG)


@pytest.fixture(scope="module")
def checkpoint(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with some micro-batches."""
    directory = tmp_path_factory.mktemp("good") / "checkpoint"
    with RunningWatch(kafka.bootstrap_servers, directory, *EVENTS) as running:
        running.until_ready()
        assert running.stop() == 0
    return directory


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("environment", "flags", "expected"),
    [
        pytest.param({}, REFUSING, ("refused", "check --master: local[N], spark://"), marks=pytest.mark.long),
        ({}, ("--checkpoint", "hdfs://127.0.0.1:1/x"), ("refused", "--checkpoint cannot be used: check its address")),
        ({"PYSPARK_PYTHON": "/bin/false"}, (), ("found /bin/false", "ends with exit code 1", "check PYSPARK_PYTHON")),
    ],
    ids=[
        "a master that refuses the connection",
        "an HDFS that refuses the connection",
        "an interpreter that ends at once",
    ],
)
def test_a_start_that_spark_repeats_ends_in_bounded_time(
    kafka: EmbeddedKafka,
    tmp_path: Path,
    environment: dict[str, str],
    flags: tuple[str, ...],
    expected: tuple[str, ...],
    bad_inputs: BadInputs,
) -> None:
    own = () if "--checkpoint" in flags else ("--checkpoint", str(tmp_path / "checkpoint"))
    code, line = end_of(kafka, *own, *flags, env=environment)
    assert [part for part in expected if part not in line] == [], line
    assert code == FAILURE
    bad_inputs.keep("Spark", line, code=code)


def test_a_local_checkpoint_with_a_cluster_as_master(kafka: EmbeddedKafka, bad_inputs: BadInputs) -> None:
    code, line = end_of(kafka, "--checkpoint", "/path/to/directory", "--master", "spark://127.0.0.1:1")
    assert "expected a file system that all hosts of the cluster reach, found the directory /path/to/directory" in line
    assert "give a URI such as hdfs://" in line
    assert code == USAGE
    bad_inputs.keep("Checkpoints", line, code=code)


def damage(directory: Path, pattern: str) -> None:
    for file in directory.rglob(pattern):
        file.write_bytes(b"damaged")


@pytest.mark.long
def test_a_damaged_state(kafka: EmbeddedKafka, checkpoint: Path, tmp_path: Path, bad_inputs: BadInputs) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(checkpoint, damaged)
    damage(state_in(damaged) / "state", "*.changelog")
    damage(state_in(damaged) / "state", "*.zip")
    code, line = end_of(kafka, "--checkpoint", str(damaged))
    assert "restore --checkpoint from a copy, or give a new directory" in line
    assert code == FAILURE
    bad_inputs.keep("Checkpoints", line, code=code)


@pytest.mark.long
@pytest.mark.parametrize("part", ["offsets", "commits", "metadata"])
def test_a_damaged_file_is_refused_before_spark_starts(
    kafka: EmbeddedKafka, checkpoint: Path, tmp_path: Path, part: str, bad_inputs: BadInputs
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(checkpoint, damaged)
    if part == "metadata":
        (state_in(damaged) / part).write_text("damaged")
    else:
        damage(state_in(damaged) / part, "[0-9]*")
    code, line = end_of(kafka, "--checkpoint", str(damaged))
    assert "damaged" in line
    assert "new --checkpoint directory" in line or "directory of its own" in line
    assert code == FAILURE
    bad_inputs.keep("Checkpoints", line, before="a damaged file of ", code=code)


@pytest.mark.long
@pytest.mark.parametrize("part", ["offsets", "metadata", "state"])
def test_a_checkpoint_that_was_moved_in_part_is_refused(
    kafka: EmbeddedKafka, checkpoint: Path, tmp_path: Path, part: str, bad_inputs: BadInputs
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(checkpoint, moved)
    place = state_in(moved) / part
    if part == "metadata":
        place.unlink()
    else:
        shutil.rmtree(place)
    code, line = end_of(kafka, "--checkpoint", str(moved))
    assert f"expected {place}, found none: restore the whole checkpoint" in line
    assert code == FAILURE
    bad_inputs.keep("Checkpoints", line, before="moved without its ", code=code)


@pytest.mark.long
def test_a_jvm_that_is_killed(kafka: EmbeddedKafka, tmp_path: Path, bad_inputs: BadInputs) -> None:
    """As the kernel does when memory runs out."""
    with RunningWatch(kafka.bootstrap_servers, tmp_path / "checkpoint", *EVENTS) as watch:
        watch.until_ready()
        shown = len(watch.lines)
        os.kill(watch.jvm, signal.SIGKILL)
        assert watch.wait() == FAILURE
        eventually(lambda: watch.has_ended, 10.0, "its last line")
        said = [line for line in watch.lines[shown:] if INCIDENT.search(line) is None]  # of another test
        assert len(said) == 1, said
        (line,) = said
        bad_inputs.keep("Spark", line, code=FAILURE)
        assert line.startswith("txnwatch: the JVM of Spark was killed by signal 9; start txnwatch again")
        assert line.endswith("spark.log")
