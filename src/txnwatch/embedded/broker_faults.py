"""Faults that need a broker to die: a marker that is lost with a log's tail, a partition that has no leader.

Each leaves every broker running, and returns when the fault is in effect. The partition's replicas and settings
are the caller's: what a fault needs is in its description. Node 1 is the controller and must lead neither.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from kafka.protocol.metadata import MetadataRequest

from txnwatch.embedded.kafka import EmbeddedKafka
from txnwatch.state.model.errors import BrokerError, TxnwatchError
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.transaction import TransactionState
from txnwatch.streaming.admin.admin import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.metadata import NO_LEADER

MARKER_BYTES = 78  # a control batch with one record, always
_PATIENCE_S = 60.0


@contextmanager
def leaderless(kafka: EmbeddedKafka, cluster: Cluster, partition: TopicPartition, node: int) -> Iterator[None]:
    """The only replica's broker is killed; what happens inside happens while the partition has no leader."""
    kafka.broker(node).kill()
    await_leader(cluster, partition, NO_LEADER)
    yield
    kafka.start_broker(node)
    await_leader(cluster, partition, node)


def cut_tail(kafka: EmbeddedKafka, cluster: Cluster, partition: TopicPartition, node: int) -> None:
    """The disk loses the partition's last batch, a marker: kill -9, a shorter file, and no snapshot of producers."""
    kafka.broker(node).kill()
    directory = kafka.log_directory(node) / str(partition)
    log = max(directory.glob("*.log"))
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - MARKER_BYTES)
    for snapshot in directory.glob("*.snapshot"):
        snapshot.unlink()
    kafka.start_broker(node)
    await_leader(cluster, partition, node)


def elect_uncleanly(
    kafka: EmbeddedKafka,
    cluster: Cluster,
    partition: TopicPartition,
    replicas: tuple[int, int],
    while_alone: Callable[[], None],
) -> None:
    """The leader writes alone and dies, and the follower that was away takes over (KAFKA-20716).

    Needs unclean.leader.election.enable and min.insync.replicas=1. Ends with the old leader back as a follower.
    """
    leader, follower = replicas
    await_leader(cluster, partition, leader)
    kafka.broker(follower).kill()
    _await(lambda: in_sync(cluster, partition) == {leader}, f"{partition} to be in sync on {leader} alone")
    while_alone()
    kafka.broker(leader).kill()
    kafka.start_broker(follower)
    await_leader(cluster, partition, follower)


def await_leader(cluster: Cluster, partition: TopicPartition, leader: int) -> None:
    """Waits until every broker says that this one leads the partition; NO_LEADER waits for it to have none.

    One broker's word is not enough: a coordinator that has not heard it yet keeps its markers for the old leader.

    Raises:
        TxnwatchError: it does not come to that.
    """

    def is_leader() -> bool:
        told = [
            cluster.metadata_from(endpoint, [partition.topic]).info(partition)
            for endpoint in cluster.refresh().brokers.values()
        ]
        return all(info is not None and info.leader == leader for info in told)

    _await(is_leader, f"{partition} to be led by {leader}")


def await_complete(cluster: Cluster, transactional_id: str) -> None:
    """Waits until the coordinator has written Complete*: it owes no marker any more.

    Raises:
        TxnwatchError: it does not come to that.
    """

    def is_complete() -> bool:
        state = ClusterAdmin(cluster).describe_transactions([transactional_id])[transactional_id].state
        return state in {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}

    _await(is_complete, f"the transaction of {transactional_id} to be complete")


def in_sync(cluster: Cluster, partition: TopicPartition) -> set[int]:
    """The brokers that have all of the partition, as the controller knows it."""
    topics = [MetadataRequest.MetadataRequestTopic(version=4, name=partition.topic)]
    request = MetadataRequest(version=4, topics=topics, allow_auto_topic_creation=False)
    found = cluster.call(cluster.any_connection(), request).topics[0].partitions
    return next(set(one.isr_nodes) for one in found if one.partition_index == partition.partition)


def _await(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        with suppress(BrokerError):  # the broker that was asked may be the one that went away
            if condition():
                return
        time.sleep(0.1)
    raise TxnwatchError(f"waited {_PATIENCE_S:.0f} s for {what}")
