"""`txnwatch run` as a user runs it: a process, its lines, and the events it leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from support.process_memory import descendants
from support.waiting import eventually
from txnwatch.cli.one_shot import options_of
from txnwatch.config import EVENTS_TOPIC
from txnwatch.librdkafka import librdkafka_config
from txnwatch.sinks.delivery.event_log import read_events
from txnwatch.state.model.errors import BadEventError, BrokerError
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import CoordinatorAccess, TopicPartition
from txnwatch.streaming.job.state_directory import state_name

READY_S = 240.0
QUICK = {"PYTHONWARNINGS": "ignore"}

_SLOW_MACHINE = (
    "micro-batches are slow",
    "no micro-batch has completed since",
    "the current micro-batch has not completed for",
    "can be neither confirmed nor refuted now",
)


class RunningCommand:
    """A command of `txnwatch` that runs until it is stopped; a context manager that ends it.

    -P is what the `txnwatch` script does: the directory is not where modules are looked for.
    """

    def __init__(self, *arguments: str, directory: Path | None = None) -> None:
        self._directory = directory
        self.command = [sys.executable, "-P", "-m", "txnwatch", *arguments]
        self.lines: list[str] = []
        self._starts = 0
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.stop()

    def start(self) -> Self:
        """Starts the process; its lines are collected, those of an earlier start stay."""
        self._process = subprocess.Popen(
            self.command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **QUICK},
            cwd=self._directory,
            process_group=0,
        )
        self._reader = threading.Thread(target=self._collect, args=(self._process,), daemon=True)
        self._reader.start()
        return self

    def _collect(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.lines.append(line.rstrip())

    def until_ready(self) -> Self:
        """Waits until the first batch of this start is through."""
        self.until("ready: ", times=1 + self._starts)
        self._starts += 1
        return self

    def until(self, text: str, *, times: int = 1, timeout_s: float = READY_S) -> str:
        """Waits for a line."""

        def found() -> str | None:
            assert self._process is not None
            matching = [line for line in self.lines if text in line]
            assert self._process.poll() is None or len(matching) >= times, f"txnwatch ended: {self.lines[-5:]}"
            return matching[times - 1] if len(matching) >= times else None

        return eventually(found, timeout_s, lambda: f"{text!r} in {self.lines[-5:]}") or ""

    @property
    def warnings(self) -> list[str]:
        """The warnings, without those that a machine with other work may cause."""
        return [line for line in self.lines if "warning" in line and not any(slow in line for slow in _SLOW_MACHINE)]

    @property
    def metrics_url(self) -> str:
        """Where it is scraped; it must have been started with an --http-port."""
        port = self._newest("metrics at ").rpartition(":")[2].removesuffix("/metrics")
        return f"http://127.0.0.1:{port}/metrics"

    @property
    def page_url(self) -> str:
        """The address of its page; it must have been started with a --http-port."""
        return self._newest("the page is at ").rpartition("the page is at ")[2].rstrip("/")

    def _newest(self, text: str) -> str:
        """The last line with this text; a new start has other ports."""
        self.until(text)
        return next(line for line in reversed(self.lines) if text in line)

    @property
    def is_running(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def jvm(self) -> int:
        """The process id of its JVM."""
        (found,) = [pid for pid, name in descendants(self.pid).items() if name == "java"]
        return found

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended and all its lines are there."""
        return self.exit_code is not None and not self._reader.is_alive()

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """SIGSTOP to the whole process group while the block runs: nothing is read meanwhile."""
        os.killpg(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """kill -9."""
        self._signal(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        return self._signal(signal.SIGTERM)

    def stop_group(self) -> int:
        """SIGTERM to the whole process group, as a terminal or a container runtime sends it; returns the exit code."""
        os.killpg(self.pid, signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Waits for the end, and until all lines are there; returns the exit code."""
        assert self._process is not None
        code = self._process.wait(60.0)
        self.ended_s = time.monotonic()
        self._reader.join(10.0)
        return code

    def _signal(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self.wait()


class RunningWatch(RunningCommand):
    """One `txnwatch run`, in a directory of its own if one is given.

    Attributes:
        state: the directory of this version in the checkpoint, for the view `log`.
    """

    def __init__(self, bootstrap: str, checkpoint: Path | str, *flags: str, directory: Path | None = None) -> None:
        self.checkpoint = str(checkpoint)
        self.state = f"{checkpoint}/{state_name(CoordinatorAccess.LOG)}"
        where = ("--bootstrap-server", bootstrap, "--checkpoint", str(checkpoint))
        super().__init__("run", *where, *flags, directory=directory)


class RunningPage(RunningCommand):
    """One `txnwatch page`."""

    def __init__(self, *flags: str) -> None:
        super().__init__("page", *flags, "--http-port", "0")

    @property
    def url(self) -> str:
        """Its address."""
        return self.page_url


def events_of(bootstrap: str, topic: str = EVENTS_TOPIC) -> list[IncidentEvent]:
    """Every event on the topic, none if it is not there yet."""
    try:
        found = list(read_events(librdkafka_config(options_of(bootstrap, None)), topic))
    except BrokerError:
        return []
    assert not [event for event in found if isinstance(event, BadEventError)]
    return [event for event in found if isinstance(event, IncidentEvent)]


def events_about(bootstrap: str, partition: TopicPartition, topic: str = EVENTS_TOPIC) -> list[IncidentEvent]:
    """The events about one partition."""
    return [event for event in events_of(bootstrap, topic) if (event.topic, event.partition) == partition]


def statuses(events: list[IncidentEvent]) -> list[str]:
    """What happened, in order."""
    return [event.status for event in events]
