"""Appends a batch of any bytes to a partition, which no client library would send."""

from __future__ import annotations

from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.connection import Connection
from txnwatch_demo.late_write import produce_request

_TIMEOUT_S = 10.0


def append(connection: Connection, partition: TopicPartition, batch: bytes) -> None:
    """Produces the batch at the partition's leader, outside of any transaction."""
    answer = connection.call(produce_request(partition, batch), _TIMEOUT_S)
    assert answer.responses[0].partition_responses[0].error_code == 0
