"""Real faults, made with real requests. Nothing here writes an event or touches txnwatch."""

from __future__ import annotations

import time

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

from txnwatch.embedded.raw_producer import RawProducer
from txnwatch.state.errors import TxnwatchError
from txnwatch.state.ids import TopicPartition
from txnwatch.state.ports import MarkerSpec
from txnwatch.streaming.admin import ClusterAdmin
from txnwatch.streaming.cluster import Cluster

VERIFICATION = "transaction.partition.verification.enable"


def set_verification(bootstrap: str, broker_ids: list[int], *, enabled: bool) -> None:
    """Switches KIP-890's verification of transactional writes, dynamically, as an operator can."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    entry = ConfigEntry(VERIFICATION, str(enabled).lower(), incremental_operation=AlterConfigOpType.SET)
    for broker_id in broker_ids:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker_id), incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(10.0)


def late_write_after_abort(cluster: Cluster, transactional_id: str, partition: TopicPartition) -> RawProducer:
    """A zombie's write: the transaction is aborted, and then a produce request of it still arrives (KAFKA-12671).

    What a client up to 3.x does when its request is delayed by a retry or a pause; brokers that verify
    transactional writes (3.6 on, by default) refuse it.
    """
    producer = RawProducer(cluster, transactional_id).init()
    producer.add(partition)
    producer.produce(partition, [b"in time"])
    producer.end(commit=False)
    _await_end(cluster, producer, partition)
    producer.produce(partition, [b"too late"])
    return producer


def _await_end(cluster: Cluster, producer: RawProducer, partition: TopicPartition) -> None:
    """Waits for the markers; EndTxn answers before they are written."""
    admin = ClusterAdmin(cluster)
    for _ in range(200):
        if admin.read_partitions([partition])[partition].open_transaction(producer.producer_id) is None:
            return
        time.sleep(0.05)
    raise TxnwatchError(f"the transaction of {producer.transactional_id} did not end")


def abort_by_hand(cluster: Cluster, partition: TopicPartition, producer_id: int) -> None:
    """What an administrator does: an ABORT marker with the epochs that DescribeProducers tells.

    Raises:
        TxnwatchError: nothing is open there, or the broker refuses.
    """
    admin = ClusterAdmin(cluster)
    row = admin.read_partitions([partition])[partition].open_transaction(producer_id)
    if row is None:
        raise TxnwatchError(f"producer id {producer_id} has nothing open on {partition}")
    marker = MarkerSpec(partition, producer_id, row.producer_epoch, max(0, row.coordinator_epoch))
    problem = admin.write_marker(marker)
    if problem is not None:
        raise TxnwatchError(f"the marker was refused: {problem}")
