"""Two watchers, of which one speaks; faults of the speaker, and how long nobody speaks after each.

They are whole processes, `txnwatch run`, or watchers without Spark, whose times have no detection in them. The first
event of a hang that is made right after a fault ends the silence. In the end each hang must have been told once.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from support.event_tail import EventTail
from support.kafka_faults import late_write_after_abort
from support.metrics import Scrape
from support.result_rows import keep_row
from support.topics import unique
from support.waiting import eventually
from support.watch import RunningWatch
from txnwatch.state.model.incident import IncidentEvent, partition_of
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster

_TESTS = Path(__file__).resolve().parent.parent
_STARTED_S, _TOLD_S = 120.0, 60.0
_JOINED_S = 4.0  # a newcomer has joined the group, and the rebalance is over


class Instance(Protocol):
    """One of the two; it is started again with the same checkpoint."""

    def begin(self) -> None:
        """Starts it."""

    def until_ready(self) -> None:
        """Waits until it looks for hangs."""

    @property
    def speaks(self) -> bool:
        """Whether it speaks, as far as it has said."""

    def signal(self, number: signal.Signals) -> None:
        """A signal to all its processes, or SIGTERM to the one that was started."""

    def wait(self) -> None:
        """Waits for its end."""

    def end(self) -> None:
        """Ends it, whatever it does."""


class WholeWatcher:
    """One `txnwatch run`."""

    def __init__(self, bootstrap: str, events: str, topic: str, checkpoint: str) -> None:
        flags = ("--topics", topic, "--events-topic", events, "--http-port", "0")
        self._watch = RunningWatch(bootstrap, checkpoint, *flags)
        self.begin()

    def begin(self) -> None:
        """See Instance."""
        self._watch.start()

    def until_ready(self) -> None:
        """See Instance."""
        self._watch.until_ready()

    @property
    def speaks(self) -> bool:
        """See Instance."""
        speaks = Scrape.at(self._watch.metrics_url).families["txnwatch_speaks"].samples
        return [sample.value for sample in speaks] == [1]

    def signal(self, number: signal.Signals) -> None:
        """See Instance."""
        (os.kill if number is signal.SIGTERM else os.killpg)(self._watch.pid, number)

    def wait(self) -> None:
        """See Instance."""
        self._watch.wait()

    def end(self) -> None:
        """See Instance."""
        if self._watch.is_running:
            self.signal(signal.SIGKILL)
            self.wait()


class SpeakingInstance:
    """A watcher without Spark."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._lines: list[str] = []
        self.begin()

    def begin(self) -> None:
        """See Instance."""
        command = [sys.executable, "-m", "support.speaking_process", *self._arguments]
        self._lines = []
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=_TESTS, env={**os.environ, "PYTHONPATH": str(_TESTS)}
        )
        threading.Thread(target=self._collect, args=(self.process, self._lines), daemon=True).start()

    @staticmethod
    def _collect(process: subprocess.Popen[str], lines: list[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                lines.append(line.strip())  # noqa: PERF401 - others read the list meanwhile

    def until_ready(self) -> None:
        """See Instance."""
        eventually(lambda: {"speaks", "silent"} & set(self._lines), _STARTED_S, "a first look")

    @property
    def speaks(self) -> bool:
        """See Instance."""
        return self._lines[-1:] == ["speaks"]

    def signal(self, number: signal.Signals) -> None:
        """See Instance."""
        self.process.send_signal(number)

    def wait(self) -> None:
        """See Instance."""
        self.process.wait(30.0)

    def end(self) -> None:
        """See Instance."""
        self.process.kill()
        self.wait()


class Takeovers:
    """Faults of the speaker, one after the other; each takes the next partition."""

    def __init__(self, cluster: Cluster, tail: EventTail, pair: tuple[Instance, Instance], topic: str) -> None:
        self._cluster, self._tail, self._pair, self._topic = cluster, tail, pair, topic
        self.made: list[TopicPartition] = []

    def after(self, fault: str, number: int) -> float:
        """The seconds from a fault to the first event of a hang that is made right after it, on a partition."""
        first, second = self._pair
        partition = TopicPartition(self._topic, number)
        time.sleep(_JOINED_S)
        eventually(lambda: first.speaks is not second.speaks, _STARTED_S, "one speaker")
        speaker = first if first.speaks else second
        begun_s = time.time()
        with self._hit(speaker, fault):
            late_write_after_abort(self._cluster, unique("zombie"), partition)
            self.made.append(partition)
            at_s = eventually(lambda: self._told_s(partition), _TOLD_S, f"the event about {partition} after {fault}")
        return at_s - begun_s

    @contextmanager
    def _hit(self, speaker: Instance, fault: str) -> Iterator[None]:
        if fault == "pause":
            speaker.signal(signal.SIGSTOP)
            try:
                yield
            finally:
                speaker.signal(signal.SIGCONT)
            eventually(lambda: not speaker.speaks, _TOLD_S, "it knows that it has lost the lease")
            return
        speaker.signal(signal.SIGKILL if fault == "kill -9" else signal.SIGTERM)
        yield
        speaker.wait()
        speaker.begin()
        speaker.until_ready()

    def _told_s(self, partition: TopicPartition) -> float | None:
        return next((one.at_s for one in self._tail.published if _place(one.event) == partition), None)

    def wrong(self) -> Iterator[str]:
        """Hangs that were told twice, or not."""
        for partition in self.made:
            told = [one.event for one in self._tail.published if _place(one.event) == partition]
            seen = [(event.sequence, event.status) for event in told]
            if seen.count((1, "opened")) != 1 or len({event.event_id for event in told}) != len(told):
                yield f"{partition}: {seen}"


def _place(event: IncidentEvent) -> TopicPartition | None:
    return partition_of(event) if event.topic is not None else None


def keep_takeovers(path: Path | None, fault: str, seconds: Sequence[float]) -> None:
    """Keeps the figures of one kind of fault."""
    row = {"median_s": round(statistics.median(seconds), 1), "s": round(max(seconds), 1), "times": len(seconds)}
    keep_row(path, "takeover-times", fault, row)
