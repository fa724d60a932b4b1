"""The environment of the demo: servers, applications, a watch as a user runs it, and the consumer that is measured.

Apart: a test checks it without the steps, which are in command.py.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from txnwatch.cli.one_shot import options_of
from txnwatch.config import EVENTS_TOPIC
from txnwatch.librdkafka import librdkafka_config
from txnwatch.sinks.delivery.event_log import read_events
from txnwatch.sinks.delivery.redis_sink import prefix_of
from txnwatch.state.model.errors import BrokerError, TxnwatchError
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import Problem, TopicPartition
from txnwatch.state.text import shell_line
from txnwatch.streaming.client.cluster import READ_COMMITTED, Cluster
from txnwatch_demo.embedded.applications import (
    Application,
    CommittedReader,
    exactly_once_copier,
    idempotent_writer,
    transactional_writer,
)
from txnwatch_demo.embedded.real_servers import EmbeddedKafka, EmbeddedRedis, free_ports, redis_program
from txnwatch_demo.late_write import StepwiseProducer, late_write_after_abort, set_verification
from txnwatch_demo.screen import DemoView, PartitionRow

TOPIC, COPIES, PARTITIONS = "payments", "ledger", 3
ZOMBIE = "checkout-7"
VICTIM = TopicPartition(TOPIC, 0)
KEPT_ID, KEPT = "checkout-8", TopicPartition(TOPIC, 1)  # the hang that --keep leaves
COPIER = "ledger-copy"
OWNERS = """[[owner]]
team = "payments"
name = "Payments team"
contact = "#payments"
topics = ["payments", "ledger"]
"""
QUIET_TIME_S = 5.0
FREEZE_S = 3.0
READING_S = 20.0


@dataclass
class DemoServers:
    """Everything that the demo starts; `stack` stops it."""

    directory: Path
    view: DemoView
    stack: contextlib.ExitStack
    applications: list[Application] = field(default_factory=list)
    events: list[tuple[float, IncidentEvent]] = field(default_factory=list)
    http_port: int = field(default_factory=lambda: free_ports(1)[0])

    @property
    def page(self) -> str:
        """The address of the page of the watch."""
        return f"http://127.0.0.1:{self.http_port}/"

    @property
    def owners_file(self) -> Path:
        """The table of owners."""
        return self.directory / "owners.toml"

    def start_servers(self) -> None:
        """Starts Kafka and Redis, and creates the topics."""
        kafka = EmbeddedKafka(self.directory / "kafka")
        self.stack.enter_context(kafka).start(self.view.show_line)
        self.redis = self.stack.enter_context(EmbeddedRedis(self.directory / "redis")).start(self.view.show_line)
        self.bootstrap = kafka.bootstrap_servers
        self.options = options_of(self.bootstrap, None)
        self.cluster = Cluster(self.options.bootstrap, self.options.security)
        self.stack.callback(self.cluster.close)
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        for created in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (TOPIC, COPIES)]).values():
            created.result(30.0)

    def start_applications(self) -> None:
        """Starts healthy applications, and the consumer that the hang will stop."""
        self.applications = [
            transactional_writer(self.bootstrap, "checkout-1", TOPIC, seed=1),
            transactional_writer(self.bootstrap, "checkout-2", TOPIC, seed=2, abort_every=3),
            transactional_writer(self.bootstrap, "refunds", TOPIC, seed=3, pause_s=1.0),
            exactly_once_copier(self.bootstrap, COPIER, TOPIC, COPIES),
            idempotent_writer(self.bootstrap, "audit", TOPIC),
        ]
        for application in self.applications:
            self.stack.callback(application.start().stop)
        self.reader = CommittedReader(self.bootstrap, TOPIC, PARTITIONS)
        self.stack.callback(self.reader.close)
        self.view.rows = [PartitionRow(f"{TOPIC}-{number}") for number in range(PARTITIONS)]
        self.wait(lambda: all(self.reader.records.values()), 60.0, "every partition to have committed records")

    def start_watching(self) -> str:
        """Starts `txnwatch run` as a user does; waits until it is ready and has reported nothing for 5 s."""
        command = [
            *(sys.executable, "-P", "-m", "txnwatch", "run", "--bootstrap-server", self.bootstrap),
            *("--checkpoint", str(self.directory / "checkpoint"), "--redis-url", self.redis.url),
            *("--auto-abort", "on", "--abort-after-ms", "0", "--http-port", str(self.http_port)),
            *("--owners-file", str(self.owners_file)),
        ]
        self.owners_file.write_text(OWNERS)
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # noqa: S603 - our own arguments
        self.stack.callback(_end, process)
        lines: list[str] = []
        threading.Thread(target=_collect, args=(process, lines), daemon=True).start()

        def is_ready() -> bool:
            if process.poll() is not None:
                raise TxnwatchError("txnwatch run ended: " + " | ".join(lines[-3:]))
            return any("ready: " in line for line in lines)

        self.wait(is_ready, 180.0, "txnwatch to be ready")
        ready_s = time.monotonic() - begin
        threading.Thread(target=self._follow_events, daemon=True).start()
        until = time.monotonic() + QUIET_TIME_S
        self.wait(lambda: time.monotonic() > until, QUIET_TIME_S + 5.0, "5 s without an incident")
        if self.events:
            raise TxnwatchError(f"healthy applications were reported: {self.events[0][1]}")
        return f"ready in {ready_s:.0f} s"

    def _follow_events(self) -> None:
        with contextlib.suppress(BrokerError):
            for event in read_events(librdkafka_config(self.options), EVENTS_TOPIC, follow=True):
                if isinstance(event, IncidentEvent):
                    self.events.append((time.monotonic(), event))

    def leave_time_to_read(self) -> None:
        """On a terminal, leaves 20 s to look at the screen and at the page; both stay up to date."""
        if self.view.console.is_terminal:
            until = time.monotonic() + READING_S
            self.wait(lambda: time.monotonic() > until, READING_S + 5.0, "the time to read the screen")

    def write_late(
        self, transactional_id: str = ZOMBIE, partition: TopicPartition = VICTIM
    ) -> tuple[StepwiseProducer, float]:
        """Makes the fault; returns its producer, and when the late write was acknowledged.

        It needs a cluster older than KIP-890, or one whose verification is switched off for a moment.
        """
        set_verification(self.bootstrap, [1], enabled=False)
        zombie = late_write_after_abort(self.cluster, transactional_id, partition)
        hung_at = time.monotonic()
        set_verification(self.bootstrap, [1], enabled=True)
        return zombie, hung_at

    def wait(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Reads and measures until the condition holds.

        Raises:
            TxnwatchError: the condition did not hold in time.
        """
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise TxnwatchError(f"waited {timeout_s:.0f} s for {what}")
            self.reader.poll()
            self._measure()

    def _measure(self) -> None:
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        ends = self.cluster.list_offsets(partitions)
        stable = self.cluster.list_offsets(partitions, isolation=READ_COMMITTED)
        now = time.monotonic()
        for number, row in enumerate(self.view.rows):
            end, last_stable = ends[partitions[number]], stable[partitions[number]]
            if isinstance(end, Problem) or isinstance(last_stable, Problem):
                continue
            moved = self.reader.positions[number] != row.position
            row.position = self.reader.positions[number]
            row.high_watermark = end.offset
            row.last_stable_offset = last_stable.offset
            is_behind = row.position <= row.last_stable_offset < row.high_watermark
            if moved or not is_behind:
                row.stands_since = None
            elif row.stands_since is None:
                row.stands_since = now

    def commands_to_try(self) -> tuple[str, ...]:
        """Lines that can be pasted: they need nothing on the PATH and no file of the user.

        The first one lets the commands run that the answers print: they begin with `txnwatch`.
        """
        txnwatch = (sys.executable, "-m", "txnwatch")
        server, owners = ("-b", self.bootstrap), ("--owners-file", str(self.owners_file))
        incidents = f"{prefix_of(self.cluster.known.cluster_id)}incidents"
        lines: tuple[tuple[str, ...], ...] = (
            ("curl", self.page),
            (*txnwatch, "status", *server, *owners),
            (*txnwatch, "events", *server, *owners, "--follow"),
            (*txnwatch, "find-hanging", *server, *owners),
            (*txnwatch, "explain", str(KEPT), *server, *owners),
            (*txnwatch, "explain", COPIER, *server, *owners),
            (*txnwatch, "explain", KEPT_ID, *server, *owners),
            (*txnwatch, "explain", ZOMBIE, *server, *owners),
            (redis_program("redis-cli"), "-u", self.redis.url, "zrange", incidents, "0", "-1", "withscores"),
            ("tail", "-f", str(self.directory / "checkpoint" / "spark.log")),
        )
        return (f'txnwatch() {{ {shell_line(txnwatch)} "$@"; }}', *(shell_line(line) for line in lines))

    def hang_again(self) -> None:
        """Makes the hang that stays: its client never starts again, so the watch refuses to abort it.

        Raises:
            TxnwatchError: the watch did not find it.
        """
        self.write_late(KEPT_ID, KEPT)

        def is_found() -> bool:
            return any(
                (event.transactional_id, event.topic, event.partition) == (KEPT_ID, *KEPT) for _, event in self.events
            )

        self.wait(is_found, 30.0, f"the opened event of {KEPT_ID} on {KEPT}")

    def stay(self) -> None:
        """Leaves everything running until Ctrl-C, with a hang to look at.

        Raises:
            TxnwatchError: the watch did not find the hang.
        """
        self.hang_again()
        show = self.view.console.print
        show(
            f"\nOne more write came too late, and it stays: {KEPT_ID} hangs on {KEPT}, and the application {COPIER} "
            "stops there.",
            highlight=False,
        )
        show(f"The page is at {self.page}", highlight=False)
        show(f"Kafka is at {self.bootstrap}, Redis at {self.redis.url}. Commands to try:", highlight=False)
        for line in self.commands_to_try():
            show(f"  {line}", highlight=False, soft_wrap=True, markup=False)
        show("Ctrl-C stops everything.", highlight=False)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                self.reader.poll()
                time.sleep(0.5)


def _collect(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stdout is not None
    lines.extend(line.rstrip() for line in process.stdout)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(40.0)
    except subprocess.TimeoutExpired:
        process.kill()
