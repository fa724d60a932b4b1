"""The rights of this user on topics. They are queried, not tried: Metadata answers with the allowed operations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import CreateTopicsRequest, DescribeAclsRequest
from kafka.protocol.metadata import MetadataRequest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.values import ErrorCode, Problem
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import problem_of, the_one

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
    found = TopicRights(operations_of(answer.authorized_operations), answer.error_code)
    return TopicRights(frozenset(), found.code) if found.is_hidden else found


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


# Who may write to a topic by the cluster's ACLs; the caller needs DESCRIBE on the cluster.

# Kafka's classes ResourceType, PatternType, AclOperation and AclPermissionType
_TOPIC, _MATCH, _ANY, _ALL, _WRITE, _DENY, _ALLOW = 2, 2, 1, 2, 4, 2, 3


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
        connection = cluster.any_connection()
        version = connection.require_version(DescribeAclsRequest, highest=3, lowest=1)
        request = DescribeAclsRequest(
            version=version,
            resource_type_filter=_TOPIC,
            resource_name_filter=topic,
            pattern_type_filter=_MATCH,
            principal_filter=None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
        )
        answer = cluster.call(connection, request)
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
