"""Answers of a broker as it encodes them: what fuzzing of their decoders begins with."""

from __future__ import annotations

from typing import Any

from kafka.protocol.admin import (
    DescribeProducersResponse,
    DescribeTransactionsResponse,
    ListGroupsResponse,
    ListTransactionsResponse,
)
from kafka.protocol.consumer import ListOffsetsResponse, OffsetFetchResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse

from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, ErrorCode
from txnwatch.streaming.admin.transaction_requests import one_id_for_each_partition


def encoded(response: Any, version: int) -> bytes:
    return bytes(response.encode(version=version))


def metadata(operations: set[int] | None = None) -> bytes:
    response, topic = MetadataResponse, MetadataResponse.MetadataResponseTopic
    partition = topic.MetadataResponsePartition(
        error_code=0,
        partition_index=0,
        leader_id=1,
        leader_epoch=3,
        replica_nodes=[1],
        isr_nodes=[1],
        offline_replicas=[],
    )
    topics = [
        topic(error_code=0, name=name, is_internal=False, partitions=[partition], authorized_operations=operations)
        for name in ("orders", TRANSACTION_STATE_TOPIC)
    ]
    broker = response.MetadataResponseBroker(node_id=1, host="a", port=1, rack=None)
    made = response(throttle_time_ms=0, brokers=[broker], cluster_id="c", controller_id=1, topics=topics)
    return encoded(made, 12)


def offsets() -> bytes:
    topic = ListOffsetsResponse.ListOffsetsTopicResponse
    partition = topic.ListOffsetsPartitionResponse(
        partition_index=0, error_code=0, timestamp=-1, offset=9, leader_epoch=3
    )
    made = ListOffsetsResponse(throttle_time_ms=0, topics=[topic(name="orders", partitions=[partition])])
    return encoded(made, 8)


def producers() -> bytes:
    topic = DescribeProducersResponse.TopicResponse
    row = topic.PartitionResponse.ProducerState(
        producer_id=7,
        producer_epoch=0,
        last_sequence=3,
        last_timestamp=5,
        coordinator_epoch=1,
        current_txn_start_offset=4,
    )
    partition = topic.PartitionResponse(partition_index=0, error_code=0, error_message=None, active_producers=[row])
    made = DescribeProducersResponse(throttle_time_ms=0, topics=[topic(name="orders", partitions=[partition])])
    return encoded(made, 0)


def listing() -> bytes:
    row = ListTransactionsResponse.TransactionState(transactional_id="app", producer_id=7, transaction_state="Ongoing")
    made = ListTransactionsResponse(
        throttle_time_ms=0, error_code=0, unknown_state_filters=[], transaction_states=[row]
    )
    return encoded(made, 0)


def coordinator() -> bytes:
    row = FindCoordinatorResponse.Coordinator(key="app", node_id=1, host="a", port=1, error_code=0, error_message=None)
    return encoded(FindCoordinatorResponse(throttle_time_ms=0, coordinators=[row]), 4)


def unused_id() -> bytes:
    """What a coordinator answers about an id that nobody uses: it has loaded the id's partition of the log."""
    row = DescribeTransactionsResponse.TransactionState
    (name,) = one_id_for_each_partition(1)
    made = row(
        error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        transactional_id=name,
        transaction_state="",
        transaction_timeout_ms=-1,
        transaction_start_time_ms=-1,
        producer_id=-1,
        producer_epoch=-1,
        topics=[],
    )
    return encoded(DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=[made]), 0)


def group_list() -> bytes:
    row = ListGroupsResponse.ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable", group_type="")
    return encoded(ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=[row]), 5)


def group_offsets() -> bytes:
    group = OffsetFetchResponse.OffsetFetchResponseGroup
    topic = group.OffsetFetchResponseTopics
    partition = topic.OffsetFetchResponsePartitions(
        partition_index=0, committed_offset=4, committed_leader_epoch=-1, metadata=None, error_code=0
    )
    made = group(group_id="g", topics=[topic(name="orders", partitions=[partition])], error_code=0)
    return encoded(OffsetFetchResponse(throttle_time_ms=0, groups=[made]), 9)


def descriptions() -> bytes:
    row = DescribeTransactionsResponse.TransactionState
    made = row(
        error_code=0,
        transactional_id="app",
        transaction_state="Ongoing",
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=5,
        producer_id=7,
        producer_epoch=0,
        topics=[row.TopicData(topic="orders", partitions=[0])],
    )
    return encoded(DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=[made]), 0)
