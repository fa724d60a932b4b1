"""Faults that need a killed broker: a marker that is lost with the tail of a log, a partition without a leader.

Each function returns when the fault is in effect. The caller chooses the partition's replicas and settings; a docstring
has what its fault needs. No partition may be led by node 1, the controller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from kafka.protocol.metadata import MetadataRequest

from support.answers import state_of
from support.topics import admin_of
from txnwatch.state.model.errors import BrokerError, TxnwatchError
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import Offset, TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.wire.record_batch import walk
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

_PATIENCE_S = 60.0


@contextmanager
def leaderless(kafka: EmbeddedKafka, cluster: Cluster, partition: TopicPartition, node: int) -> Iterator[None]:
    """Kills the broker of the partition's only replica; the partition has no leader while the block runs."""
    kafka.broker(node).kill()
    await_leader(cluster, partition, None)
    yield
    kafka.start_broker(node)
    await_leader(cluster, partition, node)


def cut_tail(kafka: EmbeddedKafka, cluster: Cluster, partition: TopicPartition, node: int) -> bytes:
    """Removes the partition's last batch from disk, as a power failure of one machine does, and returns it.

    The broker is killed with kill -9, and its file is cut.
    """
    kafka.broker(node).kill()
    log = _file_of(kafka, partition, node)
    *_, (last, _) = walk(log.read_bytes())
    lost = _cut(log, last)
    kafka.start_broker(node)
    await_leader(cluster, partition, node)
    return lost


@dataclass(frozen=True)
class UnwrittenTail:
    """What a log loses at a power failure: everything from an offset on, which is on no disk yet."""

    partition: TopicPartition
    node: int
    begin: Offset


def power_failure(kafka: EmbeddedKafka, cluster: Cluster, tails: Sequence[UnwrittenTail]) -> list[bytes]:
    """Ends every broker at once and starts all of them again; returns what each tail has lost.

    Node 1 is killed first: it is the only controller, so none fences the other brokers. It is also started first. Up to
    Kafka 3.9 a controller accepts a broker only after the session of before has timed out, and fences those that are
    not back then. So the leader epochs of the partitions on node 1 stay as they were.
    """
    nodes = range(1, 1 + len(kafka.bootstrap_servers.split(",")))
    for node in nodes:
        kafka.broker(node).kill()
    lost = []
    for tail in tails:
        log = _file_of(kafka, tail.partition, tail.node)
        positions = (at for at, header in walk(log.read_bytes()) if header.base_offset >= tail.begin)
        lost.append(_cut(log, next(positions)))
    for node in nodes:
        kafka.start_broker(node)
    for tail in tails:
        await_leader(cluster, tail.partition, tail.node)
    return lost


def _file_of(kafka: EmbeddedKafka, partition: TopicPartition, node: int) -> Path:
    return max((kafka.log_directory(node) / str(partition)).glob("*.log"))


def _cut(log: Path, position: int) -> bytes:
    """Cuts the file of a segment, and returns what is lost; there is no producer snapshot."""
    content = log.read_bytes()
    with log.open("r+b") as file:
        file.truncate(position)
    for snapshot in log.parent.glob("*.snapshot"):
        snapshot.unlink()
    return content[position:]


def elect_uncleanly(
    kafka: EmbeddedKafka,
    cluster: Cluster,
    partition: TopicPartition,
    replicas: tuple[int, int],
    while_alone: Callable[[], None],
) -> None:
    """Kills the leader after it has written alone; the follower, which was down, becomes leader (KAFKA-20716).

    Needs unclean.leader.election.enable and min.insync.replicas=1. The old leader stays down: the caller restarts it.
    """
    leader, follower = replicas
    await_leader(cluster, partition, leader)
    kafka.broker(follower).kill()
    _await(lambda: in_sync(cluster, partition) == {leader}, f"{partition} to be in sync on {leader} alone")
    while_alone()
    kafka.broker(leader).kill()
    kafka.start_broker(follower)
    _elect(cluster, partition, follower)
    await_leader(cluster, partition, follower)


def _elect(cluster: Cluster, partition: TopicPartition, follower: int) -> None:
    """Asks for the election: the controllers of 3.3 do not read unclean.leader.election.enable.

    It asks again until the follower leads: a controller that still takes the killed leader for alive elects nobody.
    """
    admin, asked = admin_of(cluster), ConfluentTopicPartition(partition.topic, partition.partition)

    def is_elected() -> bool:
        with suppress(KafkaException):  # the controller was the killed broker
            admin.elect_leaders(ElectionType.UNCLEAN, [asked]).result(_PATIENCE_S)
        info = cluster.refresh().info(partition)
        return info is not None and info.leader == follower

    _await(is_elected, f"an unclean election of {partition}")


def await_leader(cluster: Cluster, partition: TopicPartition, leader: int | None) -> None:
    """Waits until the metadata of every broker has this leader of the partition; None waits for no leader.

    One broker is not enough: a coordinator with old metadata keeps its markers in the queue of the old leader.

    Raises:
        TxnwatchError: not within 60 s.
    """

    def is_leader() -> bool:
        answers = [
            cluster.metadata_from(endpoint, [partition.topic]).info(partition)
            for endpoint in cluster.refresh().brokers.values()
        ]
        return all(info is not None and info.leader == leader for info in answers)

    _await(is_leader, f"{partition} to be led by {leader}")


def await_complete(cluster: Cluster, transactional_id: str) -> None:
    """Waits until the coordinator has written Complete*: no marker is outstanding.

    Raises:
        TxnwatchError: not within 60 s.
    """

    def is_complete() -> bool:
        state = state_of(ClusterAdmin(cluster), transactional_id)
        return state in {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}

    _await(is_complete, f"the transaction of {transactional_id} to be complete")


def in_sync(cluster: Cluster, partition: TopicPartition) -> set[int]:
    """The in-sync replicas of the partition, from the metadata of one broker."""
    topics = [MetadataRequest.MetadataRequestTopic(version=4, name=partition.topic)]
    request = MetadataRequest(version=4, topics=topics, allow_auto_topic_creation=False)
    found = cluster.call(cluster.any_connection(), request).topics[0].partitions
    return next(set(one.isr_nodes) for one in found if one.partition_index == partition.partition)


def _await(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        with suppress(BrokerError):  # the request may have gone to the killed broker
            if condition():
                return
        time.sleep(0.1)
    raise TxnwatchError(f"waited {_PATIENCE_S:.0f} s for {what}")
