"""`spark-submit` as the parent of txnwatch: the JVM is not ours, and a signal or a kill reaches it first."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.spark_submit import driver_of, submit
from support.waiting import eventually
from support.watch import RunningWatch
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

pytestmark = pytest.mark.long
STOPS_S = 3.0
EVENTS = ("--events-topic", "spark-submit.events")


@pytest.fixture
def submitted(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[RunningWatch]:
    watch = submit(
        RunningWatch(kafka.bootstrap_servers, tmp_path / "checkpoint", *EVENTS), sys.executable, "--master", "local[2]"
    )
    with watch:
        watch.until_ready()
        yield watch


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_spark_submit_ends_the_driver_too(submitted: RunningWatch, number: signal.Signals) -> None:
    driver, begun = driver_of(submitted), time.monotonic()
    os.kill(submitted.pid, number)
    eventually(lambda: not driver.is_running() or driver.status() == psutil.STATUS_ZOMBIE, 20.0, "the driver to end")
    assert time.monotonic() - begun < STOPS_S


def test_a_signal_to_the_driver_stops_it_in_order(submitted: RunningWatch) -> None:
    begun = time.monotonic()
    driver_of(submitted).terminate()
    assert submitted.wait() == 0
    assert time.monotonic() - begun < STOPS_S
