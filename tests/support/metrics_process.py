"""A process that serves metrics as `run` does, with a low limit of descriptors, and that reports what it has in use.

Only sockets and the seam `served` are used, so that the tests of its limits hold for every server behind it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from unittest import mock

from prometheus_client import Gauge

from txnwatch.config import RunSettings
from txnwatch.metrics.collector import Metrics
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.web.server import served

_REPORT_S = 20.0
_AT_REST, _PAUSE_S = 15, 0.1  # so many equal answers in a row


@dataclass(frozen=True, slots=True)
class InUse:
    """What a process has in use; `opened` is how many further descriptors it could open at once."""

    threads: int
    descriptors: int
    opened: int


@dataclass(frozen=True, slots=True)
class MetricsProcess:
    """A serving process."""

    port: int
    _ask: Connection

    def in_use(self, wanted: int = 0) -> InUse:
        """What the process has in use now; it tries to open `wanted` descriptors, and closes them again."""
        self._ask.send(wanted)
        assert self._ask.poll(_REPORT_S), "the process does not report"
        found: InUse = self._ask.recv()
        return found

    def at_rest(self) -> InUse:
        """What the process has in use before its first client: a module that it loads is a descriptor for a moment."""
        lately = [self.in_use()]
        while len(lately) < _AT_REST or len(set(lately)) > 1:
            time.sleep(_PAUSE_S)
            lately = [*lately[1 - _AT_REST :], self.in_use()]
        return lately[0]


@contextlib.contextmanager
def metrics_process(descriptors: int, web_config: Path | None, answer_bytes: int = 0) -> Iterator[MetricsProcess]:
    """Serves metrics in a process that may open so many descriptors; an answer has at least `answer_bytes` bytes."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, descriptors, web_config, answer_bytes), daemon=True)
    process.start()
    there.close()
    try:
        assert here.poll(_REPORT_S), "the process does not start"
        yield MetricsProcess(here.recv(), here)
    finally:
        here.close()
        process.join(_REPORT_S)
        process.kill()
        process.close()


def _serve(asked: Connection, descriptors: int, web_config: Path | None, answer_bytes: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))
    metrics = Metrics(wall_clock_ms)
    Gauge("long", "x" * answer_bytes, registry=metrics.registry)
    settings = RunSettings(bootstrap_server="none:1", http_port=0, http_web_config_file=web_config)
    with served(settings, metrics, mock.Mock()) as server, contextlib.suppress(EOFError):
        assert server is not None
        asked.send(int(server.url.rpartition(":")[2]))
        while True:
            asked.send(_in_use(asked.recv()))


def _in_use(wanted: int) -> InUse:
    opened: list[socket.socket] = []
    now = InUse(threading.active_count(), len(list(Path("/dev/fd").iterdir())), 0)
    with contextlib.suppress(OSError):
        while len(opened) < wanted:
            opened.append(socket.socket())
    for one in opened:
        one.close()
    return InUse(now.threads, now.descriptors, len(opened))
