"""A soak: healthy applications under ordinary trouble, and not one false verdict. `make soak ARGS="--minutes 60"`.

Three brokers with three replicas. A few dozen transactional clients write, copy and commit; brokers restart one
after the other, coordinators move back, clients die with a transaction open and are timed out. Nothing of that is a
fault: no verdict of `hanging`, `stray_write` or `stuck_prepare` is true, and of `late` only that of a client that died,
which its coordinator, being restarted itself, has not timed out yet. Every incident must have ended at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import ElectionType, KafkaException

from support.event_tail import EventTail
from support.process_memory import resident_bytes
from support.servers import connect
from support.topics import admin_of, create_topic
from support.watch import RunningWatch
from txnwatch.embedded.applications import Application, exactly_once_copier, idempotent_writer, transactional_writer
from txnwatch.embedded.kafka import EmbeddedKafka
from txnwatch.embedded.raw_producer import RawProducer
from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.streaming.client.cluster import Cluster

EVENTS = "soak.events"
SOURCE, TARGET = "soak.source", "soak.target"
PARTITIONS = 6
DIES = "dies-"  # transactional ids of clients that die
REPORTED = {"hanging", "late", "stuck_prepare", "stray_write"}
_BROKER = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "10",
    "auto.create.topics.enable": "false",
}
_SETTLE_S = 25.0  # a client that died last is timed out, and the coordinator's scan comes every 10 s


@dataclass
class Fleet:
    """Applications that are started again, under the same transactional id, when trouble has ended one."""

    makers: dict[str, Callable[[], Application]]
    running: dict[str, Application] = field(default_factory=dict)
    restarts: int = 0
    steps: int = 0

    def keep_up(self) -> None:
        """Starts what does not run; a client that cannot start now is tried again next time."""
        for name, make in self.makers.items():
            held = self.running.get(name)
            if held is not None and held.error is None:
                continue
            if held is not None:
                self.restarts += 1
                self.steps += held.steps
                del self.running[name]
            with contextlib.suppress(KafkaException):
                self.running[name] = make().start()

    def stop(self) -> None:
        """Ends them all in order."""
        for application in self.running.values():
            application.stop()
            self.steps += application.steps


def fleet_of(bootstrap: str, writers: int) -> Fleet:
    """The applications."""
    makers: dict[str, Callable[[], Application]] = {}
    for number in range(writers):
        name, pause_s = f"writer-{number}", 0.1 + 0.05 * (number % 10)
        makers[name] = lambda name=name, pause_s=pause_s: transactional_writer(  # type: ignore[misc]
            bootstrap, name, SOURCE, pause_s=pause_s
        )
    for number in range(3):
        name = f"copier-{number}"
        makers[name] = lambda name=name: exactly_once_copier(bootstrap, name, SOURCE, TARGET)  # type: ignore[misc]
    makers["audit"] = lambda: idempotent_writer(bootstrap, "audit", SOURCE)
    return Fleet(makers)


@dataclass
class Trouble:
    """The disturbances of the cluster, one after the other."""

    kafka: EmbeddedKafka
    cluster: Cluster
    done: Counter[str] = field(default_factory=Counter)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def next(self) -> None:
        """The next piece of trouble."""
        step = next(self._numbers)
        steps = (self.client_dies, self.restart, self.client_dies, self.move_coordinators)
        steps[step % len(steps)](step)

    def client_dies(self, step: int) -> None:
        """A transaction is left open; its coordinator aborts it after five seconds."""
        partition = TopicPartition(SOURCE, step % PARTITIONS)
        with contextlib.suppress(TxnwatchError):
            producer = RawProducer(self.cluster, f"{DIES}{step}", 5_000).init()
            producer.add(partition)
            producer.produce(partition)
            self.done["clients that died"] += 1

    def restart(self, step: int) -> None:
        """The next broker restarts, orderly or as by a power cut. Node 1, the only controller, is always cut."""
        node = (step // 4) % 3 + 1
        is_orderly = node != 1 and (step // 12) % 2 == 0
        (self.kafka.broker(node).stop if is_orderly else self.kafka.broker(node).kill)()
        self.kafka.start_broker(node)
        self.done["restarts in order" if is_orderly else "restarts after kill -9"] += 1

    def move_coordinators(self, _: int) -> None:
        """Every partition goes back to its first replica, the coordinators' too."""
        admin = admin_of(self.cluster)  # kept until the answer is there: with the client goes the request
        with contextlib.suppress(KafkaException):
            admin.elect_leaders(ElectionType.PREFERRED, None).result(20.0)
            self.done["leaders moved back"] += 1


def soak(minutes: float, writers: int) -> int:
    """Runs it and prints what came of it; the exit code."""
    with (
        tempfile.TemporaryDirectory() as home,
        EmbeddedKafka(Path(home) / "kafka", brokers=3, properties=_BROKER) as kafka,
    ):
        kafka.start(print)
        with contextlib.closing(connect(kafka, timeout_s=3.0)) as cluster:
            for topic in (SOURCE, TARGET):
                create_topic(cluster, topic, PARTITIONS)
            create_topic(cluster, EVENTS, config={"cleanup.policy": "compact"})
            with (
                contextlib.closing(EventTail(kafka.bootstrap_servers, EVENTS)) as tail,
                RunningWatch(kafka.bootstrap_servers, Path(home) / "checkpoint", "--events-topic", EVENTS) as watch,
            ):
                watch.until_ready()
                return _run(Trouble(kafka, cluster), tail, watch, minutes, writers)


def _run(trouble: Trouble, tail: EventTail, watch: RunningWatch, minutes: float, writers: int) -> int:
    fleet = fleet_of(trouble.kafka.bootstrap_servers, writers)
    fleet.keep_up()
    time.sleep(10.0)
    before = resident_bytes(watch.pid)
    end = time.monotonic() + minutes * 60
    while time.monotonic() < end:
        pause = time.monotonic() + 8.0
        trouble.next()
        while time.monotonic() < pause:
            fleet.keep_up()
            time.sleep(0.5)
    time.sleep(_SETTLE_S)
    after = resident_bytes(watch.pid)
    fleet.stop()
    print(f"{minutes:g} minutes, {len(fleet.makers)} applications, {fleet.steps} steps, {fleet.restarts} started again")
    print("trouble:", ", ".join(f"{count} {what}" for what, count in trouble.done.items()))
    for name in sorted(before.keys() | after.keys()):
        print(
            f"memory of {name}: {before.get(name, 0) >> 20} MiB at the beginning, {after.get(name, 0) >> 20} at the end"
        )
    warnings = Counter(line.split("Z  ", 1)[-1][:60] for line in watch.lines if "warning" in line)
    print("warnings:", dict(warnings) or "none")
    verdicts = [one.event for one in tail.published if one.event.verdict in REPORTED]
    latest = {one.event.incident_id: one.event for one in tail.published}
    wrong = [event for event in verdicts if not is_owed(event)]
    left = [event for event in latest.values() if event.is_open and event.verdict in REPORTED]
    print("events:", dict(Counter(f"{one.event.verdict} {one.event.status}" for one in tail.published)) or "none")
    for event in verdicts:
        print(
            f"  {event.status} {event.verdict}/{event.reason} {event.subject} {event.transactional_id} {event.evidence}"
        )
    print(f"false: {len(wrong)} of {len(verdicts)} events; still open at the end: {len(left)}")
    return 1 if wrong or left else 0


def is_owed(event: IncidentEvent) -> bool:
    """Whether it is about a transaction whose end its coordinator really owes."""
    return event.verdict == "late" and (event.transactional_id or "").startswith(DIES)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--writers", type=int, default=24)
    arguments = parser.parse_args()
    return soak(arguments.minutes, arguments.writers)


if __name__ == "__main__":
    sys.exit(main())
