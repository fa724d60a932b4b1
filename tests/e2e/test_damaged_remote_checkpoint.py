"""A damaged file of a checkpoint on HDFS ends `txnwatch run` with one line that names what to do, and exit code 1.

Spark finds it, because txnwatch reads only local checkpoints before Spark starts (tests/e2e/test_bad_inputs.py).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.bad_inputs import BadInputs
from support.hdfs import EmbeddedHdfs
from support.watch import RunningWatch
from txnwatch.state.model.values import CoordinatorAccess
from txnwatch.streaming.job.state_directory import state_name
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

pytestmark = pytest.mark.long
PATH = "damaged"
EVENTS = ("--events-topic", "damaged.events")
ENDS_S = 240.0
STATE = "state/0/0"


@pytest.fixture(scope="module")
def hdfs(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedHdfs]:
    """With a checkpoint of some micro-batches."""
    with EmbeddedHdfs(tmp_path_factory.mktemp("hdfs")) as started:
        with RunningWatch(kafka.bootstrap_servers, started.uri(PATH), *EVENTS) as running:
            running.until_ready()
            assert running.stop() == 0
        yield started


@contextmanager
def damaged(hdfs: EmbeddedHdfs, part: str) -> Iterator[None]:
    """The newest files of a part have other content, and their own again afterwards."""
    place = f"{PATH}/{state_name(CoordinatorAccess.LOG)}/{part}"
    names = sorted(hdfs.names(place)) if part != "metadata" else []
    files = [f"{place}/{name}" for name in names if name.partition(".")[0].isdigit()] or [place]
    contents = {file: hdfs.read(file) for file in files}
    for file in files:
        hdfs.write(file, b"damaged")
    try:
        yield
    finally:
        for file, content in contents.items():
            hdfs.write(file, content)


@pytest.mark.parametrize("part", ["offsets", "commits", "metadata", STATE])
def test_a_damaged_file_on_hdfs(kafka: EmbeddedKafka, hdfs: EmbeddedHdfs, part: str, bad_inputs: BadInputs) -> None:
    command = RunningWatch(kafka.bootstrap_servers, hdfs.uri(PATH), *EVENTS).command
    environ = {**os.environ, "PYTHONWARNINGS": "ignore"}
    with damaged(hdfs, part):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ENDS_S, env=environ)
    assert "Traceback" not in done.stdout + done.stderr
    assert "restarting" not in done.stdout, "it cannot pass"
    (line,) = done.stderr.splitlines()
    assert "restore --checkpoint from a copy" in line or "new --checkpoint directory" in line
    assert done.returncode == 1
    bad_inputs.keep("Checkpoints", line, before="on HDFS, a damaged file of ", code=done.returncode)
