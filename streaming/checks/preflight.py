"""The checks before a watch starts: the cluster is reachable, and the rights of this user are enough.

The rights on topics are queried, not tried: Metadata answers with the allowed operations.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafka.protocol.admin import (
    CreateTopicsRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.metadata import MetadataRequest

from txnwatch.state.model.errors import AuthorizationError, BrokerError
from txnwatch.state.model.ports import ListedOffset, Log
from txnwatch.state.model.values import (
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    CoordinatorAccess,
    DurationMs,
    ErrorCode,
    Problem,
    TopicPartition,
)
from txnwatch.state.text import Grantee, some
from txnwatch.streaming.admin.kafka_settings import LONGEST_TIMEOUT, Settings, settings_of
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import problem_of, the_one
from txnwatch.streaming.client.metadata import TopicInfo
from txnwatch.streaming.log.fetch import read_ranges
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.source.options import SourceOptions

# What this user may do with topics.

# Kafka's class AclOperation
READ, WRITE, ALTER, DESCRIBE, DESCRIBE_CONFIGS = 3, 4, 7, 8, 10
Operations = frozenset[int] | None
_OPERATIONS_SINCE = 8  # Metadata 8 is of Kafka 2.3


@dataclass(frozen=True, slots=True)
class TopicRights:
    """What this user may do with one topic; the topic need not exist.

    Attributes:
        operations: None if the broker does not report them.
        code: the error code of the topic in the answer.
    """

    operations: Operations = None
    code: int = ErrorCode.NONE

    @property
    def is_absent(self) -> bool:
        """Whether the topic does not exist."""
        return self.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @property
    def is_hidden(self) -> bool:
        """Whether this user may not describe the topic; a topic that does not exist looks the same then."""
        return self.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def rights_on(cluster: Cluster, topic: str) -> TopicRights:
    """What this user may do with a topic.

    A broker names the operations by the ACLs alone, so it does so for a topic that does not exist, too. For a hidden
    topic it names none: then neither READ nor WRITE is allowed, because each of them includes DESCRIBE.

    Raises:
        BrokerError: no broker answers.
    """
    connection = cluster.any_connection()
    version = connection.version(MetadataRequest, highest=12)
    if version is None or version < _OPERATIONS_SINCE:
        return TopicRights()
    request = _request(version, [MetadataRequest.MetadataRequestTopic(version=version, name=topic)])
    answer = the_one(cluster.call(connection, request).topics)
    rights = TopicRights(operations_of(answer.authorized_operations), answer.error_code)
    return TopicRights(frozenset(), rights.code) if rights.is_hidden else rights


def topic_operations(cluster: Cluster) -> dict[str, Operations]:
    """What this user may do with each topic that it may describe; None if the broker does not report it."""
    try:
        connection = cluster.any_connection()
        version = connection.version(MetadataRequest, highest=12)
        if version is None or version < _OPERATIONS_SINCE:
            return {}
        topics: Iterable[Any] = cluster.call(connection, _request(version, None)).topics
        return {
            topic.name: operations_of(topic.authorized_operations)
            for topic in topics
            if not topic.error_code and topic.name is not None  # null only answers a request by topic id
        }
    except BrokerError:
        return {}


def _request(version: int, topics: list[Any] | None) -> MetadataRequest:
    return MetadataRequest(
        version=version,
        topics=topics,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=True,
    )


def create_problem(cluster: Cluster, topic: str) -> Problem | None:
    """Why a topic cannot be created; the request only validates."""
    try:
        connection = cluster.any_connection()
        version = connection.require_version(CreateTopicsRequest, highest=5, lowest=4)
        wanted = CreateTopicsRequest.CreatableTopic(
            version=version, name=topic, num_partitions=-1, replication_factor=-1, assignments=[], configs=[]
        )
        request = CreateTopicsRequest(version=version, topics=[wanted], timeout_ms=5_000, validate_only=True)
        answer = the_one(cluster.call(connection, request).topics)
    except BrokerError as exc:
        return Problem.from_error(exc)
    return problem_of(answer.error_code)


def operations_of(allowed: set[int] | None) -> Operations:
    """The operations of an answer, as a value."""
    return None if allowed is None else frozenset(allowed)


# Whether this user may describe and read topics, as the brokers answer.


def _hidden_topic(cluster: Cluster, names: Collection[str]) -> str | None:
    """The first of these topics that this user may not describe, as text; None if there is none."""
    if not names:
        return None
    topics = cluster.metadata_from(cluster.any_connection().endpoint, names).topics
    hidden = next((topic.name for topic in topics.values() if topic.is_hidden), None)
    return f"topic {hidden}: expected the rights DESCRIBE and READ, found neither" if hidden is not None else None


def refused_read(cluster: Cluster, topics: Iterable[TopicInfo]) -> list[str]:
    """The missing READ rights: an empty Fetch of one partition of each topic, whose leader checks the right first."""
    first = [TopicPartition(topic.name, min(topic.partitions)) for topic in topics if topic.partitions]
    ends = cluster.list_offsets(first)
    topics_of = cluster.known.topics
    reads = [
        RangeReading(
            Range(partition, topics_of[partition.topic].topic_id, end.offset, end.offset, must_check=True),
            PartitionFold,
        )
        for partition in first
        if isinstance(end := ends[partition], ListedOffset)
    ]
    read_ranges(cluster, reads, patience_s=0.0)
    return [
        f"topic {read.partition.topic}: {notice.detail}" for read in reads if read.is_denied for notice in read.notices
    ]


# Chooses how the coordinators' view is known: the setting, or without one the best that this user's rights allow.
#
# The order is `log`, `api`, `none`; each one proves less than the one before it (docs/decisions/0027). A broker that
# does not answer now is no missing right: only a refusal, or an unsupported request, leads to a lower view.

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class ChosenView:
    """The chosen access, and the reasons why each better one is not used; no reasons if the setting names it."""

    access: CoordinatorAccess
    reasons: tuple[str, ...] = ()


def choose_view(cluster: Cluster, wanted: str) -> ChosenView:
    """The view for a setting: `auto` is the best that the rights allow.

    Raises:
        AuthorizationError: the setting names a view, and a right for it is missing.
        BrokerError: no broker answers.
    """
    if wanted == CoordinatorAccess.NONE:
        return ChosenView(CoordinatorAccess.NONE)
    if wanted == CoordinatorAccess.API:
        _require(_why_no_api(cluster))
        return ChosenView(CoordinatorAccess.API)
    no_log = _why_no_log(cluster)
    if wanted == CoordinatorAccess.LOG:
        _require(no_log)
        return ChosenView(CoordinatorAccess.LOG)
    if no_log is None and TRANSACTION_STATE_TOPIC not in cluster.known.topics and _unsupported(cluster) is not None:
        no_log = f"no broker shows {TRANSACTION_STATE_TOPIC}"  # it may exist: its coordinators cannot be asked
    if no_log is None:
        return ChosenView(CoordinatorAccess.LOG)
    no_api = _why_no_api(cluster)
    if no_api is None:
        return ChosenView(CoordinatorAccess.API, (no_log,))
    return ChosenView(CoordinatorAccess.NONE, (no_log, no_api))


def _require(problem: str | None) -> None:
    if problem is not None:
        raise AuthorizationError(f"{problem}: grant it to this user, or set --coordinator-view")


def _why_no_log(cluster: Cluster) -> str | None:
    """Why the coordinators' log cannot be read; None if it can, or if no transaction was begun yet."""
    hidden = _hidden_topic(cluster, [TRANSACTION_STATE_TOPIC])
    if hidden is not None:
        return hidden
    shown = cluster.known.topics.get(TRANSACTION_STATE_TOPIC)
    refused = refused_read(cluster, [shown]) if shown is not None else []
    return refused[0] if refused else None


def _unsupported(cluster: Cluster) -> str | None:
    """The first request about transactions that a broker does not support; None if those that answer support all."""
    for node in sorted(cluster.known.brokers):
        try:
            connection = cluster.node(node)
        except BrokerError:
            continue
        for request in (ListTransactionsRequest, DescribeTransactionsRequest):
            if connection.version(request) is None:
                return f"broker {node} does not support {request.name.removesuffix('Request')}"
    return None


def _why_no_api(cluster: Cluster) -> str | None:
    """Why the coordinators cannot be asked; None if they can, or if some only do not answer now."""
    unsupported = _unsupported(cluster)
    if unsupported is not None:
        return unsupported
    problems = ClusterAdmin(cluster).list_transactions([]).problems
    denied = next((problem for problem in problems if problem.is_denied), None)
    return f"transactional ids: {denied}" if denied is not None else None


# The longest timeout that a transaction may have, by the settings of each broker.

_TWO_PHASE = "transaction.two.phase.commit.enable"


@dataclass(frozen=True, slots=True)
class BrokerTimeout:
    """The longest timeout that one broker allows.

    Attributes:
        ms: `transaction.max.timeout.ms`; None if the broker does not show it.
        is_unlimited: whether it allows two-phase transactions, which have no timeout.
        problem: why the two are not known, or do not limit a transaction.
    """

    ms: DurationMs | None
    is_unlimited: bool = False
    problem: str | None = None


def broker_timeouts(cluster: Cluster) -> list[BrokerTimeout]:
    """The longest timeout of each broker."""
    settings_of_brokers = settings_of(cluster, cluster.known.brokers, [LONGEST_TIMEOUT, _TWO_PHASE])
    return [_timeout_of(node, settings) for node, settings in settings_of_brokers.items()]


def _timeout_of(node: BrokerId, settings: Settings) -> BrokerTimeout:
    text = settings.values.get(LONGEST_TIMEOUT, "")
    if not text.isdecimal():
        why = settings.problem or "it does not return it"
        return BrokerTimeout(None, problem=f"broker {node} does not show {LONGEST_TIMEOUT}: {why}")
    if settings.values.get(_TWO_PHASE) == "true":
        why = f"broker {node} has {_TWO_PHASE}=true: no timeout limits such a transaction"
        return BrokerTimeout(DurationMs(int(text)), is_unlimited=True, problem=why)
    return BrokerTimeout(DurationMs(int(text)))


# What an automatic abort leaves, because leader epochs do not show every restart of a leader.


def left_by_abort(cluster: Cluster) -> str | None:
    """Which hangs an automatic abort leaves on this cluster, as a warning; None if leader epochs show each restart.

    A broker that cannot be reached is not counted: its leader epochs count only once it has answered.
    """
    brokers = sorted(filter(partial(_may_keep_epochs, cluster), cluster.known.brokers))
    if not brokers:
        return None
    named = some([f"broker {broker}" for broker in brokers], _NAMED)
    return (
        f"controllers of this cluster may be older than Kafka 4.0, by its metadata.version ({named}): after a power "
        "failure, a leader may have lost records and have the leader epoch of before. So the automatic abort leaves "
        "each hang whose transaction began before this watch, or before its connection to the leader of the partition "
        "of __transaction_state was interrupted (leader_not_watched, docs/limits.md)"
    )


def _may_keep_epochs(cluster: Cluster, broker: BrokerId) -> bool:
    try:
        cluster.node(broker)
    except BrokerError:
        return False
    return bool(cluster.connection_to_keep(broker))


# Checks before the job starts: the cluster is reachable, and this user may read what verdicts depend on.
#
# A missing right must not look like a hanging transaction, nor like a healthy cluster. So a topic that is configured by
# its name and that this user may not describe is an error here, in one line. A topic that it may describe and not read
# is only reported: nothing is proven on its partitions until the right is granted. Without the right to read the
# coordinators' log, another way is chosen, and the watch names it.

_NAMED = 3
_NOTHING_PROVEN = "nothing is proven on the partitions of these topics until it is granted (docs/rights.md)"


@dataclass(frozen=True, slots=True)
class CheckedCluster:
    """The cluster that a watch begins with.

    Attributes:
        topics: the topics that are scanned now.
        view: how the coordinators' view is known.
    """

    cluster_id: str
    topics: Sequence[TopicInfo]
    view: ChosenView


def check_cluster(cluster: Cluster, options: SourceOptions, wanted_view: str, log: Log) -> CheckedCluster:
    """Checks a cluster before a watch begins; `wanted_view` is the setting `coordinator_view`.

    Raises:
        BrokerError: no broker answers.
        AuthorizationError: a right is missing; the message names topic and right.
    """
    metadata = cluster.refresh()
    hidden = _hidden_topic(cluster, options.topics)
    if hidden is not None:
        raise AuthorizationError(f"{hidden}: grant them to this user")
    view = choose_view(cluster, wanted_view)
    watched = [topic for topic in metadata.topics.values() if options.watches(topic)]
    unread = refused_read(cluster, watched)
    if unread:
        log.warning(f"{some(unread, _NAMED)}: {_NOTHING_PROVEN}")
    if not watched:
        counted = [topic.name for topic in metadata.topics.values() if options.counts(topic)]
        log.warning(_nothing_scanned(options, counted, sorted(metadata.topics)))
    return CheckedCluster(metadata.cluster_id, watched, view)


def _nothing_scanned(options: SourceOptions, counted: Collection[str], shown: Sequence[str]) -> str:
    """What it means that no topic matches, and which topics there are: the regular expression may be misspelt."""
    wanted = (
        f"--topics {options.pattern or ','.join(options.topics)!r} matches no topic that the brokers show to this user"
    )
    there = f" ({some(shown, _NAMED)})" if shown else " (they show none)"
    effect = f"{len(counted)} are watched by census only, which finds a hang later" if counted else "nothing is watched"
    return f"{wanted}{there}: {effect}; the whole name must match, and a topic that is created later may"


# Checks the rights on the events topic, before the topic is opened.
#
# Without one of them every later attempt fails in the same way: an idempotent producer gets no producer id from a
# broker unless its user may write to a topic, and that is a fatal error of the client. So a missing right is one error
# that names it, and never a retry for ever.

_PAGE = "docs/rights.md"
_SHOWN_S, _PAUSE_S = 5.0, 0.1
_NEEDED = {
    "Write": (WRITE, "no event can be published"),
    "Read": (READ, "the incidents of an earlier start are unknown"),
}


def check_events_rights(cluster: Cluster, topic: str, grantee: Grantee, *, is_created: bool = False) -> None:
    """Checks that this user may read and write the events topic, and may create it if it does not exist.

    A broker that does not report rights (before Kafka 2.3) is not checked. A topic that was just created is awaited,
    because it takes a moment until every broker shows it.

    Raises:
        AuthorizationError: a right is missing; the message names it, the topic, the user and the command to grant it.
        BrokerError: no broker answers.
    """
    rights = rights_on(cluster, topic)
    until_s = time.monotonic() + _SHOWN_S
    while is_created and rights.is_absent and time.monotonic() < until_s:
        time.sleep(_PAUSE_S)
        rights = rights_on(cluster, topic)
    missing = _lacks(rights)
    if rights.is_absent and _is_create_refused(cluster, topic):
        raise _missing(topic, grantee, ["Create", *missing], "it does not exist, and this user may not create it")
    if rights.is_hidden:
        # A topic that exists looks the same as a topic that does not, if this user may not describe it.
        result = "this user may not describe it (if it does not exist, grant Create too)"
        raise _missing(topic, grantee, missing, result)
    if missing:
        raise _missing(topic, grantee, missing, _NEEDED[missing[0]][1])


def check_write(cluster: Cluster, topic: str, grantee: Grantee) -> None:
    """Checks that this user may write an events topic that exists; a broker that does not report rights is not checked.

    Raises:
        AuthorizationError: the right is missing; the message is as above.
        BrokerError: no broker answers.
    """
    if "Write" in _lacks(rights_on(cluster, topic)):
        raise _missing(topic, grantee, ["Write"], _NEEDED["Write"][1])


def _lacks(rights: TopicRights) -> list[str]:
    if rights.operations is None:
        return []
    return [name for name, (operation, _) in _NEEDED.items() if operation not in rights.operations]


def _is_create_refused(cluster: Cluster, topic: str) -> bool:
    problem = create_problem(cluster, topic)
    return problem is not None and problem.is_denied


def _missing(topic: str, grantee: Grantee, names: list[str], result: str) -> AuthorizationError:
    rights = " and ".join(name.upper() for name in names)
    operations = [part for name in names[1:] for part in ("--operation", name)]
    line = grantee.line(names[0], *operations, "--topic", topic)
    return AuthorizationError(
        f"events topic {topic!r}: expected the right{'s' if len(names) > 1 else ''} {rights} for {grantee.principal}, "
        f"found {'none of them' if len(names) > 1 else 'it missing'}: {result}. Grant with `{line}` ({_PAGE})"
    )
