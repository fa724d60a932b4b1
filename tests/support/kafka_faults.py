"""More real faults, made with real requests; txnwatch_demo/late_write.py has the one of the demo."""

from __future__ import annotations

from support.raw_producer import RawProducer
from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.ports import MarkerSpec
from txnwatch.state.model.values import CoordinatorEpoch, DurationMs, ProducerId, TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.late_write import write_late

LONG_TIMEOUT_MS = DurationMs(600_000)
_FAR_EPOCH = CoordinatorEpoch(100)


def late_write_after_abort(cluster: Cluster, transactional_id: str, partition: TopicPartition) -> RawProducer:
    """The fault of the demo, by a producer that can go on to send any request."""
    return late_write(cluster, transactional_id, partition, commit=False)


def late_write(cluster: Cluster, transactional_id: str, partition: TopicPartition, *, commit: bool) -> RawProducer:
    """A zombie's write after a commit or an abort (KAFKA-12671)."""
    producer = RawProducer(cluster, transactional_id).init()
    write_late(cluster, producer, partition, commit=commit)
    return producer


def stray_write(cluster: Cluster, transactional_id: str, partition: TopicPartition) -> RawProducer:
    """Writes to a partition that was never added to a transaction (KAFKA-14402)."""
    producer = RawProducer(cluster, transactional_id, LONG_TIMEOUT_MS).init()
    producer.produce(partition, [b"never added"])
    return producer


def next_transaction(cluster: Cluster, transactional_id: str, partition: TopicPartition) -> None:
    """The next transaction of a producer; it absorbs what is open on the partition."""
    producer = RawProducer(cluster, transactional_id).init()
    producer.add(partition)
    producer.produce(partition)
    producer.end(commit=True)


def absorbed_write(cluster: Cluster, transactional_id: str, partition: TopicPartition) -> None:
    """A stray write that the next transaction of its producer absorbs at once."""
    stray_write(cluster, transactional_id, partition)
    next_transaction(cluster, transactional_id, partition)


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

    The marker ends the transaction on the partition, which then rejects every marker of the coordinator.

    Raises:
        TxnwatchError: the broker rejects the marker.
    """
    marker = MarkerSpec(partition, producer.producer_id, producer.producer_epoch, _FAR_EPOCH)
    problem = ClusterAdmin(cluster).write_marker(marker)
    if problem is not None:
        raise TxnwatchError(f"the marker was refused: {problem}")
