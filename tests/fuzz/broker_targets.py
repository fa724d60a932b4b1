"""Decoders of the answers of brokers, from the bytes to the typed values that the core gets."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import repeat
from typing import Any
from unittest import mock

from kafka.protocol.admin import (
    DescribeProducersResponse,
    DescribeTransactionsResponse,
    ListGroupsResponse,
    ListTransactionsResponse,
)
from kafka.protocol.consumer import ListOffsetsResponse, OffsetFetchResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse

from fuzz.answers import AnsweringCluster, packed
from fuzz.target import Target
from support.batches import a_batch, a_marker
from support.fetch_responses import a_fetch_response, header_of, received
from txnwatch.state.model.errors import BrokerError, WireError
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.model.problem import ErrorCode
from txnwatch.streaming.admin.admin import ClusterAdmin
from txnwatch.streaming.admin.consumer_groups import ClusterGroups
from txnwatch.streaming.admin.requests import one_id_for_each_partition
from txnwatch.streaming.wire import record_skipper
from txnwatch.streaming.wire.batch_walker import walk
from txnwatch.streaming.wire.fetch_response import decode_fetch_response
from txnwatch.streaming.wire.record_batch import end_of_entry

_ORDERS = TopicPartition("orders", 0)
_FETCH_VERSIONS = (4, 5, 11, 12, 13)


def _encoded(response: Any, version: int) -> bytes:
    return bytes(response.encode(version=version))


def _metadata() -> bytes:
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
        topic(error_code=0, name=name, is_internal=False, partitions=[partition])
        for name in ("orders", TRANSACTION_STATE_TOPIC)
    ]
    broker = response.MetadataResponseBroker(node_id=1, host="a", port=1, rack=None)
    made = response(throttle_time_ms=0, brokers=[broker], cluster_id="c", controller_id=1, topics=topics)
    return _encoded(made, 12)


def _offsets() -> bytes:
    topic = ListOffsetsResponse.ListOffsetsTopicResponse
    partition = topic.ListOffsetsPartitionResponse(
        partition_index=0, error_code=0, timestamp=-1, offset=9, leader_epoch=3
    )
    made = ListOffsetsResponse(throttle_time_ms=0, topics=[topic(name="orders", partitions=[partition])])
    return _encoded(made, 8)


def _producers() -> bytes:
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
    return _encoded(made, 0)


def _listing() -> bytes:
    row = ListTransactionsResponse.TransactionState(transactional_id="app", producer_id=7, transaction_state="Ongoing")
    made = ListTransactionsResponse(
        throttle_time_ms=0, error_code=0, unknown_state_filters=[], transaction_states=[row]
    )
    return _encoded(made, 0)


def _coordinator() -> bytes:
    row = FindCoordinatorResponse.Coordinator(key="app", node_id=1, host="a", port=1, error_code=0, error_message=None)
    return _encoded(FindCoordinatorResponse(throttle_time_ms=0, coordinators=[row]), 4)


def _unused() -> bytes:
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
    return _encoded(DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=[made]), 0)


def _group_list() -> bytes:
    row = ListGroupsResponse.ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable", group_type="")
    return _encoded(ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=[row]), 5)


def _group_offsets() -> bytes:
    group = OffsetFetchResponse.OffsetFetchResponseGroup
    topic = group.OffsetFetchResponseTopics
    partition = topic.OffsetFetchResponsePartitions(
        partition_index=0, committed_offset=4, committed_leader_epoch=-1, metadata=None, error_code=0
    )
    made = group(group_id="g", topics=[topic(name="orders", partitions=[partition])], error_code=0)
    return _encoded(OffsetFetchResponse(throttle_time_ms=0, groups=[made]), 9)


def _descriptions() -> bytes:
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
    return _encoded(DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=[made]), 0)


def _on_cluster(ask: Callable[[AnsweringCluster], object]) -> Callable[[bytes], object]:
    def run(data: bytes) -> object:
        return ask(AnsweringCluster(data))

    return run


def _read(cluster: AnsweringCluster) -> None:
    """A partition that is asked about has an answer or a problem, and no other partition has one."""
    assert ClusterAdmin(cluster).read_partitions([_ORDERS]).keys() == {_ORDERS}


def _describe(cluster: AnsweringCluster) -> None:
    assert ClusterAdmin(cluster).describe_transactions(["app"]).keys() == {"app"}


def _groups(cluster: AnsweringCluster) -> None:
    found = ClusterGroups(cluster).committed_offsets([_ORDERS])
    assert found.offsets.keys() <= {_ORDERS}


def _version_and_body(data: bytes) -> tuple[int, bytes]:
    """The first byte of an input chooses the version of the response."""
    return _FETCH_VERSIONS[(data[:1] or b"\0")[0] % len(_FETCH_VERSIONS)], data[1:]


def _fetch(data: bytes) -> None:
    version, body = _version_and_body(data)
    decode_fetch_response(memoryview(body), version)


def _read_of(whole: memoryview, version: int) -> list[object]:
    """What a fold reads of an answer: headers of batches, and control batches with their content."""
    found: list[object] = []
    for data in decode_fetch_response(whole, version).partitions:
        found.append((data.topic, data.partition, data.error_code, len(data.records)))
        try:
            for at, header in walk(data.records):
                content = bytes(data.records[at : end_of_entry(data.records, at)]) if header.is_control else b""
                found.append((at, header, content))
        except WireError as exc:
            found.append(str(exc))
    return found


def _skipped(data: bytes) -> None:
    """An answer of which bytes were dropped reads as the whole answer does."""
    version, body = _version_and_body(data)
    header = header_of(version)
    with mock.patch.multiple(record_skipper, AT_A_TIME=40, AFTER_A_SKIP=70, _WORTH_A_CALL=8):
        buffer, _ = received(header + body, version, repeat(sys.maxsize))
    expected = _read_of(memoryview(body), version)
    assert _read_of(buffer[len(header) :], version) == expected, "dropped bytes were needed"


def _fetch_input(number: int, *records: bytes) -> bytes:
    version = _FETCH_VERSIONS[number]
    return bytes([number]) + a_fetch_response(version, *records)[len(header_of(version)) :]


_FETCHES = [_fetch_input(number, a_batch(0) + a_marker(1)) for number in range(len(_FETCH_VERSIONS))]
_LARGE = _fetch_input(2, a_batch(0, count=40) + a_marker(40) + a_batch(41, count=30))

TARGETS = [
    Target("fetch", "a Fetch answer", _fetch, (WireError,), _FETCHES),
    Target("skipped_fetch", "a Fetch answer of which records are dropped", _skipped, (WireError,), [*_FETCHES, _LARGE]),
    Target(
        "metadata",
        "a Metadata answer",
        _on_cluster(lambda cluster: cluster.refresh(["orders"])),
        (BrokerError,),
        [packed([_metadata()])],
    ),
    Target(
        "partition_reading",
        "answers to Metadata, ListOffsets and DescribeProducers",
        _on_cluster(_read),
        (),
        [packed([_metadata(), _offsets(), _producers(), *[_offsets()] * 3])],
    ),
    Target(
        "description",
        "answers to FindCoordinator and DescribeTransactions",
        _on_cluster(_describe),
        (),
        [packed([_metadata(), _coordinator(), _descriptions(), _metadata()])],
    ),
    Target(
        "listing",
        "answers to ListTransactions",
        _on_cluster(lambda cluster: ClusterAdmin(cluster).list_transactions([7])),
        (),
        [packed([_metadata(), _unused(), _listing(), _metadata(), _unused()])],
    ),
    Target(
        "groups",
        "answers to ListGroups and OffsetFetch",
        _on_cluster(_groups),
        (),
        [packed([_metadata(), _group_list(), _group_offsets()])],
    ),
]
