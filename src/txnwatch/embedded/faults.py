"""Real faults, made with real requests. Nothing here writes an incident event or calls the detector."""

from __future__ import annotations

import time

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

from txnwatch.embedded.raw_producer import RawProducer
from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.ids import CoordinatorEpoch, ProducerId, TopicPartition
from txnwatch.state.model.ports import MarkerSpec
from txnwatch.state.model.quantities import DurationMs
from txnwatch.streaming.admin.admin import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster

VERIFICATION = "transaction.partition.verification.enable"
LONG_TIMEOUT_MS = DurationMs(600_000)
_FAR_EPOCH = CoordinatorEpoch(100)


def set_verification(bootstrap: str, broker_ids: list[int], *, enabled: bool) -> None:
    """Switches KIP-890's verification of transactional writes on or off, by a dynamic setting of the brokers."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    entry = ConfigEntry(VERIFICATION, str(enabled).lower(), incremental_operation=AlterConfigOpType.SET)
    for broker_id in broker_ids:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker_id), incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(10.0)


def stray_write(cluster: Cluster, transactional_id: str, partition: TopicPartition) -> RawProducer:
    """Writes to a partition that was never added to a transaction (KAFKA-14402)."""
    producer = RawProducer(cluster, transactional_id, LONG_TIMEOUT_MS).init()
    producer.produce(partition, [b"never added"])
    return producer


def late_write_after_abort(cluster: Cluster, transactional_id: str, partition: TopicPartition) -> RawProducer:
    """A zombie's write: a produce request arrives after the abort of its transaction (KAFKA-12671).

    A client up to 3.x does this when a retry or a pause delays its request. Brokers that verify transactional writes
    (the default since 3.6) reject the request.
    """
    return late_write(cluster, transactional_id, partition, commit=False)


def late_write(cluster: Cluster, transactional_id: str, partition: TopicPartition, *, commit: bool) -> RawProducer:
    """A zombie's write after a commit or an abort; see `late_write_after_abort`."""
    producer = RawProducer(cluster, transactional_id).init()
    producer.add(partition)
    producer.produce(partition, [b"in time"])
    producer.end(commit=commit)
    await_end(cluster, producer, partition)
    producer.produce(partition, [b"too late"])
    return producer


def await_end(cluster: Cluster, producer: RawProducer, partition: TopicPartition) -> None:
    """Waits until the marker is written; EndTxn answers before that."""
    admin = ClusterAdmin(cluster)
    for _ in range(200):
        if admin.read_partitions([partition])[partition].open_transaction(producer.producer_id) is None:
            return
        time.sleep(0.05)
    raise TxnwatchError(f"the transaction of {producer.transactional_id} did not end on {partition}")


def abort_by_hand(cluster: Cluster, partition: TopicPartition, producer_id: ProducerId) -> None:
    """Writes an ABORT marker as an administrator does, with the epochs of DescribeProducers.

    Raises:
        TxnwatchError: nothing is open there, or the broker rejects the marker.
    """
    end_by_hand(cluster, partition, producer_id, commit=False)


def end_by_hand(cluster: Cluster, partition: TopicPartition, producer_id: ProducerId, *, commit: bool) -> None:
    """Writes a COMMIT or an ABORT marker; COMMIT is right if the client's commit was acknowledged.

    Raises:
        TxnwatchError: nothing is open there, or the broker rejects the marker.
    """
    admin = ClusterAdmin(cluster)
    row = admin.read_partitions([partition])[partition].open_transaction(producer_id)
    if row is None:
        raise TxnwatchError(f"producer id {producer_id} has nothing open on {partition}")
    marker = MarkerSpec(
        partition, row.producer_id, row.producer_epoch, row.coordinator_epoch or CoordinatorEpoch(0), commit
    )
    problem = admin.write_marker(marker)
    if problem is not None:
        raise TxnwatchError(f"the marker was refused: {problem}")


def foreign_marker(cluster: Cluster, partition: TopicPartition, producer: RawProducer) -> None:
    """Writes an ABORT marker with a future coordinator epoch, while the coordinator still owns the transaction.

    The marker ends the transaction on the partition, which then rejects every marker of the coordinator (KAFKA-16352).

    Raises:
        TxnwatchError: the broker rejects the marker.
    """
    marker = MarkerSpec(partition, producer.producer_id, producer.producer_epoch, _FAR_EPOCH)
    problem = ClusterAdmin(cluster).write_marker(marker)
    if problem is not None:
        raise TxnwatchError(f"the marker was refused: {problem}")
