"""The cluster the faults happen on, with the real `txnwatch run` watching it.

Three brokers. Node 1 is the controller and holds what must survive: the coordinators, the offsets and the events;
data goes to nodes 2 and 3, which the faults kill, unless the power of all brokers fails. Transactional writes are not
verified except where a scenario asks for it, and txnwatch has small thresholds, so that verdicts that depend on time
are reported within seconds.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from support.event_tail import EventTail, PublishedEvent
from support.kafka_faults import abort_by_hand, stray_write
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch
from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.jars import KAFKA_VERSION
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

NODES = [1, 2, 3]
EVENTS = "faults.events"
OFFSETS = TopicPartition("__consumer_offsets", 0)
SCAN_S = 12.0  # how often the coordinators look for transactions that have timed out
STUCK_MS = 3_000
SPARE = 24  # partitions of each node; no scenario uses one that another has used
_COMPACTED = {"cleanup.policy": "compact", "min.insync.replicas": "1"}
_BROKER = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(int(SCAN_S * 1000)),
    "auto.create.topics.enable": "false",
}
# Late at once after its timeout: that the coordinator is owed one more scan is what the scenario plays with.
_WATCH = (
    *("--events-topic", EVENTS, "--stuck-prepare-ms", str(STUCK_MS)),
    *("--coordinator-scan-interval-ms", "0", "--late-buffer-ms", "500", "--long-running-min-ms", "1000"),
)

# How the watch finds out about data: it reads all of it, or it looks at the partitions whose last stable offset stands.
WAYS = {"scanned": (), "looked_at": ("--topics", "nothing")}

# A watch that aborts by itself, at once.
ABORTING = (
    *("--auto-abort", "on", "--abort-after-ms", "0", "--abort-breaker-cooldown-ms", "1000"),
    *("--http-port", "0"),
)


@dataclass
class FaultWorld:
    """What a scenario has at hand; `spare` are partitions that were there before the watch, by their only node."""

    kafka: EmbeddedKafka
    cluster: Cluster
    watch: RunningWatch
    tail: EventTail
    spare: dict[int, list[TopicPartition]]

    @property
    def bootstrap(self) -> str:
        """host:port of every broker."""
        return self.kafka.bootstrap_servers

    def partition(self, *nodes: int, **config: str) -> TopicPartition:
        """A partition nobody has written to yet, on these nodes; with settings of its own, a new topic.

        New topics are found within seconds, which are not what is measured here.
        """
        known = self.spare.get(nodes[0], []) if not config else []
        if known:
            return known.pop()
        settings = {key.replace("_", "."): value for key, value in config.items()}
        (created,) = create_topic(self.cluster, unique("fault"), replicas=[list(nodes)], config=settings)
        return created

    def restart(self, node: int) -> None:
        """kill -9, and back."""
        self.kafka.broker(node).kill()
        self.kafka.start_broker(node)

    def restart_dead(self) -> None:
        """Starts the brokers that a scenario has left dead; the next scenario needs them."""
        for node in NODES:
            if not self.kafka.broker(node).is_running:
                self.kafka.start_broker(node)

    @contextlib.contextmanager
    def verifying(self) -> Iterator[None]:
        """With KIP-890's verification on, as brokers have it by default."""
        set_verification(self.bootstrap, NODES, enabled=True)
        yield
        set_verification(self.bootstrap, NODES, enabled=False)

    def published_after(self, start: int, producer_ids: Sequence[int]) -> list[PublishedEvent]:
        """The events about some producers, from a position of the tail on."""
        return [one for one in self.tail.published[start:] if one.event.producer_id in producer_ids]


@contextlib.contextmanager
def fault_world(kafka: EmbeddedKafka, checkpoint: Path, *flags: str, offsets_on: int = 1) -> Iterator[FaultWorld]:
    """A world on a cluster that has just started; `flags` are the watch's own, and one node has the offsets."""
    with contextlib.closing(connect(kafka, timeout_s=10.0)) as cluster:
        create_topic(cluster, TRANSACTION_STATE_TOPIC, replicas=[[1]] * 4, config=_COMPACTED)
        create_topic(cluster, OFFSETS.topic, replicas=[[offsets_on]], config=_COMPACTED)
        create_topic(cluster, EVENTS, replicas=[[1]], config=_COMPACTED)
        spare = {node: create_topic(cluster, f"on-{node}", replicas=[[node]] * SPARE) for node in NODES}
        set_verification(kafka.bootstrap_servers, NODES, enabled=False)
        with (
            contextlib.closing(EventTail(kafka.bootstrap_servers, EVENTS)) as tail,
            RunningWatch(kafka.bootstrap_servers, checkpoint, *_WATCH, *flags) as watch,
        ):
            watch.until_ready()
            world = FaultWorld(kafka, cluster, watch, tail, spare)
            _warm_up(world)
            yield world


@contextlib.contextmanager
def started_world(
    clusters: Clusters,
    made: pytest.TempPathFactory,
    name: str,
    *flags: str,
    version: str = KAFKA_VERSION,
    offsets_on: int = 1,
) -> Iterator[FaultWorld]:
    """A world on a cluster of its own, with `flags` of its watch."""
    kafka = clusters.start(name, lambda: three_brokers(made.mktemp(name), version))
    try:
        with fault_world(kafka, made.mktemp("checkpoint"), *flags, offsets_on=offsets_on) as found:
            yield found
    finally:
        for node in NODES:
            kafka.broker(node).kill()  # nobody needs the data, and three orderly ends take their time
        clusters.end(name)


class Worlds:
    """One world at a time: who asks for another version, or another way, ends the one before.

    A fixture parametrised by version would be made anew whenever pytest sorts the scenarios in between.
    """

    def __init__(self, clusters: Clusters, made: pytest.TempPathFactory, *flags: str) -> None:
        self._start = partial(started_world, clusters, made, "worlds", *flags)
        self._open = contextlib.ExitStack()
        self._world: FaultWorld | None = None
        self._way = ""

    def of(self, version: str, way: str = "scanned") -> FaultWorld:
        """The world of a version, with a watch that finds out about data in this way (`WAYS`)."""
        if self._world is None or (self._world.kafka.version, self._way) != (version, way):
            self.close()
            self._world = self._open.enter_context(self._start(*WAYS[way], version=version))
            self._way = way
        return self._world

    def close(self) -> None:
        """Ends the world, if there is one."""
        self._open.close()
        self._world = None


def begins(client: RawProducer, partition: TopicPartition) -> bool:
    """Whether the coordinator lets the next transaction begin; not before every marker of the last is written."""
    try:
        client.add(partition)
    except TxnwatchError as exc:
        if "CONCURRENT_TRANSACTIONS" not in str(exc):
            raise
        return False
    return True


def _warm_up(world: FaultWorld) -> None:
    """The first verdict of a process takes seconds more: Spark compiles what it has not run before."""
    partition = world.partition(2)
    producer = stray_write(world.cluster, unique("first"), partition)
    eventually(lambda: world.published_after(0, [producer.producer_id]), 60.0, "the first verdict")
    abort_by_hand(world.cluster, partition, producer.producer_id)
    ids = [producer.producer_id]
    eventually(lambda: world.published_after(0, ids)[-1].event.status == "resolved", 60.0, "its end")


def three_brokers(directory: Path, version: str) -> EmbeddedKafka:
    """The cluster of a world."""
    return EmbeddedKafka(directory, brokers=len(NODES), version=version, properties=_BROKER)


def now_s() -> float:
    """Our clock, as the tail has it."""
    return time.time()
