"""The admin requests of TransactionAdmin and their answers, as typed values."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

from kafka.protocol.admin import (
    DescribeConfigsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.producer import WriteTxnMarkersRequest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ports import ActiveProducer, ListedTransaction, MarkerSpec
from txnwatch.state.model.transaction import (
    DescribedTransaction,
    NotDescribed,
    TransactionDescription,
    TransactionState,
    UnknownTransactionalId,
)
from txnwatch.state.model.values import BrokerId, ErrorCode, Problem, ProducerId, TopicPartition
from txnwatch.streaming.client.cluster import Cluster, RequestOf, ask_for_each
from txnwatch.streaming.client.connection import Connection, problem_of
from txnwatch.streaming.client.metadata import NO_LEADER
from txnwatch.streaming.wire.internal_topics import coordinator_partition
from txnwatch.streaming.wire.primitives import present

DESCRIBE_IDS = "DESCRIBE on transactional ids"  # for all of them, because the problems of many ids share one line
_UPGRADE = "if the broker is newer, upgrade txnwatch"
_STATES = frozenset(map(str, TransactionState))


def describe_producers_request(partitions: Sequence[TopicPartition]) -> RequestOf:
    """DescribeProducers of some partitions that one broker leads."""

    def build(connection: Connection) -> Any:
        version = connection.require_version(DescribeProducersRequest, highest=0)
        topics: dict[str, list[int]] = {}
        for partition in partitions:
            topics.setdefault(partition.topic, []).append(partition.partition)
        topic = DescribeProducersRequest.TopicRequest
        return DescribeProducersRequest(
            version=version,
            topics=[topic(version=version, name=name, partition_indexes=numbers) for name, numbers in topics.items()],
        )

    return build


def described(response: Any, _: BrokerId) -> dict[TopicPartition, tuple[ActiveProducer, ...] | Problem]:
    """Each partition's producers, or its problem, as one broker describes them."""
    return {
        TopicPartition(topic.name, partition.partition_index): _producers(partition)
        for topic in response.topics
        for partition in topic.partitions
    }


def _producers(partition: Any) -> tuple[ActiveProducer, ...] | Problem:
    problem = problem_of(partition.error_code)
    if problem is not None:
        return problem.with_right("READ on the topic")
    return tuple(
        ActiveProducer(
            row.producer_id,
            row.producer_epoch,
            present(row.last_sequence),
            present(row.last_timestamp),
            present(row.coordinator_epoch),
            present(row.current_txn_start_offset),
        )
        for row in partition.active_producers
    )


def describe_transactions_request(transactional_ids: Sequence[str]) -> RequestOf:
    """DescribeTransactions of some ids of one coordinator."""

    def build(connection: Connection) -> Any:
        version = connection.require_version(DescribeTransactionsRequest, highest=0)
        return DescribeTransactionsRequest(version=version, transactional_ids=list(transactional_ids))

    return build


def descriptions(response: Any, node: BrokerId) -> dict[str, TransactionDescription]:
    """Each id as its coordinator describes it; or the problem."""
    return {row.transactional_id: _description(row, node) for row in response.transaction_states}


def _description(row: Any, node: BrokerId) -> TransactionDescription:
    name, problem = row.transactional_id, problem_of(row.error_code)
    if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return UnknownTransactionalId(name, node)
    if problem is not None:
        return NotDescribed(name, problem.with_right(DESCRIBE_IDS))
    if row.transaction_state not in _STATES:
        return NotDescribed(name, Problem(f"found the unknown state {row.transaction_state!r}: {_UPGRADE}"))
    found = DescribedTransaction(
        transactional_id=name,
        coordinator=node,
        state=TransactionState(row.transaction_state),
        producer_id=row.producer_id,
        producer_epoch=present(row.producer_epoch),
        timeout_ms=row.transaction_timeout_ms,
        start_ms=present(row.transaction_start_time_ms),
        partitions=frozenset(
            TopicPartition(topic.topic, number) for topic in row.topics for number in topic.partitions
        ),
    )
    if found.is_live and found.producer_epoch is None:
        return NotDescribed(name, Problem(f"found the state {found.state} without a producer epoch"))
    return found


def list_transactions_request(producer_ids: list[ProducerId]) -> RequestOf:
    """ListTransactions of some producer ids; an empty list asks for all."""

    def build(connection: Connection) -> Any:
        version = connection.require_version(ListTransactionsRequest, highest=0)
        return ListTransactionsRequest(version=version, state_filters=[], producer_id_filters=producer_ids)

    return build


def listed_transactions(response: Any, node: BrokerId) -> tuple[list[ListedTransaction], Problem | None]:
    """The transactions that one broker coordinates, and a problem if some have a state that we do not know."""
    unknown = {row.transaction_state for row in response.transaction_states} - _STATES
    rows = [
        ListedTransaction(row.transactional_id, row.producer_id, TransactionState(row.transaction_state), node)
        for row in response.transaction_states
        if row.transaction_state in _STATES
    ]
    problem = Problem(f"found the unknown states {sorted(unknown)}: {_UPGRADE}")
    return rows, problem if unknown else None


@cache
def one_id_for_each_partition(count: int) -> tuple[str, ...]:
    """Unused transactional ids, one for each partition of a coordinators' log with `count` partitions."""
    found: dict[int, str] = {}
    names = (f"nobody-{number}" for number in itertools.count())
    while len(found) < count:
        name = next(names)
        found.setdefault(coordinator_partition(name, count), name)
    return tuple(found[number] for number in range(count))


def write_marker_request(connection: Connection, marker: MarkerSpec) -> Any:
    """A request that writes one marker.

    TransactionVersion stays 0: a broker would refuse 2 with the epoch that DescribeProducers returns (KIP-1228).
    """
    version = connection.require_version(WriteTxnMarkersRequest, highest=1)
    writable = WriteTxnMarkersRequest.WritableTxnMarker
    return WriteTxnMarkersRequest(
        version=version,
        markers=[
            writable(
                version=version,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.commit,
                topics=[
                    writable.WritableTxnMarkerTopic(
                        version=version, name=marker.partition.topic, partition_indexes=[marker.partition.partition]
                    )
                ],
                coordinator_epoch=marker.coordinator_epoch,
            )
        ],
    )


class ConfigSource(IntEnum):
    """Where the value of a topic's setting is set (Kafka's class DescribeConfigsResponse.ConfigSource)."""

    TOPIC = 1
    BROKER = 2
    CLUSTER = 3
    BROKER_FILE = 4
    DEFAULT = 5


class TopicSetting(NamedTuple):
    """The value of a setting for one topic as a broker has it; `source` can be one that a newer broker has."""

    value: str
    source: int


def topic_settings(cluster: Cluster, topics: Iterable[str], name: str) -> dict[str, TopicSetting]:
    """One setting of each topic; a topic that could not be read is missing."""
    try:
        connection = cluster.any_connection()
        return topic_settings_in(
            cluster.call(connection, configs_request(connection, ConfigOf.TOPIC, topics, [name])), name
        )
    except BrokerError:
        return {}


class ConfigOf(IntEnum):
    """What DescribeConfigs returns the settings of: the resource types of Kafka."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


def configs_request(
    connection: Connection, of: ConfigOf, resources: Iterable[str], names: Sequence[str]
) -> DescribeConfigsRequest:
    """Asks for the settings with these names, of several resources of one kind."""
    version = connection.require_version(DescribeConfigsRequest, highest=4, lowest=1)
    asked = [
        DescribeConfigsRequest.DescribeConfigsResource(
            version=version, resource_type=of, resource_name=resource, configuration_keys=list(names)
        )
        for resource in resources
    ]
    return DescribeConfigsRequest(version=version, resources=asked, include_synonyms=False, include_documentation=False)


def topic_settings_in(response: Any, name: str) -> dict[str, TopicSetting]:
    """Each topic's setting; topics with an error and topics without a value are left out."""
    return {
        result.resource_name: TopicSetting(config.value, config.config_source)
        for result in response.results
        if not result.error_code
        for config in result.configs
        if config.name == name and config.value is not None
    }


# DescribeProducers of many partitions, each from its leader; an error concerns only its own partition.


def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[ActiveProducer, ...] | Problem]:
    """The producers of each partition as its known leader describes them, or the problem."""
    by_leader: dict[BrokerId, list[TopicPartition]] = {}
    answers: dict[TopicPartition, tuple[ActiveProducer, ...] | Problem] = {}
    for partition in partitions:
        info = cluster.known.info(partition)
        if info is None or info.leader is None:
            answers[partition] = NO_LEADER
        else:
            by_leader.setdefault(info.leader, []).append(partition)
    found = ask_for_each(cluster, by_leader, describe_producers_request, described)
    return answers | {at: Problem.from_error(one) if isinstance(one, BrokerError) else one for at, one in found.items()}
