"""A JVM begins at once, is awaited later, and is killed with all that starts it; a script stands for Spark."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import java_gateway
from pyspark.errors import PySparkRuntimeError

from support.waiting import eventually
from txnwatch.state.model.errors import SparkError
from txnwatch.streaming.job.jvm import StartingJvm
from txnwatch.streaming.job.spark_conf import SessionSettings

PORT, SECRET = 12_345, "kanarienvogel"
ANSWERS = rf"""
printf '\x00\x00\x30\x39\x00\x00\x00\x0d{SECRET}' > "$_PYSPARK_DRIVER_CONN_INFO_PATH.new"
mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.new" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
read -r _
"""
VARIABLES = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of Spark; a test writes its program."""
    for name in (*VARIABLES, "PYSPARK_SUBMIT_ARGS", "MALLOC_ARENA_MAX", "SPARK_LOCAL_IP"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "spark"
    (home / "bin").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(home))
    return home


@pytest.fixture
def settings(tmp_path: Path) -> SessionSettings:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    conf = {"spark.executor.memory": "1g", "spark.hadoop.fs.s3a.secret.key": SECRET}
    return SessionSettings("s3a://bucket/x", "local[2]", scratch, state_partitions=3, conf=conf)


def program(home: Path, script: str) -> None:
    file = home / "bin" / "spark-submit"
    file.write_text(f"#!/bin/bash\n{script}\n")
    file.chmod(0o755)


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str | None, ...]]]:
    """The variables with which PySpark connects."""
    seen: list[tuple[str | None, ...]] = []

    def launch_gateway() -> Any:
        seen.append(tuple(map(os.environ.get, VARIABLES)))
        return SimpleNamespace()

    monkeypatch.setattr(java_gateway, "launch_gateway", launch_gateway)
    yield seen
    assert [name for name in VARIABLES if name in os.environ] == []


def test_it_begins_at_once_and_pyspark_connects_when_it_answers(
    home: Path, settings: SessionSettings, connected: list[tuple[str | None, ...]]
) -> None:
    program(home, f'echo "$@" > "{home}/arguments"; env > "{home}/variables"; sleep 0.2; {ANSWERS}')
    jvm = StartingJvm(settings)
    gateway = jvm.gateway()
    assert connected == [(str(PORT), SECRET)]
    assert list(settings.scratch.iterdir()) == [], "the secret is in no file any more"
    assert gateway.proc.poll() is None
    assert os.getsid(gateway.proc.pid) == gateway.proc.pid, "it gets no signal of our process group"
    arguments = (home / "arguments").read_text()
    assert "--conf spark.app.name=txnwatch --conf spark.master=local[2] " in arguments
    assert "--conf spark.sql.shuffle.partitions=3 " in arguments
    assert "--conf spark.executor.memory=1g " in arguments
    assert SECRET not in arguments
    assert arguments.endswith(" pyspark-shell\n")
    variables = (home / "variables").read_text().splitlines()
    assert {"MALLOC_ARENA_MAX=2", "PYTHONSAFEPATH=1", "SPARK_LOCAL_IP=127.0.0.1"} <= set(variables)
    jvm.kill()
    assert gateway.proc.poll() is not None


def test_variables_and_arguments_of_the_operator_are_kept(
    home: Path, settings: SessionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "192.0.2.1")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars 'a b.jar' pyspark-shell")
    seen = home / "seen"
    program(home, f'printf "%s\\n" "$SPARK_LOCAL_IP" "${{@: -2}}" > "{seen}.new"; mv "{seen}.new" "{seen}"')
    jvm = StartingJvm(settings)
    eventually(seen.exists, 10.0, "the program")
    assert seen.read_text().splitlines() == ["192.0.2.1", "a b.jar", "pyspark-shell"]
    jvm.kill()


@pytest.mark.parametrize("code", [0, 1])
def test_one_that_ends_is_an_error_of_spark(home: Path, settings: SessionSettings, code: int) -> None:
    program(home, f"exit {code}")
    jvm = StartingJvm(settings)
    with pytest.raises(PySparkRuntimeError, match="JAVA_GATEWAY_EXITED"):
        jvm.gateway()
    jvm.kill()


@pytest.mark.usefixtures("connected")
def test_one_that_has_answered_may_remove_its_files(home: Path, settings: SessionSettings) -> None:
    program(home, f'{ANSWERS} touch "{home}/removed"')
    jvm = StartingJvm(settings)
    jvm.gateway()
    jvm.end()
    assert (home / "removed").exists()


@pytest.mark.usefixtures("connected")
def test_one_that_has_answered_and_does_not_end_is_killed(home: Path, settings: SessionSettings) -> None:
    program(home, f"{ANSWERS} sleep 60")
    jvm = StartingJvm(settings)
    gateway = jvm.gateway()
    begun = time.monotonic()
    jvm.end()
    assert gateway.proc.poll() is not None
    assert time.monotonic() - begun < 5.0


@pytest.mark.usefixtures("connected")
def test_it_ignores_an_interrupt_of_its_own(home: Path, settings: SessionSettings) -> None:
    program(home, ANSWERS)
    jvm = StartingJvm(settings)
    gateway = jvm.gateway()
    (ignored,) = re.findall(r"SigIgn:\s+(\w+)", Path(f"/proc/{gateway.proc.pid}/status").read_text())
    assert int(ignored, 16) & 1 << (signal.SIGINT - 1)
    jvm.kill()


def test_all_programs_that_start_it_are_killed(home: Path, settings: SessionSettings) -> None:
    program(home, f'sleep 60 & echo "$!" > "{home}/child.new"; mv "{home}/child.new" "{home}/child"; wait')
    jvm = StartingJvm(settings)
    eventually((home / "child").exists, 10.0, "the program")
    child = Path("/proc", (home / "child").read_text().strip(), "stat")
    assert child.exists()
    begun = time.monotonic()
    jvm.kill()
    jvm.kill()
    assert time.monotonic() - begun < 5.0
    eventually(lambda: not child.exists() or ") Z " in child.read_text(), 10.0, "the end of the other program")


def test_a_step_that_waits_ends_with_the_jvm(home: Path, settings: SessionSettings) -> None:
    program(home, "exec sleep 60")
    jvm = StartingJvm(settings)
    jvm.kill()
    with pytest.raises(PySparkRuntimeError, match="JAVA_GATEWAY_EXITED"):
        jvm.gateway()


def test_under_spark_submit_nothing_starts(
    settings: SessionSettings, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    gateway = SimpleNamespace()
    monkeypatch.setattr(java_gateway, "launch_gateway", lambda: gateway)
    program(home, f'touch "{home}/begun"')
    jvm = StartingJvm(settings)
    assert jvm.gateway() is gateway
    jvm.kill()
    assert not (home / "begun").exists()


@pytest.mark.usefixtures("home")
def test_a_home_without_the_program_is_an_error(settings: SessionSettings) -> None:
    with pytest.raises(
        SparkError, match=r"bin/spark-submit: expected the program that starts Spark, found no such file"
    ):
        StartingJvm(settings)
