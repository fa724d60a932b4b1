"""What the demo does, step by step.

Law: the watch runs as a user runs it, `txnwatch run` in a process of its own, and every step is an observation from
outside: offsets from the brokers, a consumer's position, the events topic, Redis. What is not observed in time
raises, and nothing is shown that was not observed.
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
from typing import Any

import redis
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from txnwatch.app import librdkafka_config
from txnwatch.cli.demo_view import DemoView, PartitionRow
from txnwatch.cli.event_lines import duration
from txnwatch.config import EVENTS_TOPIC
from txnwatch.connection import options_of
from txnwatch.embedded import faults
from txnwatch.embedded.applications import (
    Application,
    CommittedReader,
    exactly_once_copier,
    idempotent_writer,
    transactional_writer,
)
from txnwatch.embedded.jars import KAFKA_VERSION
from txnwatch.embedded.kafka import EmbeddedKafka
from txnwatch.embedded.redis import EmbeddedRedis
from txnwatch.sinks.event_log import read_events
from txnwatch.state.errors import BrokerError, SinkError, TxnwatchError
from txnwatch.state.ids import TopicPartition
from txnwatch.state.incident import UPDATED, IncidentEvent
from txnwatch.streaming.cluster import READ_COMMITTED, Cluster

TOPIC, COPIES, PARTITIONS = "payments", "ledger", 3
ZOMBIE = "checkout-7"
VICTIM = TopicPartition(TOPIC, 0)
QUIET_TIME_S = 5.0
FREEZE_S = 3.0
READING_S = 6.0

STEPS = (
    "Kafka and Redis run",
    "five applications commit, abort, copy exactly once",
    "txnwatch watches, and has nothing to say",
    "a write of an aborted transaction arrives late",
    "the read_committed consumer stands still",
    "the incident is on the topic",
    "the same incident is in Redis",
    "an administrator writes an abort marker",
    "the consumer moves again",
    "the incident is resolved, on the topic and in Redis",
    "nothing else was reported",
)


@dataclass
class Demo:
    """The play, step by step; everything it starts is stopped with `stack`."""

    directory: Path
    view: DemoView
    stack: contextlib.ExitStack
    latency_ms: int = 0
    applications: list[Application] = field(default_factory=list)
    events: list[tuple[float, IncidentEvent]] = field(default_factory=list)

    def play(self, svg: Path | None) -> None:
        """Every step.

        Raises:
            TxnwatchError: something was not observed in time.
        """
        with self.view.step(0) as step:
            self.start_servers()
            step.detail = f"Kafka {KAFKA_VERSION} at {self.bootstrap}, Redis at {self.redis.url}"
        with self.view.step(1) as step:
            self.start_applications()
            step.detail = ", ".join(application.name for application in self.applications)
        with self.view.step(2) as step:
            step.detail = self.start_watching()
        with self.view.step(3) as step:
            hung_at = self.make_it_hang()
            step.detail = f"{ZOMBIE} wrote to {VICTIM} after its abort marker"
        with self.view.step(4) as step:
            step.detail = self.see_it_stand_still()
        with self.view.step(5) as step:
            incident = self.see_on_topic("opened", hung_at)
            step.detail = f"{duration(self.latency_ms)} after the late write"
        with self.view.step(6) as step:
            step.detail = self.see_in_redis(incident)
        self.view.show()
        if svg is not None:
            self.view.save_svg(svg)
        self.let_it_sink_in()
        with self.view.step(7):
            faults.abort_by_hand(self.cluster, VICTIM, incident.producer_id)
        with self.view.step(8) as step:
            step.detail = self.see_it_move()
        with self.view.step(9) as step:
            resolved = self.see_on_topic("resolved", hung_at)
            self.see_in_redis(resolved)
            step.detail = (
                f"{resolved.resolution['how'] if resolved.resolution else ''} after {duration(resolved.age_ms)}"
            )
        self.view.show()
        with self.view.step(10):
            self.let_it_sink_in()
            self.see_nothing_else(incident)

    def start_servers(self) -> None:
        """Kafka, Redis, topics."""
        kafka = EmbeddedKafka(self.directory / "kafka")
        self.stack.enter_context(kafka).start(self.view.say)
        self.redis = self.stack.enter_context(EmbeddedRedis(self.directory / "redis")).start(self.view.say)
        self.bootstrap = kafka.bootstrap_servers
        self.options = options_of(self.bootstrap, None)
        self.cluster = Cluster(self.options.bootstrap, self.options.security)
        self.stack.callback(self.cluster.close)
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        for created in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (TOPIC, COPIES)]).values():
            created.result(30.0)
        # What a zombie's late write needs: a cluster from before KIP-890, or one that has switched it off.
        faults.set_verification(self.bootstrap, [1], enabled=False)

    def start_applications(self) -> None:
        """Healthy applications, and the consumer that will suffer."""
        self.applications = [
            transactional_writer(self.bootstrap, "checkout-1", TOPIC, seed=1),
            transactional_writer(self.bootstrap, "checkout-2", TOPIC, seed=2, abort_every=3),
            transactional_writer(self.bootstrap, "refunds", TOPIC, seed=3, pause_s=1.0),
            exactly_once_copier(self.bootstrap, "ledger-copy", TOPIC, COPIES),
            idempotent_writer(self.bootstrap, "audit", TOPIC),
        ]
        for application in self.applications:
            self.stack.callback(application.start().stop)
        self.reader = CommittedReader(self.bootstrap, TOPIC, PARTITIONS)
        self.stack.callback(self.reader.close)
        self.view.rows = [PartitionRow(f"{TOPIC}-{number}") for number in range(PARTITIONS)]
        self.wait(lambda: all(self.reader.records.values()), 60.0, "every partition to have committed records")

    def start_watching(self) -> str:
        """`txnwatch run`, as a user starts it."""
        command = [
            *(sys.executable, "-m", "txnwatch", "run", "--bootstrap-server", self.bootstrap),
            *("--checkpoint", str(self.directory / "checkpoint"), "--redis-url", self.redis.url),
        ]
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # noqa: S603 - our own arguments
        self.stack.callback(_end, process)
        lines: list[str] = []
        threading.Thread(target=_collect, args=(process, lines), daemon=True).start()
        self.watch_lines = lines

        def is_ready() -> bool:
            if process.poll() is not None:
                raise TxnwatchError("txnwatch run ended: " + " | ".join(lines[-3:]))
            return any("ready: " in line for line in lines)

        self.wait(is_ready, 180.0, "txnwatch to be ready")
        ready_s = time.monotonic() - begin
        threading.Thread(target=self._follow_events, daemon=True).start()
        until = time.monotonic() + QUIET_TIME_S
        self.wait(lambda: time.monotonic() > until, QUIET_TIME_S + 5.0, "a quiet time")
        if self.events:
            raise TxnwatchError(f"healthy applications were reported: {self.events[0][1]}")
        return f"ready in {ready_s:.0f} s"

    def _follow_events(self) -> None:
        with contextlib.suppress(BrokerError):
            for event in read_events(librdkafka_config(self.options), EVENTS_TOPIC, follow=True):
                if not isinstance(event, SinkError):
                    self.events.append((time.monotonic(), event))

    def make_it_hang(self) -> float:
        """The fault; returns when the late write was acknowledged."""
        faults.late_write_after_abort(self.cluster, ZOMBIE, VICTIM)
        return time.monotonic()

    def see_it_stand_still(self) -> str:
        """The consumer is at the last stable offset and stays there, while records go on arriving behind it."""
        row = self.view.rows[VICTIM.partition]

        def stands() -> bool:
            return row.stands_since is not None and time.monotonic() - row.stands_since >= FREEZE_S and row.hidden > 1

        self.wait(stands, 30.0, "the consumer to stand still at the last stable offset")
        return f"at {row.position}, {row.hidden} records behind it hidden"

    def see_on_topic(self, status: str, hung_at: float) -> IncidentEvent:
        """The incident's event with this status."""

        def found() -> tuple[float, IncidentEvent] | None:
            return next(((at, event) for at, event in self.events if _is_ours(event) and event.status == status), None)

        self.wait(lambda: found() is not None, 30.0, f"the {status} event of {ZOMBIE} on {VICTIM}")
        at, event = found() or (0.0, self.events[-1][1])
        if status == "opened":
            self.latency_ms = int((at - hung_at) * 1000)
        self.view.incident = event
        return event

    def see_in_redis(self, event: IncidentEvent) -> str:
        """The same event in Redis, in its hash and, while it is open, in the sorted set."""
        client: Any = redis.Redis.from_url(self.redis.url, decode_responses=True)
        prefix = f"txnwatch:{event.cluster_id}:"
        key = f"{prefix}incident:{event.incident_id}"

        def is_there() -> bool:
            held = client.hgetall(key)
            is_listed = client.zscore(f"{prefix}incidents", event.incident_id) is not None
            expected = {"sequence": str(event.sequence), "status": event.status, "transactional_id": ZOMBIE}
            return expected.items() <= held.items() and is_listed == event.is_open

        self.wait(is_there, 15.0, f"{event.status} in Redis")
        return key

    def see_it_move(self) -> str:
        """The consumer gets past the offset where it stood."""
        row = self.view.rows[VICTIM.partition]
        stood = row.position
        self.wait(lambda: row.position > stood and row.stands_since is None, 30.0, "the consumer to move again")
        return f"from {stood} to {row.position}"

    def see_nothing_else(self, incident: IncidentEvent) -> None:
        """One incident, opened once, resolved once; and every application is still healthy."""
        seen = [(event.incident_id, event.status) for _, event in self.events if event.status != UPDATED]
        expected = [(incident.incident_id, "opened"), (incident.incident_id, "resolved")]
        if [entry for entry in seen if entry[1] != "updated"] != expected:
            raise TxnwatchError(f"expected one incident, opened and resolved, found {seen}")
        for application in self.applications:
            if application.error is not None:
                raise TxnwatchError(f"application {application.name} failed: {application.error}")

    def let_it_sink_in(self) -> None:
        """On a terminal somebody is looking: a while to read, with the table going on."""
        if self.view.console.is_terminal:
            until = time.monotonic() + READING_S
            self.wait(lambda: time.monotonic() > until, READING_S + 5.0, "the reader")

    def wait(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Goes on reading and measuring until something is so.

        Raises:
            TxnwatchError: it was not, in time.
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
            moved = self.reader.positions[number] != row.position
            row.position = self.reader.positions[number]
            row.high_watermark = ends[partitions[number]].offset
            row.last_stable_offset = stable[partitions[number]].offset
            is_behind = row.position <= row.last_stable_offset < row.high_watermark
            if moved or not is_behind:
                row.stands_since = None
            elif row.stands_since is None:
                row.stands_since = now

    def stay(self) -> None:
        """Leaves everything running until Ctrl-C."""
        show = self.view.console.print
        command = f"{sys.executable} -m txnwatch"
        show(f"\nKafka is at {self.bootstrap}, Redis at {self.redis.url}. To look around:", highlight=False)
        for line in (
            f"{command} events --bootstrap-server {self.bootstrap} --follow",
            f"redis-cli -u {self.redis.url} zrange txnwatch:{self.cluster.known.cluster_id}:incidents 0 -1",
            f"tail -f {self.directory / 'checkpoint' / 'spark.log'}",
        ):
            show(f"  {line}", highlight=False, soft_wrap=True)
        show("Ctrl-C ends it.", highlight=False)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                self.reader.poll()
                time.sleep(0.5)


def _is_ours(event: IncidentEvent) -> bool:
    return event.transactional_id == ZOMBIE and (event.topic, event.partition) == VICTIM


def _collect(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stdout is not None
    lines.extend(line.rstrip() for line in process.stdout)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(40.0)
    except subprocess.TimeoutExpired:
        process.kill()
