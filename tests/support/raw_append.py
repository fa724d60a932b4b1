"""Appends a batch of any bytes to a partition, which no client library would send."""

from __future__ import annotations

from kafka.protocol.producer import ProduceRequest

from txnwatch.state.model.ids import TopicPartition
from txnwatch.streaming.client.connection import Connection

_VERSION = 11
_TIMEOUT_S = 10.0


def append(connection: Connection, partition: TopicPartition, batch: bytes) -> None:
    """Produces the batch at the partition's leader, outside of any transaction."""
    topic = ProduceRequest.TopicProduceData
    data = topic.PartitionProduceData(version=_VERSION, index=partition.partition, records=batch)
    request = ProduceRequest(
        version=_VERSION,
        transactional_id=None,
        acks=-1,
        timeout_ms=int(_TIMEOUT_S * 1000),
        topic_data=[topic(version=_VERSION, name=partition.topic, partition_data=[data])],
    )
    answer = connection.call(request, _TIMEOUT_S)
    assert answer.responses[0].partition_responses[0].error_code == 0
