"""Which rights the caller has on groups: consumer groups, share groups, and the group of the automatic abort.

A broker checks the right before it looks for the group, so a group that does not exist answers the question. Any
broker refuses a caller without DESCRIBE. Only the group's coordinator names the operations that are allowed.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any

from kafka.protocol.admin import DescribeGroupsRequest

from txnwatch.state.model.errors import BrokerError
from txnwatch.streaming.admin.share_groups import are_supported, may_read_isolation
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection

_OPERATIONS_SINCE, _LAST_WITHOUT_NOT_FOUND = 3, 5  # from version 6 on, an unused id is an error
_NONE, _REFUSED = 0, 30  # GROUP_AUTHORIZATION_FAILED
_READ = 3  # Kafka's class AclOperation
_UNUSED_GROUP = "txnwatch-unused-group"


@dataclass(frozen=True, slots=True)
class GroupRights:
    """The rights on groups.

    Attributes:
        may_describe: whether groups of any name may be described; None if no broker could answer.
        may_lead: whether the group of the automatic abort may be joined; None if its coordinator did not answer.
        has_share_groups: whether the brokers support share groups.
        may_read_isolation: whether the isolation level of share groups of any name may be read; None without an answer.
    """

    may_describe: bool | None = None
    may_lead: bool | None = None
    has_share_groups: bool = False
    may_read_isolation: bool | None = None


def group_rights(cluster: Cluster, lease_group: str) -> GroupRights:
    """Asks every broker about an unused group and the group of the automatic abort, and one about share groups."""
    requests = dict.fromkeys(cluster.known.brokers, lambda connection: _request(connection, lease_group))
    rights = _share_group_rights(cluster)
    for answer in cluster.ask(requests, cluster.timeout_s).values():
        if isinstance(answer, BrokerError):
            continue
        for row in answer.groups:
            if row.group_id == _UNUSED_GROUP:
                rights = replace(rights, may_describe=row.error_code != _REFUSED)
            elif row.error_code in {_NONE, _REFUSED}:
                rights = replace(rights, may_lead=_READ in (row.authorized_operations or ()))
    return rights


def _share_group_rights(cluster: Cluster) -> GroupRights:
    rights = GroupRights()
    with contextlib.suppress(BrokerError):
        rights = replace(rights, has_share_groups=are_supported(cluster))
        if rights.has_share_groups:
            rights = replace(rights, may_read_isolation=may_read_isolation(cluster, _UNUSED_GROUP))
    return rights


def hides_groups(cluster: Cluster) -> bool:
    """Whether this user lacks DESCRIBE on some groups: without an error, a broker does not list a group that is hidden.

    Raises:
        BrokerError: no broker answers.
    """
    connection = cluster.any_connection()
    version = connection.require_version(DescribeGroupsRequest, highest=_LAST_WITHOUT_NOT_FOUND)
    answer = cluster.call(connection, DescribeGroupsRequest(version=version, groups=[_UNUSED_GROUP]))
    return any(row.error_code == _REFUSED for row in answer.groups)


def _request(connection: Connection, lease_group: str) -> Any:
    version = connection.require_version(
        DescribeGroupsRequest, highest=_LAST_WITHOUT_NOT_FOUND, lowest=_OPERATIONS_SINCE
    )
    return DescribeGroupsRequest(
        version=version, groups=[_UNUSED_GROUP, lease_group], include_authorized_operations=True
    )
