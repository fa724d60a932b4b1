"""Reads what `doctor` shows of a cluster: versions, rights, settings, clocks, traffic. It makes no decisions.

Rights are queried, not tried: Metadata and DescribeCluster answer with the operations that the caller is allowed. For
transactional ids there is no such query. There the checkup describes an unused id for each partition of
`__transaction_state` (docs/decisions/0009).

The traffic is the number of bytes that watching reads: from data topics, from the coordinators' log, and by censuses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.producer import WriteTxnMarkersRequest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.facts import CensusTaken
from txnwatch.state.model.partition_replicas import PartitionReplicas
from txnwatch.state.model.ports import ListedOffset, TransactionListing
from txnwatch.state.model.values import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    DurationMs,
    ErrorCode,
    Offset,
    Problem,
    TimestampMs,
    TopicPartition,
    lease_groups,
)
from txnwatch.streaming.admin.group_rights import GroupRights, group_rights, strangers
from txnwatch.streaming.admin.kafka_settings import LONGEST_TIMEOUT, MATCH, SCAN_INTERVAL, describe_acls, settings_of
from txnwatch.streaming.admin.replicas import read_replicas
from txnwatch.streaming.admin.transaction_requests import describe_producers
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.checks.clock_bounds import SeenClocks, first_look, second_look
from txnwatch.streaming.checks.preflight import (
    Operations,
    TopicRights,
    create_problem,
    operations_of,
    rights_on,
    topic_operations,
)
from txnwatch.streaming.client.cluster import EARLIEST, Cluster
from txnwatch.streaming.client.connection import Connection, problem_of
from txnwatch.streaming.log.hidden_participants import hidden_of
from txnwatch.streaming.log.lookups import BatchList, list_extents, read_parts
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.source.census_schedule import Asked, Census, take_census
from txnwatch.streaming.wire.record_batch import LENGTH_OVERHEAD, BatchHeader

SETTINGS = (
    LONGEST_TIMEOUT,
    SCAN_INTERVAL,
)
_APIS = (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
    FetchRequest,
    ListOffsetsRequest,
)
_INTERNAL = (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC)


# Who may write to a topic by the cluster's ACLs; the caller needs DESCRIBE on the cluster.

# Kafka's classes ResourceType, PatternType, AclOperation and AclPermissionType
_TOPIC, _ALL, _WRITE, _DENY, _ALLOW = 2, 2, 4, 2, 3


@dataclass(frozen=True, slots=True)
class Writers:
    """The principals that may write to a topic.

    Attributes:
        principals: those that an ACL allows, without those that one denies on all hosts; super users are not included.
        problem: why the ACLs could not be read, None if they were.
        is_open: whether the brokers have no authorizer, so that everybody may write.
    """

    principals: tuple[str, ...] = ()
    problem: Problem | None = None
    is_open: bool = False


def writers_of(cluster: Cluster, topic: str) -> Writers:
    """Asks for the ACLs that match the topic's name: its own, those of a prefix, and those of all topics."""
    try:
        answer = describe_acls(cluster, _TOPIC, topic, MATCH)
    except BrokerError as exc:
        return Writers(problem=Problem.from_error(exc))
    if answer.error_code == ErrorCode.SECURITY_DISABLED:
        return Writers(is_open=True)
    problem = problem_of(answer.error_code)
    if problem is not None:
        return Writers(problem=problem)
    rules = [acl for resource in answer.resources for acl in resource.acls if acl.operation in {_ALL, _WRITE}]
    denied = {acl.principal for acl in rules if acl.permission_type == _DENY and acl.host == "*"}
    allowed = {acl.principal for acl in rules if acl.permission_type == _ALLOW}
    return Writers(tuple(sorted(allowed - denied)))


# The checkup.


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
        replicas: those of all shown partitions.
        id_problems: why the list of transactional ids is incomplete; None if a broker is too old to list them.
        transactional_ids: those that the brokers listed.
        events_rights: the rights on the events topic, which need not exist; `events_writers` is who may write it.
        events_problem: why the events topic could not be created; None if it could, or if it is shown.
        lease_group: what the names of the groups of watchers begin with; one of each group has its lease.
        group_rights: the rights on such a group, and on all groups.
        strangers: the members of such groups that are no watchers.
        internal_rights: the rights on `__transaction_state` and `__consumer_offsets`, which need not exist.
        hidden: hidden participants of live transactions, and parts that could not be checked, with the reason.
        has_unseen_log: whether no broker shows `__transaction_state`, although there is transactional data or an id.
        clocks: bounds on the clocks of the brokers and of the active controller.
    """

    brokers: dict[BrokerId, BrokerFacts]
    cluster_operations: Operations
    topic_operations: dict[str, Operations]
    replicas: tuple[PartitionReplicas, ...]
    id_problems: tuple[Problem, ...] | None
    events_problem: Problem | None
    events_rights: TopicRights = field(default_factory=TopicRights)
    events_writers: Writers = field(default_factory=Writers)
    lease_group: str = ""
    group_rights: GroupRights = field(default_factory=GroupRights)
    strangers: tuple[str, ...] = ()
    internal_rights: dict[str, TopicRights] = field(default_factory=lambda: dict.fromkeys(_INTERNAL, TopicRights()))
    hidden: dict[str, Problem] = field(default_factory=dict)
    has_unseen_log: bool = False
    transactional_ids: tuple[str, ...] = ()
    clocks: SeenClocks = field(default_factory=SeenClocks)


def check_up(cluster: Cluster, events_topic: str) -> Checkup:
    """Runs the checkup on every broker.

    Raises:
        BrokerError: no broker answers.
    """
    metadata = cluster.refresh()
    looked = first_look(cluster)
    brokers = {node: broker_facts(cluster, node, str(endpoint)) for node, endpoint in sorted(metadata.brokers.items())}
    can_list = all(facts.versions.get(DescribeTransactionsRequest.name) is not None for facts in brokers.values())
    listing = ClusterAdmin(cluster).list_transactions([]) if can_list else None
    is_unused = TRANSACTION_STATE_TOPIC not in metadata.topics and not (listing is not None and listing.has_ids)
    is_unused = is_unused and not _has_transactional_data(cluster)
    leases = lease_groups(metadata.cluster_id)
    return Checkup(
        brokers=brokers,
        cluster_operations=cluster_operations(cluster),
        topic_operations=topic_operations(cluster),
        replicas=tuple(replicas for _, replicas in sorted(read_replicas(cluster, metadata.topics).items())),
        id_problems=None if listing is None else () if is_unused else listing.problems,
        events_problem=None if events_topic in metadata.topics else create_problem(cluster, events_topic),
        events_rights=_topic_rights(cluster, events_topic),
        events_writers=writers_of(cluster, events_topic),
        lease_group=leases,
        group_rights=group_rights(cluster, leases),
        strangers=strangers(cluster, leases),
        internal_rights={topic: _topic_rights(cluster, topic) for topic in _INTERNAL},
        hidden=_hidden(cluster, listing) if listing is not None else {},
        has_unseen_log=TRANSACTION_STATE_TOPIC not in metadata.topics and not is_unused,
        transactional_ids=_ids(listing),
        clocks=second_look(cluster, looked),
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
        level = connection.finalized.get("transaction.version")
    except BrokerError as exc:
        return BrokerFacts(endpoint, Problem.from_error(exc))
    return BrokerFacts(endpoint, None, versions, level, settings, problem)


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


# How many bytes a second are written to topics, estimated from what their leaders show. No record is read.
#
# The size of a leader's log (DescribeLogDirs), divided by its offsets, is the size of an offset. The offsets of the
# last hour, by the timestamps of the records, give the rate. It is an estimate: clients set the timestamps, compaction
# removes offsets, and tiered storage keeps only a part of the log at its leader.

WINDOW_MS = DurationMs(3_600_000)


@dataclass(frozen=True, slots=True)
class WriteRates:
    """The bytes written per second by topic, of the topics whose partitions are all known; and the first problem."""

    by_topic: dict[str, float]
    problem: Problem | None = None


def bytes_per_second(size: int, start: Offset, end: Offset, since: Offset, window_ms: DurationMs) -> float:
    """The rate of one partition: `since` is the first offset of the window."""
    if end <= start:
        return 0.0
    return size / (end - start) * (end - max(start, since)) * 1000 / window_ms


def write_rates(cluster: Cluster, topics: Iterable[str], now_ms: TimestampMs) -> WriteRates:
    """The rates of some topics of the known metadata."""
    topics_known = cluster.known.topics
    wanted = [TopicPartition(name, number) for name in topics for number in topics_known[name].partitions]
    sizes, problem = _leader_sizes(cluster)
    starts, ends = cluster.list_offsets(wanted, timestamp=EARLIEST), cluster.list_offsets(wanted)
    since = cluster.offsets_since(wanted, now_ms - WINDOW_MS)
    rates: dict[str, float] = {}
    unknown: set[str] = set()
    for partition in wanted:
        start, end, first = starts[partition], ends[partition], since[partition]
        size = sizes.get(partition)
        if size is None or not isinstance(start, ListedOffset) or not isinstance(end, ListedOffset):
            unknown.add(partition.topic)
            continue
        begin = first.offset if isinstance(first, ListedOffset) else end.offset
        rate = bytes_per_second(size, start.offset, end.offset, begin, WINDOW_MS)
        rates[partition.topic] = rates.get(partition.topic, 0.0) + rate
    return WriteRates({name: rate for name, rate in rates.items() if name not in unknown}, problem)


def _leader_sizes(cluster: Cluster) -> tuple[dict[TopicPartition, int], Problem | None]:
    """The size of each partition's log at its leader, and the first problem of a broker."""
    sizes: dict[TopicPartition, int] = {}
    problem: Problem | None = None
    for node, answer in cluster.ask(dict.fromkeys(cluster.known.brokers, _request), cluster.timeout_s).items():
        if isinstance(answer, BrokerError):
            problem = problem or Problem.from_error(answer).of(f"broker {node}")
            continue
        for result in answer.results:
            problem = problem or problem_of(result.error_code)
            sizes |= _led_by(cluster, node, result)
        if not answer.results:  # brokers before 3.0 have no error code for a refusal
            problem = problem or Problem(
                f"broker {node} shows no log directory: DESCRIBE on the cluster may be missing"
            )
    return sizes, problem


def _request(connection: Connection) -> DescribeLogDirsRequest:
    version = connection.require_version(DescribeLogDirsRequest, highest=3, lowest=1)
    return DescribeLogDirsRequest(version=version, topics=None)


def _led_by(cluster: Cluster, node: BrokerId, result: object) -> dict[TopicPartition, int]:
    sizes: dict[TopicPartition, int] = {}
    for topic in result.topics:  # type: ignore[attr-defined]
        for replica in topic.partitions:
            partition = TopicPartition(topic.name, replica.partition_index)
            info = cluster.known.info(partition)
            if info is not None and info.leader == node and not replica.is_future_key:
                sizes[partition] = replica.partition_size
    return sizes


# How many bytes the coordinators' log has, and how many are appended to it in a second.
#
# The estimate for data topics is wrong for this log: compaction removes most of its offsets, so its size divided by its
# offsets is far below the size of a record. Here the size of a record is that of the newest records, which this user
# may read if `run` may.

_SAMPLED = 100  # newest offsets of each partition: about 15 kB


@dataclass(frozen=True, slots=True)
class LogBytes:
    """The bytes of the coordinators' log.

    Attributes:
        per_second: the bytes that were appended per second in the last hour.
        size: the bytes of the whole log at its leaders; None if a broker does not show it.
        unread: the number of partitions whose rate is not known.
        problem: the first problem of a broker with the size.
    """

    per_second: float = 0.0
    size: int | None = 0
    unread: int = 0
    problem: Problem | None = None


def coordinator_log_bytes(cluster: Cluster, now_ms: TimestampMs) -> LogBytes:
    """Reads the newest records of each partition of the known metadata; a log that does not exist has no bytes."""
    topic = cluster.known.topics.get(TRANSACTION_STATE_TOPIC)
    if topic is None:
        return LogBytes()
    partitions = [TopicPartition(topic.name, number) for number in topic.partitions]
    listed, since = list_extents(cluster, partitions), cluster.offsets_since(partitions, now_ms - WINDOW_MS)
    logs = {partition: log for partition, log in listed.items() if isinstance(log, Range)}
    parts = [RangeReading(log.part(Offset(log.end - _SAMPLED)), _newest) for log in logs.values()]
    sampled = {read.partition: [header for header, _ in read.fold.found] for read in read_parts(cluster, parts)}
    rates = [_per_second(logs.get(at), since[at], sampled.get(at, [])) for at in partitions]
    sizes, problem = _leader_sizes(cluster)
    size = sum(sizes[at] for at in partitions) if sizes.keys() >= set(partitions) else None
    return LogBytes(sum(rate for rate in rates if rate is not None), size, rates.count(None), problem)


def _newest(start: Offset, end: Offset) -> BatchList:
    return BatchList(start, end, _SAMPLED)


def _per_second(log: Range | None, since: ListedOffset | Problem | None, sampled: list[BatchHeader]) -> float | None:
    """The rate of one partition: the offsets of the window, each with the size of an offset of the sample."""
    if log is None or isinstance(since, Problem):
        return None
    written = log.end - max(log.start, since.offset) if since is not None else 0
    if written <= 0:
        return 0.0
    offsets = sum(header.last_offset_delta + 1 for header in sampled)
    size = sum(header.length + LENGTH_OVERHEAD for header in sampled)
    return size / offsets * written * 1000 / WINDOW_MS if offsets else None


# How many bytes a census moves, measured: it is taken once, and the bytes of its requests and answers are counted.
#
# A number per partition would be wrong: an answer has a row for each producer that a partition remembers, also for
# those without a transaction, and names have different lengths.


@dataclass(frozen=True, slots=True)
class CensusBytes:
    """One census of some partitions.

    Attributes:
        moved: the bytes of all requests and answers, before TLS.
        failed: the number of partitions that were not described.
    """

    partitions: int = 0
    moved: int = 0
    failed: int = 0


def census_bytes(cluster: Cluster, topics: Iterable[str], now_ms: TimestampMs) -> CensusBytes:
    """Takes one census of some topics of the known metadata."""
    known_topics = cluster.known.topics
    asked = {
        TopicPartition(name, number): Asked(known_topics[name].topic_id)
        for name in topics
        for number in known_topics[name].partitions
    }
    if not asked:
        return CensusBytes()
    before = cluster.traffic.sent + cluster.traffic.received
    facts = list(take_census(cluster, Census(asked, now_ms)))
    moved = cluster.traffic.sent + cluster.traffic.received - before
    failed = sum(len(fact.failed) for fact in facts if isinstance(fact, CensusTaken))
    return CensusBytes(len(asked), moved, failed)
