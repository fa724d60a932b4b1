"""The fault of the demo, made with real requests, and the producer that sends them one by one.

The fault is an ordinary request at the wrong time: a produce request that arrives after the abort of its transaction.
No client library sends requests in this order. Nothing here writes an incident event or calls the detector.

Apart: the tests make the fault without the demo.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from kafka.record.default_records import DefaultRecordBatchBuilder

from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.values import BrokerId, DurationMs, Offset, ProducerEpoch, ProducerId, TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection, error_name

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


_RETRY = frozenset({6, 5, 3, 14, 15, 16, 51, 74, 75, 76})
# The highest versions that are sent. An older broker gets the highest version that it supports.
PRODUCE_VERSION = 11  # of clients before Kafka 4.0: the broker does not add the partition to the transaction
END_VERSION = 4  # of clients before Kafka 4.0: the producer epoch stays
_BATCH_SIZE = 1 << 20
_TRANSACTION = 1  # key type of FindCoordinator


@dataclass
class StepwiseProducer:
    """One transactional id, with the producer id and epoch that it received last."""

    cluster: Cluster
    transactional_id: str
    timeout_ms: DurationMs = DurationMs(60_000)
    producer_id: ProducerId = ProducerId(-1)
    producer_epoch: ProducerEpoch = ProducerEpoch(-1)

    def __post_init__(self) -> None:
        self._sequences: dict[TopicPartition, int] = {}

    def init(self) -> Self:
        """Sends InitProducerId: the id gets a new epoch, and its open transaction is aborted."""
        answer = self._at_coordinator(
            lambda connection: InitProducerIdRequest(
                version=connection.require_version(InitProducerIdRequest, highest=4),
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self.timeout_ms,
                producer_id=-1,
                producer_epoch=-1,
            )
        )
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        return self

    def add(self, *partitions: TopicPartition) -> None:
        """Sends AddPartitionsToTxn, version 3; the transaction is then open at the coordinator."""
        version, topic = 3, AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        names: dict[str, list[int]] = {}
        for partition in partitions:
            names.setdefault(partition.topic, []).append(partition.partition)
        request = AddPartitionsToTxnRequest(
            version=version,
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[topic(version=version, name=name, partitions=ids) for name, ids in names.items()],
        )
        answer = self._at_coordinator(lambda _: request)
        for result in answer.results_by_topic_v3_and_below:
            for partition in result.results_by_partition:
                raise_for(partition.partition_error_code, f"AddPartitionsToTxn {result.name}")

    def produce(self, partition: TopicPartition, values: Iterable[bytes] = (b"x",)) -> Offset:
        """Produces one batch and returns its base offset.

        Clients before Kafka 4.0 send at most version 11. It does not add the partition to the transaction. A broker
        with `transaction.partition.verification.enable=false` (or older than 3.6) does not check that it was added.
        """
        records = list(values)
        batch = self._batch(partition, records, time.time_ns() // 1_000_000)
        return self._append(partition, batch, len(records), self.transactional_id, PRODUCE_VERSION)

    def _batch(
        self, partition: TopicPartition, values: list[bytes], timestamp_ms: int, *, transactional: bool = True
    ) -> bytes:
        sequence = self._sequences.get(partition, 0)
        batch = DefaultRecordBatchBuilder(
            2, 0, transactional, self.producer_id, self.producer_epoch, sequence, _BATCH_SIZE
        )
        for position, value in enumerate(values):
            batch.append(position, timestamp_ms, None, value, [])
        return bytes(batch.build())

    def _append(
        self, partition: TopicPartition, batch: bytes, count: int, transactional_id: str | None, version: int
    ) -> Offset:
        for _ in _attempts():
            info = self.cluster.refresh().info(partition)
            if info is None or info.leader is None:
                continue
            leader = self.cluster.node(info.leader)
            supported = leader.require_version(ProduceRequest, highest=version)
            response = leader.call(
                produce_request(partition, batch, transactional_id=transactional_id, version=supported), 15.0
            )
            answer = response.responses[0].partition_responses[0]
            if answer.error_code not in _RETRY:
                raise_for(answer.error_code, f"Produce to {partition}")
                self._sequences[partition] = self._sequences.get(partition, 0) + count
                return Offset(answer.base_offset)
        raise TxnwatchError(f"could not produce to {partition}")

    def end(self, *, commit: bool) -> None:
        """Sends EndTxn."""
        self._send_end(commit=commit, version=END_VERSION)

    def _send_end(self, *, commit: bool, version: int) -> Any:
        return self._at_coordinator(
            lambda connection: EndTxnRequest(
                version=connection.require_version(EndTxnRequest, highest=version),
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                committed=commit,
            )
        )

    def _at_coordinator(self, build: Any) -> Any:
        return self._at_coordinator_of(_TRANSACTION, self.transactional_id, build)

    def _at_coordinator_of(self, key_type: int, key: str, build: Any) -> Any:
        error = "no answer"
        for _ in _attempts():
            coordinator = self._coordinator(key_type, key)
            if coordinator is None:
                continue
            connection = self.cluster.node(coordinator)
            request = build(connection)
            response = connection.call(request, 15.0)
            code = getattr(response, "error_code", 0)
            if code not in _RETRY:
                raise_for(code, request.name)
                return response
            error = error_name(code)
        raise TxnwatchError(f"the coordinator of {key} kept answering {error}")

    def _coordinator(self, key_type: int, key: str) -> BrokerId | None:
        connection: Connection = self.cluster.connection(self.cluster.bootstrap[0])
        request = FindCoordinatorRequest(version=4, key_type=key_type, coordinator_keys=[key])
        answer = connection.call(request, 15.0).coordinators[0]
        if answer.error_code:
            return None
        if answer.node_id not in self.cluster.known.brokers:
            self.cluster.refresh()
        return BrokerId(answer.node_id)


def produce_request(
    partition: TopicPartition, records: bytes, *, transactional_id: str | None = None, version: int = PRODUCE_VERSION
) -> ProduceRequest:
    """The request that produces an encoded batch to one partition."""
    topic = ProduceRequest.TopicProduceData
    data = topic.PartitionProduceData(version=version, index=partition.partition, records=records)
    return ProduceRequest(
        version=version,
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[topic(version=version, name=partition.topic, partition_data=[data])],
    )


def _attempts() -> Iterable[int]:
    for attempt in range(150):
        if attempt:
            time.sleep(0.1)
        yield attempt


def raise_for(code: int, what: str) -> None:
    """Raises the error that an answer reports.

    Raises:
        TxnwatchError: the code is not 0; the message has the request and Kafka's name of the error.
    """
    if code:
        raise TxnwatchError(f"{what}: {error_name(code)}")
