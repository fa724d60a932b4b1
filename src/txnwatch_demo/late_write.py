"""The fault of the demo, made with real requests. Nothing here writes an incident event or calls the detector."""

from __future__ import annotations

import time

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.stepwise_producer import StepwiseProducer

VERIFICATION = "transaction.partition.verification.enable"


def set_verification(bootstrap: str, broker_ids: list[int], *, enabled: bool) -> None:
    """Switches KIP-890's verification of transactional writes on or off, by a dynamic setting of the brokers."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    entry = ConfigEntry(VERIFICATION, str(enabled).lower(), incremental_operation=AlterConfigOpType.SET)
    for broker_id in broker_ids:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker_id), incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(10.0)


def late_write_after_abort(cluster: Cluster, transactional_id: str, partition: TopicPartition) -> StepwiseProducer:
    """A zombie's write: a produce request arrives after the abort of its transaction (KAFKA-12671).

    A client up to 3.x does this when a retry or a pause delays its request. Brokers that verify transactional writes
    (the default since 3.6) reject the request.
    """
    producer = StepwiseProducer(cluster, transactional_id).init()
    write_late(cluster, producer, partition, commit=False)
    return producer


def write_late(cluster: Cluster, producer: StepwiseProducer, partition: TopicPartition, *, commit: bool) -> None:
    """Writes once in a transaction, and once more after its end."""
    producer.add(partition)
    producer.produce(partition, [b"in time"])
    producer.end(commit=commit)
    await_end(cluster, producer, partition)
    producer.produce(partition, [b"too late"])


def await_end(cluster: Cluster, producer: StepwiseProducer, partition: TopicPartition) -> None:
    """Waits until the marker is written; EndTxn answers before that."""
    admin = ClusterAdmin(cluster)
    for _ in range(1_200):
        if admin.read_partitions([partition])[partition].open_transaction(producer.producer_id) is None:
            return
        time.sleep(0.05)
    raise TxnwatchError(f"the transaction of {producer.transactional_id} did not end on {partition}")
