"""Py4J and PySpark write nothing when the JVM ends, also in the middle of a callback from it.

`run` reports the end in one line; a traceback beside it would hide that line.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# In a process of its own: the JVM of a process is started once.
SCRIPT = """
import os, signal, sys, threading, time
from pathlib import Path
from py4j.protocol import Py4JError
from txnwatch.streaming.job.failures import report_its_end_once
from txnwatch.streaming.job.query import spark_session
from txnwatch.streaming.job.spark_conf import SessionSettings
from txnwatch.streaming.job.jvm import StartingJvm
report_its_end_once()
output = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
session = spark_session(StartingJvm(SessionSettings(sys.argv[1], "local[1]", Path(sys.argv[3])), output))
jvm = session.sparkContext._gateway.proc
in_callback = []

def killed_within(frame, batch_id):
    in_callback.append(threading.current_thread())
    os.kill(jvm.pid, signal.SIGKILL)
    jvm.wait()
    frame.collect()

stream = session.readStream.format("rate").load()
stream.writeStream.option("checkpointLocation", sys.argv[1]).foreachBatch(killed_within).start()
deadline = time.monotonic() + 120.0
while not in_callback and time.monotonic() < deadline:
    time.sleep(0.05)
in_callback[0].join(10.0)
try:
    session.range(1).count()
except (Py4JError, ConnectionError):
    print(len(in_callback), in_callback[0].is_alive())
"""


@pytest.mark.long
def test_a_jvm_that_ends_during_a_callback_writes_no_traceback(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-P",
        "-W",
        "ignore",
        "-c",
        SCRIPT,
        str(tmp_path / "checkpoint"),
        str(tmp_path / "log"),
        str(tmp_path),
    ]
    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=180.0)
    assert ended.stdout == "1 False\n", ended.stderr
    assert ended.stderr == ""
