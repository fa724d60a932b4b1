"""Reads what a cluster supports and allows: versions, rights, settings, clocks. It makes no decisions.

Rights are queried, not tried: Metadata and DescribeCluster answer with the operations that the caller is allowed. For
transactional ids there is no such query. There the checkup describes an unused id for each partition of
`__transaction_state` (docs/decisions/0009).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.producer import EndTxnRequest, WriteTxnMarkersRequest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ports import TransactionListing
from txnwatch.state.model.values import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    Problem,
    TimestampMs,
    TopicPartition,
    lease_group,
)
from txnwatch.streaming.admin.broker_settings import SCAN_INTERVAL, settings_of
from txnwatch.streaming.admin.groups import GroupRights, group_rights
from txnwatch.streaming.admin.requests import TopicSetting, describe_producers, topic_settings
from txnwatch.streaming.admin.rights import (
    Operations,
    TopicRights,
    Writers,
    create_problem,
    operations_of,
    rights_on,
    topic_operations,
    writers_of,
)
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection
from txnwatch.streaming.log.coordinator_log import newest_stamps
from txnwatch.streaming.source.lister import hidden_of

SETTINGS = (
    "transaction.partition.verification.enable",
    "transaction.max.timeout.ms",
    SCAN_INTERVAL,
)
UNCLEAN = "unclean.leader.election.enable"
_APIS = (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
    EndTxnRequest,
    FetchRequest,
    ListOffsetsRequest,
)
_INTERNAL = (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC)


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """One broker.

    Attributes:
        problem: why it did not answer at its advertised listener.
        versions: the highest version of each request by its name; None if it has none.
        transaction_version: the cluster's finalized transaction.version as this broker knows it; None if it has none.
        settings: those of SETTINGS that it returned; `settings_problem` is why others are missing.
    """

    endpoint: str
    problem: Problem | None = None
    versions: dict[str, int | None] = field(default_factory=dict)
    transaction_version: int | None = None
    settings: dict[str, str] = field(default_factory=dict)
    settings_problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class Checkup:
    """The result of a checkup.

    Attributes:
        cluster_operations, topic_operations: what the caller may do; None if unknown.
        without_leader: partitions that have no leader.
        id_problems: why the list of transactional ids is incomplete; None if a broker is too old to list them.
        transactional_ids: those that the brokers listed.
        events_rights: the rights on the events topic, which need not exist; `events_writers` is who may write it.
        events_problem: why the events topic could not be created; None if it could, or if it is shown.
        lease_group, group_rights: the group of the automatic abort, and the rights on it and on all groups.
        internal_rights: the rights on `__transaction_state` and `__consumer_offsets`, which need not exist.
        elections: the setting UNCLEAN of each topic whose settings this user may read.
        hidden: hidden participants of live transactions, and parts that could not be checked, with the reason.
        has_unseen_log: whether no broker shows `__transaction_state`, although there is transactional data or an id.
        newest_stamp_ms: the newest broker timestamp in `__transaction_state`; `asked_ms` is the local clock then.
    """

    brokers: dict[BrokerId, BrokerFacts]
    cluster_operations: Operations
    topic_operations: dict[str, Operations]
    without_leader: tuple[TopicPartition, ...]
    id_problems: tuple[Problem, ...] | None
    events_problem: Problem | None
    newest_stamp_ms: TimestampMs | None
    asked_ms: TimestampMs
    events_rights: TopicRights = field(default_factory=TopicRights)
    events_writers: Writers = field(default_factory=Writers)
    lease_group: str = ""
    group_rights: GroupRights = field(default_factory=GroupRights)
    internal_rights: dict[str, TopicRights] = field(default_factory=lambda: dict.fromkeys(_INTERNAL, TopicRights()))
    elections: dict[str, TopicSetting] = field(default_factory=dict)
    hidden: dict[str, Problem] = field(default_factory=dict)
    has_unseen_log: bool = False
    transactional_ids: tuple[str, ...] = ()


def check_up(cluster: Cluster, events_topic: str, now_ms: TimestampMs) -> Checkup:
    """Runs the checkup on every broker.

    Raises:
        BrokerError: no broker answers.
    """
    known = cluster.refresh()
    brokers = {node: broker_facts(cluster, node, str(endpoint)) for node, endpoint in sorted(known.brokers.items())}
    without_leader = tuple(
        TopicPartition(topic.name, number)
        for topic in known.topics.values()
        for number, info in topic.partitions.items()
        if info.leader is None
    )
    can_list = all(facts.versions.get(DescribeTransactionsRequest.name) is not None for facts in brokers.values())
    listing = ClusterAdmin(cluster).list_transactions([]) if can_list else None
    is_unused = TRANSACTION_STATE_TOPIC not in known.topics and not (listing is not None and listing.has_ids)
    is_unused = is_unused and not _has_transactional_data(cluster)
    abort_group = lease_group(known.cluster_id)
    return Checkup(
        brokers=brokers,
        cluster_operations=cluster_operations(cluster),
        topic_operations=topic_operations(cluster),
        without_leader=without_leader,
        id_problems=None if listing is None else () if is_unused else listing.problems,
        events_problem=None if events_topic in known.topics else create_problem(cluster, events_topic),
        events_rights=_topic_rights(cluster, events_topic),
        newest_stamp_ms=max((one.stamp_ms for one in newest_stamps(cluster)), default=None),
        asked_ms=now_ms,
        events_writers=writers_of(cluster, events_topic),
        lease_group=abort_group,
        group_rights=group_rights(cluster, abort_group),
        internal_rights={topic: _topic_rights(cluster, topic) for topic in _INTERNAL},
        elections=topic_settings(cluster, known.topics, UNCLEAN),
        hidden=_hidden(cluster, listing) if listing is not None else {},
        has_unseen_log=TRANSACTION_STATE_TOPIC not in known.topics and not is_unused,
        transactional_ids=_ids(listing),
    )


def _topic_rights(cluster: Cluster, topic: str) -> TopicRights:
    try:
        return rights_on(cluster, topic)
    except BrokerError:
        return TopicRights()


def _has_transactional_data(cluster: Cluster) -> bool:
    """Whether a leader has a producer with an open or earlier transaction."""
    shown = [
        TopicPartition(topic.name, number) for topic in cluster.known.topics.values() for number in topic.partitions
    ]
    return any(
        producer.txn_start_offset is not None or producer.coordinator_epoch is not None
        for described in describe_producers(cluster, shown).values()
        if not isinstance(described, Problem)
        for producer in described
    )


def _ids(listing: TransactionListing | None) -> tuple[str, ...]:
    return tuple(row.transactional_id for row in listing.transactions) if listing is not None else ()


def _hidden(cluster: Cluster, listing: TransactionListing) -> dict[str, Problem]:
    live = [row.transactional_id for row in listing.transactions if row.state.is_live]
    described = ClusterAdmin(cluster).describe_transactions(live)
    return hidden_of(cluster, described.values())


def broker_facts(cluster: Cluster, node: BrokerId, endpoint: str) -> BrokerFacts:
    """What one broker answers."""
    try:
        connection = cluster.node(node)
        versions = {request.name: connection.version(request) for request in _APIS}
        settings, problem = settings_of(cluster, [node], SETTINGS)[node]
        level = _transaction_version(cluster, connection)
    except BrokerError as exc:
        return BrokerFacts(endpoint, Problem.from_error(exc))
    return BrokerFacts(endpoint, None, versions, level, settings, problem)


def _transaction_version(cluster: Cluster, connection: Connection) -> int | None:
    version = connection.version(ApiVersionsRequest, highest=3)
    if version is None or version < 3:
        return None
    request = ApiVersionsRequest(version=version, client_software_name="txnwatch", client_software_version="0")
    answer = cluster.call(connection, request)
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features or ()}
    return levels.get("transaction.version")


def cluster_operations(cluster: Cluster) -> Operations:
    """What this user may do to the cluster."""
    try:
        connection = cluster.any_connection()
        version = connection.version(DescribeClusterRequest, highest=0)
        if version is None:
            return None
        request = DescribeClusterRequest(version=version, include_cluster_authorized_operations=True)
        return operations_of(cluster.call(connection, request).authorized_operations)
    except BrokerError:
        return None
