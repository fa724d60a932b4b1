"""A cluster and a watch whose disks, clocks, network and quotas a test disturbs, with healthy applications beside them.

Two brokers. Node 1 is the controller and has the coordinators and the events; data is on both. The watch reaches them
through forwarders. Transactional writes are not verified, so that a test can make a hang at any time.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.cut_network import ReachedByForwarders
from support.event_tail import EventTail
from support.fleet import fleet_of
from support.forwarder import Forwarder
from support.kafka_faults import abort_by_hand
from support.metrics import Scrape
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.shim import Shim
from support.small_disks import on_disks
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedRedis
from txnwatch_demo.late_write import set_verification

NODES = [1, 2]
EVENTS, SOURCE, TARGET = "disturbed.events", "disturbed.source", "disturbed.target"
HEALTHY_S = 120.0
_SPARE = 48
_COMPACTED = {"cleanup.policy": "compact", "min.insync.replicas": "1"}


@dataclass
class DisturbedWorld:
    """What a disturbance has at hand.

    Attributes:
        checkpoint_disk, scratch_disk: the disks of the watch, as it sees them.
        ours: the clock and the speed of the disks of the watch.
        clocks: those of the brokers, by node.
        to_redis: the network between the watch and Redis.
    """

    kafka: ReachedByForwarders
    cluster: Cluster
    watch: RunningWatch
    tail: EventTail
    checkpoint_disk: Path
    scratch_disk: Path
    ours: Shim
    clocks: dict[int, Shim]
    spare: dict[int, list[TopicPartition]]
    to_redis: Forwarder

    def scrape(self) -> Scrape | None:
        """The metrics, None if there is no answer."""
        with contextlib.suppress(OSError):
            return Scrape.at(self.watch.metrics_url)
        return None

    def is_healthy(self) -> bool:
        """Whether the watch proves everything: it is ready and up, no partition is unproven, no event waits."""
        found = self.scrape()
        if found is None or found.value("up") != 1 or found.value("ready") != 1:
            return False
        unproven = [found.value("unproven_partitions", log=log) for log in ("data", "coordinator")]
        waiting = [sample.value for sample in found.families["txnwatch_sink_waiting_events"].samples]
        return unproven == [0, 0] and not any(waiting)

    def producer(self, timeout_ms: int = 60_000) -> RawProducer:
        """A producer with a new transactional id."""
        return RawProducer(self.cluster, unique("disturbed"), timeout_ms).init()


@contextlib.contextmanager
def disturbed_world(clusters: Clusters, directory: Path) -> Iterator[DisturbedWorld]:
    """The cluster, the watch and the applications."""
    disks = [directory / "checkpoint-disk", directory / "scratch-disk"]
    for disk in disks:
        disk.mkdir(parents=True)
    ours = Shim(directory / "shim-ours", directory)
    clocks = {node: Shim(directory / f"shim-{node}") for node in NODES}
    kafka = ReachedByForwarders(directory / "kafka", len(NODES), clocks)
    with kafka.forwarding(), _redis(directory) as to_redis:
        clusters.start("disturbed", lambda: kafka)
        try:
            with contextlib.closing(connect(kafka, timeout_s=2.0)) as cluster:
                spare = _topics(cluster)
                set_verification(kafka.bootstrap_servers, NODES, enabled=False)
                fleet = fleet_of(kafka.bootstrap_servers, SOURCE, TARGET, writers=4, copiers=1)
                watch = _watch(kafka, disks, to_redis)
                with (
                    contextlib.closing(EventTail(kafka.bootstrap_servers, EVENTS)) as tail,
                    fleet.kept_up(),
                    _started(watch, ours, disks[1]),
                ):
                    world = DisturbedWorld(kafka, cluster, watch, tail, *disks, ours, clocks, spare, to_redis)
                    _warm_up(world)
                    yield world
        finally:
            for node in NODES:
                kafka.broker(node).kill()
            clusters.end("disturbed")


def _topics(cluster: Cluster) -> dict[int, list[TopicPartition]]:
    create_topic(cluster, TRANSACTION_STATE_TOPIC, replicas=[[1]] * 4, config=_COMPACTED)
    create_topic(cluster, "__consumer_offsets", replicas=[[1]], config=_COMPACTED)
    create_topic(cluster, EVENTS, replicas=[[1]], config=_COMPACTED)
    for topic in (SOURCE, TARGET):
        create_topic(cluster, topic, replicas=[[node] for node in NODES])
    return {node: create_topic(cluster, f"on-{node}", replicas=[[node]] * _SPARE) for node in NODES}


@contextlib.contextmanager
def _redis(directory: Path) -> Iterator[Forwarder]:
    """A Redis; the watch reaches it through the forwarder."""
    with EmbeddedRedis(directory / "redis") as redis, Forwarder(("127.0.0.1", redis.port)) as to_redis:
        redis.start()
        to_redis.start()
        yield to_redis


def _watch(kafka: ReachedByForwarders, disks: list[Path], to_redis: Forwarder) -> RunningWatch:
    flags = ("--events-topic", EVENTS, "--http-port", "0", "--redis-url", f"redis://{to_redis.address}/0")
    watch = RunningWatch(kafka.outside, disks[0] / "checkpoint", *flags)
    watch.command = on_disks(*disks, watch.command)
    return watch


@contextlib.contextmanager
def _started(watch: RunningWatch, ours: Shim, scratch: Path) -> Iterator[None]:
    os.environ["SPARK_LOCAL_DIRS"] = str(scratch)
    try:
        with ours.preloaded():
            watch.start()
    finally:
        del os.environ["SPARK_LOCAL_DIRS"]
    try:
        watch.until_ready()
        yield
    finally:
        if watch.is_running:
            watch.stop()


def _warm_up(world: DisturbedWorld) -> None:
    """The first verdict of a process takes seconds more: Spark compiles what it has not run before."""
    partition, producer = world.spare[1].pop(), world.producer()
    producer.produce(partition)
    eventually(lambda: world.tail.published, HEALTHY_S, "the first verdict")
    abort_by_hand(world.cluster, partition, producer.producer_id)
    eventually(lambda: world.tail.published[-1].event.status == "resolved", HEALTHY_S, "its end")
    eventually(world.is_healthy, HEALTHY_S, "a healthy watch")


def now_s() -> float:
    """Our clock, as the tail has it."""
    return time.time()
