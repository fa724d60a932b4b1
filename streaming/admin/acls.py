"""Who may write to a topic by the cluster's ACLs; the caller needs DESCRIBE on the cluster."""

from __future__ import annotations

from dataclasses import dataclass

from kafka.protocol.admin import DescribeAclsRequest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.problem import ErrorCode, Problem
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.error_names import problem_of

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
