"""Real faults, made with real requests. Nothing here writes an event or touches txnwatch."""

from __future__ import annotations

import time

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

from txnwatch.embedded.raw_producer import RawProducer
from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.ports import MarkerSpec
from txnwatch.streaming.admin.admin import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster

VERIFICATION = "transaction.partition.verification.enable"
LONG_TIMEOUT_MS = 600_000
_FAR_EPOCH = 100


def set_verification(bootstrap: str, broker_ids: list[int], *, enabled: bool) -> None:
    """Switches KIP-890's verification of transactional writes, dynamically, as an operator can."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    entry = ConfigEntry(VERIFICATION, str(enabled).lower(), incremental_operation=AlterConfigOpType.SET)
    for broker_id in broker_ids:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker_id), incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(10.0)


def stray_write(cluster: Cluster, transactional_id: str, partition: TopicPartition) -> RawProducer:
    """A write of a transaction that was never begun: the partition was not added to any (KAFKA-14402)."""
    producer = RawProducer(cluster, transactional_id, LONG_TIMEOUT_MS).init()
    producer.produce(partition, [b"never added"])
    return producer


def late_write_after_abort(cluster: Cluster, transactional_id: str, partition: TopicPartition) -> RawProducer:
    """A zombie's write: the transaction is aborted, and then a produce request of it still arrives (KAFKA-12671).

    What a client up to 3.x does when its request is delayed by a retry or a pause; brokers that verify
    transactional writes (3.6 on, by default) refuse it.
    """
    return late_write(cluster, transactional_id, partition, commit=False)


def late_write(cluster: Cluster, transactional_id: str, partition: TopicPartition, *, commit: bool) -> RawProducer:
    """The same after a transaction that ended one way or the other."""
    producer = RawProducer(cluster, transactional_id).init()
    producer.add(partition)
    producer.produce(partition, [b"in time"])
    producer.end(commit=commit)
    await_end(cluster, producer, partition)
    producer.produce(partition, [b"too late"])
    return producer


def await_end(cluster: Cluster, producer: RawProducer, partition: TopicPartition) -> None:
    """Waits for the marker; EndTxn answers before it is written."""
    admin = ClusterAdmin(cluster)
    for _ in range(200):
        if admin.read_partitions([partition])[partition].open_transaction(producer.producer_id) is None:
            return
        time.sleep(0.05)
    raise TxnwatchError(f"the transaction of {producer.transactional_id} did not end on {partition}")


def abort_by_hand(cluster: Cluster, partition: TopicPartition, producer_id: int) -> None:
    """What an administrator does: an ABORT marker with the epochs that DescribeProducers tells.

    Raises:
        TxnwatchError: nothing is open there, or the broker refuses.
    """
    end_by_hand(cluster, partition, producer_id, commit=False)


def end_by_hand(cluster: Cluster, partition: TopicPartition, producer_id: int, *, commit: bool) -> None:
    """The same with either marker; COMMIT is right where the client was told that it had committed.

    Raises:
        TxnwatchError: nothing is open there, or the broker refuses.
    """
    admin = ClusterAdmin(cluster)
    row = admin.read_partitions([partition])[partition].open_transaction(producer_id)
    if row is None:
        raise TxnwatchError(f"producer id {producer_id} has nothing open on {partition}")
    marker = MarkerSpec(partition, producer_id, row.producer_epoch, max(0, row.coordinator_epoch), commit)
    problem = admin.write_marker(marker)
    if problem is not None:
        raise TxnwatchError(f"the marker was refused: {problem}")


def foreign_marker(cluster: Cluster, partition: TopicPartition, producer: RawProducer) -> None:
    """An ABORT marker while the coordinator still owns the transaction, from an epoch it has not reached.

    The partition is closed, and every marker of the coordinator's own is refused from then on (KAFKA-16352).

    Raises:
        TxnwatchError: the broker refuses.
    """
    marker = MarkerSpec(partition, producer.producer_id, producer.producer_epoch, _FAR_EPOCH)
    problem = ClusterAdmin(cluster).write_marker(marker)
    if problem is not None:
        raise TxnwatchError(f"the marker was refused: {problem}")
