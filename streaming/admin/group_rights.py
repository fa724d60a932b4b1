"""Which rights the caller has on groups, and who is a member of the groups of watchers that is none.

A broker checks the right before it looks for the group, so a group that does not exist answers the question. Any
broker refuses a caller without DESCRIBE. Only the group's coordinator names the operations that are allowed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.values import LEASE_CLIENT, BrokerId
from txnwatch.state.text import printable
from txnwatch.streaming.admin.share_groups import are_supported, may_read_isolation
from txnwatch.streaming.client.cluster import Cluster, RequestOf
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


def strangers(cluster: Cluster, lease_groups: str) -> tuple[str, ...]:
    """The members of groups of watchers that do not have the client id of a watcher, as text.

    One of them may have the lease, and then no watcher publishes. What cannot be listed or described is left out.
    """
    listed = cluster.ask(dict.fromkeys(cluster.known.brokers, list_request), cluster.timeout_s)
    requests: dict[BrokerId, RequestOf] = {
        node: partial(_describe, names)
        for node, answer in listed.items()
        if (names := [row.group_id for row in _groups_of(answer) if row.group_id.startswith(lease_groups)])
    }
    return tuple(
        f"{printable(member.client_id)} at {printable(member.client_host.lstrip('/'))} in {printable(row.group_id)}"
        for answer in cluster.ask(requests, cluster.timeout_s).values()
        for row in _groups_of(answer)
        for member in row.members
        if member.client_id != LEASE_CLIENT
    )


def _groups_of(answer: Any) -> Iterable[Any]:
    return () if isinstance(answer, BrokerError) else answer.groups


def list_request(connection: Connection) -> Any:
    """Asks for groups of every type that the broker supports."""
    version = connection.require_version(ListGroupsRequest, highest=5, lowest=4)
    return ListGroupsRequest(version=version, states_filter=[])


def hides_groups(cluster: Cluster) -> bool:
    """Whether this user lacks DESCRIBE on some groups: without an error, a broker does not list a group that is hidden.

    Raises:
        BrokerError: no broker answers.
    """
    connection = cluster.any_connection()
    answer = cluster.call(connection, describe_request(connection, [_UNUSED_GROUP]))
    return any(row.error_code == _REFUSED for row in answer.groups)


def describe_request(connection: Connection, names: Sequence[str]) -> Any:
    """Asks about some groups; one that is gone has no members."""
    version = connection.require_version(DescribeGroupsRequest, highest=_LAST_WITHOUT_NOT_FOUND)
    return DescribeGroupsRequest(version=version, groups=list(names))


def _describe(names: Sequence[str], connection: Connection) -> Any:
    return describe_request(connection, names)


def _request(connection: Connection, lease_group: str) -> Any:
    version = connection.require_version(
        DescribeGroupsRequest, highest=_LAST_WITHOUT_NOT_FOUND, lowest=_OPERATIONS_SINCE
    )
    return DescribeGroupsRequest(
        version=version, groups=[_UNUSED_GROUP, lease_group], include_authorized_operations=True
    )
