"""A transactional producer for faults: each method sends one request of the protocol, in any order.

Real faults are ordinary requests at the wrong time, for example a produce request that arrives after the abort of its
transaction. The demo and the tests send such requests to a real broker with this producer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from kafka.record.default_records import DefaultRecordBatchBuilder

from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.ids import BrokerId, ProducerEpoch, ProducerId, TopicPartition
from txnwatch.state.model.quantities import DurationMs, Offset, TimestampMs
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection
from txnwatch.streaming.client.error_names import error_name
from txnwatch.streaming.client.metadata import topic_id_uuid

_RETRY = frozenset({6, 5, 3, 14, 15, 16, 51, 74, 75, 76})
VERIFIED_SINCE = 12  # from Produce 12 on, the broker adds the partition to the transaction (KIP-890)
CURRENT_TIMESTAMP = TimestampMs(-1)
_BATCH_SIZE = 1 << 20
_GROUP, _TRANSACTION = 0, 1  # key types of FindCoordinator


@dataclass
class RawProducer:
    """One transactional id, with the producer id and epoch that it received last."""

    cluster: Cluster
    transactional_id: str
    timeout_ms: DurationMs = DurationMs(60_000)
    producer_id: ProducerId = ProducerId(-1)
    producer_epoch: ProducerEpoch = ProducerEpoch(-1)

    def __post_init__(self) -> None:
        self._sequences: dict[TopicPartition, int] = {}

    def init(self) -> RawProducer:
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

    def produce(
        self,
        partition: TopicPartition,
        values: Iterable[bytes] = (b"x",),
        *,
        version: int = VERIFIED_SINCE - 1,
        timestamp_ms: TimestampMs = CURRENT_TIMESTAMP,
        transactional: bool = True,
    ) -> Offset:
        """Produces one batch and returns its base offset.

        Clients before Kafka 4.0 send version 11. It does not add the partition to the transaction, and a broker with
        `transaction.partition.verification.enable=false` (or older than 3.6) does not check that it was added.
        """
        records = list(values)
        sequence = self._sequences.get(partition, 0)
        batch = DefaultRecordBatchBuilder(
            2, 0, transactional, self.producer_id, self.producer_epoch, sequence, _BATCH_SIZE
        )
        stamp = time.time_ns() // 1_000_000 if timestamp_ms == CURRENT_TIMESTAMP else timestamp_ms
        for position, value in enumerate(records):
            batch.append(position, stamp, None, value, [])
        answer = self._produce(partition, version, bytes(batch.build()), transactional=transactional)
        self._sequences[partition] = sequence + len(records)
        return answer

    def _produce(self, partition: TopicPartition, version: int, records: bytes, *, transactional: bool) -> Offset:
        request = produce_request(
            partition,
            records,
            transactional_id=self.transactional_id if transactional else None,
            version=version,
            topic_id=self.cluster.known.topics[partition.topic].topic_id if version >= 13 else None,
        )
        for _ in _attempts():
            info = self.cluster.refresh().info(partition)
            if info is None or info.leader is None:
                continue
            response = self.cluster.node(info.leader).call(request, 15.0)
            answer = response.responses[0].partition_responses[0]
            if answer.error_code not in _RETRY:
                raise_for(answer.error_code, f"Produce to {partition}")
                return Offset(answer.base_offset)
        raise TxnwatchError(f"could not produce to {partition}")

    def end(self, *, commit: bool, version: int = 4) -> None:
        """Sends EndTxn; version 5 raises the producer epoch with every transaction (KIP-890)."""
        answer = self._at_coordinator(
            lambda _: EndTxnRequest(
                version=version,
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                committed=commit,
            )
        )
        if version >= 5 and answer.producer_id >= 0:
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()

    def _at_coordinator(self, build: Any, group: str | None = None) -> Any:
        error = "no answer"
        for _ in _attempts():
            coordinator = self._coordinator(group)
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
        raise TxnwatchError(f"the coordinator of {group or self.transactional_id} kept answering {error}")

    def _coordinator(self, group: str | None) -> BrokerId | None:
        connection: Connection = self.cluster.connection(self.cluster.bootstrap[0])
        key_type, key = (_TRANSACTION, self.transactional_id) if group is None else (_GROUP, group)
        request = FindCoordinatorRequest(version=4, key_type=key_type, coordinator_keys=[key])
        answer = connection.call(request, 15.0).coordinators[0]
        if answer.error_code:
            return None
        if answer.node_id not in self.cluster.known.brokers:
            self.cluster.refresh()
        return BrokerId(answer.node_id)


def produce_request(
    partition: TopicPartition,
    records: bytes,
    *,
    transactional_id: str | None = None,
    version: int = VERIFIED_SINCE - 1,
    topic_id: str | None = None,
) -> ProduceRequest:
    """The request that produces an encoded batch to one partition; from version 13 on it needs the topic id."""
    topic = ProduceRequest.TopicProduceData
    data = topic.PartitionProduceData(version=version, index=partition.partition, records=records)
    named: dict[str, Any] = {"name": partition.topic} if topic_id is None else {"topic_id": topic_id_uuid(topic_id)}
    return ProduceRequest(
        version=version,
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[topic(version=version, partition_data=[data], **named)],
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
