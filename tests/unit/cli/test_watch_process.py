"""The JVM begins after the files with secrets are read, and no stop leaves it. A script is the program of Spark."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import NoReturn

import pytest

from support.waiting import eventually
from txnwatch.cli import watch_process, watching
from txnwatch.cli.main import main
from txnwatch.state.model.errors import ConfigError

SECRET = "kanarienvogel-kanarienvogel-kanarienvogel"
PUSH = """
[[webhook]]
name = "hook"
url = "https://hook.example/"
headers = { Authorization = "${env:OF_THE_PUSH}" }
"""


@pytest.fixture
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the variables of the JVM, one after each NUL."""
    (tmp_path / "bin").mkdir()
    program, file = tmp_path / "bin" / "spark-submit", tmp_path / "variables"
    program.write_text(f'#!/bin/bash\ncp /proc/self/environ "{file}.new"; mv "{file}.new" "{file}"; read -r _\n')
    program.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("PYSPARK_PYTHON", "/no/python")
    return file


def test_no_variable_with_a_secret_is_one_of_the_jvm(
    variables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    properties, keys, push = (tmp_path / name for name in ("client.properties", "keys", "push.toml"))
    properties.write_text("ssl.truststore.password=${env:OF_THE_CLIENT}\n")
    keys.write_text("${env:OF_THE_KEYS}\n")
    push.write_text(PUSH)
    for file in (properties, keys, push):
        file.chmod(0o600)
    for name in ("OF_THE_CLIENT", "OF_THE_KEYS", "OF_THE_PUSH", "TXNWATCH_REDIS_URL"):
        monkeypatch.setenv(name, f"redis://:{SECRET}@127.0.0.1:1" if "REDIS" in name else SECRET)
    monkeypatch.setenv("OF_SPARK", "visible")
    files = ("--command-config", str(properties), "--events-key-file", str(keys), "--push-file", str(push))

    def ends(*_: object) -> None:
        eventually(variables.exists, 10.0, "the program")
        raise ConfigError("the JVM has begun")

    monkeypatch.setattr(watching, "new_watch", ends)
    assert main(["run", "--bootstrap-server", "127.0.0.1:1", "--checkpoint", str(tmp_path / "checkpoint"), *files]) == 2
    assert capsys.readouterr().err == "txnwatch: the JVM has begun\n"
    seen = variables.read_text().split("\0")
    assert "OF_SPARK=visible" in seen
    assert [variable for variable in seen if SECRET in variable] == []


def test_a_stop_while_the_jvm_begins_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[bool] = []

    class Begun:
        def __init__(self, _: object) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.3)  # the program is being started

        def end(self) -> None:
            ended.append(True)

    def exits(code: int) -> NoReturn:
        raise SystemExit(code)

    monkeypatch.setattr(watch_process, "SparkStart", Begun)
    monkeypatch.setattr(watch_process, "exit_now", exits)
    with pytest.raises(SystemExit):
        main(["run", "--bootstrap-server", "127.0.0.1:1", "--checkpoint", str(tmp_path / "checkpoint")])
    assert ended == [True]
    assert "stopped after 0 micro-batches" in capsys.readouterr().out
