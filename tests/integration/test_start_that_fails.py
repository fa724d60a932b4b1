"""A start that fails or is stopped before Spark leaves no JVM, no temporary file, and nothing in the checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.bad_servers import bad_server, stays_silent
from support.process_memory import descendants
from support.waiting import eventually
from txnwatch.cli.output import FAILURE, USAGE
from txnwatch.streaming.job.checkpoint import locked
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

NOBODY = "127.0.0.1:1"
BEGINS_S, ENDS_S = 30.0, 60.0
LIMIT_S = 3.0


class Start:
    """A `txnwatch run` with a directory of its own for temporary files."""

    def __init__(self, directory: Path, bootstrap: str, *flags: str) -> None:
        self.temporary, self.checkpoint = directory / "temporary", directory / "checkpoint"
        self.temporary.mkdir()
        command = [sys.executable, "-P", "-m", "txnwatch", "run", "--bootstrap-server", bootstrap]
        self.process = subprocess.Popen(
            [*command, "--checkpoint", str(self.checkpoint), *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "ignore", "TMPDIR": str(self.temporary)},
            process_group=0,
        )

    def until_the_jvm_begins(self) -> None:
        eventually(lambda: self._started() or None, BEGINS_S, "the JVM")

    def _started(self) -> set[int]:
        return descendants(self.process.pid).keys() - {self.process.pid}

    def end(self) -> tuple[int, str, str]:
        """Its exit code, and the last line of each of its outputs."""
        out, err = self.process.communicate(timeout=ENDS_S)
        assert "Traceback" not in out + err
        return self.process.returncode, *(text.strip().rpartition("\n")[2] for text in (out, err))

    def assert_nothing_is_left(self) -> None:
        assert list(self.temporary.iterdir()) == []
        assert list(with_variable(f"TMPDIR={self.temporary}")) == []


def with_variable(text: str) -> Iterator[int]:
    """The processes with a variable in their environment."""
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if text.encode() in environ.read_bytes().split(b"\0"):
                yield int(environ.parent.name)


def test_brokers_that_nobody_reaches(tmp_path: Path) -> None:
    start = Start(tmp_path, NOBODY)
    start.until_the_jvm_begins()
    code, _, line = start.end()
    assert (code, "no broker answered" in line) == (FAILURE, True), line
    start.assert_nothing_is_left()
    assert not start.checkpoint.exists()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    start = Start(tmp_path, NOBODY, "--events-key-file", "/no/such/file")
    code, _, line = start.end()
    assert (code, "/no/such/file" in line) == (USAGE, True), line
    start.assert_nothing_is_left()
    assert not start.checkpoint.exists()


def test_a_checkpoint_that_another_process_uses(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    with locked(str(tmp_path / "checkpoint")):
        start = Start(tmp_path, kafka.bootstrap_servers)
        code, _, line = start.end()
    assert (code, "is in use by process" in line) == (FAILURE, True), line
    start.assert_nothing_is_left()
    assert not (start.checkpoint / "spark.log").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_the_cluster_is_checked(tmp_path: Path, number: signal.Signals) -> None:
    """As Ctrl-C: the whole process group gets the signal, but not the JVM."""
    with bad_server(stays_silent) as silent:
        start = Start(tmp_path, str(silent))
        start.until_the_jvm_begins()
        begun = time.monotonic()
        os.killpg(start.process.pid, number)
        code, line, _ = start.end()
        assert time.monotonic() - begun < LIMIT_S
    assert code == 0
    assert line.endswith("stopped after 0 micro-batches")
    start.assert_nothing_is_left()
    assert not start.checkpoint.exists()
