"""ConsumerGroups over the wire: which groups have committed which offsets of some partitions.

A broker lists the groups that it coordinates (ListGroups), so the listing also shows which broker to ask for a group's
offsets (OffsetFetch, many groups in one request). These are the groups of the consumer protocols, old and new, and of
Kafka Streams' own protocol (KIP-1071); share_groups.py has the share groups. Groups are read only while an incident is
open, and within the admin's budget: on a cluster with thousands of groups, what does not fit is a problem and not an
empty answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ids import BrokerId, TopicPartition
from txnwatch.state.model.ports import GroupOffset, GroupOffsets
from txnwatch.state.model.problem import Problem
from txnwatch.streaming.admin.group_rights import hides_groups
from txnwatch.streaming.admin.share_groups import read_committed_only, share_offsets
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection
from txnwatch.streaming.client.error_names import problem_of
from txnwatch.streaming.wire.absent import present

_GROUPS_AT_A_TIME = 500
_WITH_MEMBERS = {"Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NotReady"}
_COMMITTING_PROTOCOLS = {"consumer", "streams", ""}  # empty: the group committed offsets without joining
_SHARE = "share"
_HIDDEN = "hidden groups are not listed: GROUP_AUTHORIZATION_FAILED: DESCRIBE on all groups is missing"
Groups = dict[str, bool]


class ClusterGroups:
    """ConsumerGroups of one cluster; not thread-safe."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def committed_offsets(self, partitions: Iterable[TopicPartition]) -> GroupOffsets:
        """See ConsumerGroups. Sends one request per broker, then one per 500 groups, and one about the right."""
        wanted = list(dict.fromkeys(partitions))
        found: dict[TopicPartition, list[GroupOffset]] = {partition: [] for partition in wanted}
        problems: Counter[str] = Counter()
        try:
            committing, sharing = self._listed(problems) if wanted else ({}, {})
        except BrokerError as exc:
            return GroupOffsets(dict.fromkeys(wanted, ()), (str(exc),))
        for part in _parts(committing):
            self._fetch(part, wanted, found, problems)
        for part in _parts(sharing):
            self._share(part, wanted, found, problems)
        if wanted:
            self._note_hidden(problems)
        return GroupOffsets(
            {partition: tuple(offsets) for partition, offsets in found.items()},
            tuple(f"{problem} ({count} groups)" if count > 1 else problem for problem, count in problems.items()),
        )

    def _listed(self, problems: Counter[str]) -> tuple[dict[BrokerId, Groups], dict[BrokerId, Groups]]:
        """For each broker its groups, and whether each has members: groups that commit, and share groups."""
        requests = dict.fromkeys(self._cluster.known.brokers, _list_request)
        committing: dict[BrokerId, Groups] = {}
        sharing: dict[BrokerId, Groups] = {}
        for node, answer in self._cluster.ask(requests, self._cluster.timeout_s).items():
            if isinstance(answer, BrokerError):
                problems[str(answer)] += 1
            elif (refused := problem_of(answer.error_code)) is not None:
                problems[f"broker {node}: cannot list groups: {refused}"] += 1
            else:
                for row in answer.groups:
                    if row.protocol_type in _COMMITTING_PROTOCOLS:
                        committing.setdefault(node, {})[row.group_id] = row.group_state in _WITH_MEMBERS
                    elif row.protocol_type == _SHARE:
                        sharing.setdefault(node, {})[row.group_id] = row.group_state in _WITH_MEMBERS
        return committing, sharing

    def _note_hidden(self, problems: Counter[str]) -> None:
        try:
            if hides_groups(self._cluster):
                problems[_HIDDEN] += 1
        except BrokerError as exc:
            problems[str(exc)] += 1

    def _share(
        self,
        groups: dict[BrokerId, Groups],
        wanted: Sequence[TopicPartition],
        found: dict[TopicPartition, list[GroupOffset]],
        problems: Counter[str],
    ) -> None:
        members = {name: has_members for one in groups.values() for name, has_members in one.items()}
        stopped_by_it = read_committed_only(self._cluster, list(members), problems)
        asked = {
            node: names for node, one in groups.items() if (names := [name for name in one if name in stopped_by_it])
        }
        for one in share_offsets(self._cluster, asked, wanted, problems):
            if one.group_id not in members or one.partition not in found:
                continue
            offset = GroupOffset(one.group_id, one.offset, members[one.group_id], one.is_floor)
            found[one.partition].append(offset)

    def _fetch(
        self,
        groups: dict[BrokerId, Groups],
        wanted: Sequence[TopicPartition],
        found: dict[TopicPartition, list[GroupOffset]],
        problems: Counter[str],
    ) -> None:
        def request(names: Sequence[str]) -> Any:
            return lambda connection: _fetch_request(connection, names, wanted)

        requests = {node: request(list(names)) for node, names in groups.items()}
        for node, answer in self._cluster.ask(requests, self._cluster.timeout_s).items():
            if isinstance(answer, BrokerError):
                problems[str(answer)] += len(groups[node])
                continue
            for row in answer.groups:
                if (refused := problem_of(row.error_code)) is not None:
                    problems[_why(refused, "group")] += 1
                elif row.group_id in groups[node]:
                    _take(row, groups[node], found, problems)


def _parts(left: dict[BrokerId, Groups]) -> Iterator[dict[BrokerId, Groups]]:
    """Splits each broker's groups into parts of one request each."""
    while left:
        yield {node: dict(list(groups.items())[:_GROUPS_AT_A_TIME]) for node, groups in left.items()}
        left = {node: dict(list(groups.items())[_GROUPS_AT_A_TIME:]) for node, groups in left.items()}
        left = {node: groups for node, groups in left.items() if groups}


def _take(row: Any, groups: Groups, found: dict[TopicPartition, list[GroupOffset]], problems: Counter[str]) -> None:
    for topic in row.topics:
        for partition in topic.partitions:
            if (refused := problem_of(partition.error_code)) is not None:
                problems[_why(refused, f"topic {topic.name}")] += 1
            elif (committed := present(partition.committed_offset)) is not None:
                at = TopicPartition(topic.name, partition.partition_index)
                if at in found:
                    found[at].append(GroupOffset(row.group_id, committed, groups[row.group_id]))


def _why(refused: Problem, what: str) -> str:
    found = refused.of("offsets of consumer groups")
    return str(found.with_hint(f"DESCRIBE on the {what} is missing") if found.is_denied else found)


def _list_request(connection: Connection) -> Any:
    version = connection.require_version(ListGroupsRequest, highest=5, lowest=4)
    return ListGroupsRequest(version=version, states_filter=[])  # groups of every type that the broker supports


def _fetch_request(connection: Connection, groups: Sequence[str], partitions: Sequence[TopicPartition]) -> Any:
    version = connection.require_version(OffsetFetchRequest, highest=9, lowest=8)
    numbers: dict[str, list[int]] = {}
    for partition in partitions:
        numbers.setdefault(partition.topic, []).append(partition.partition)
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    topics = [
        group.OffsetFetchRequestTopics(version=version, name=name, partition_indexes=indexes)
        for name, indexes in numbers.items()
    ]
    return OffsetFetchRequest(
        version=version,
        groups=[group(version=version, group_id=name, topics=topics) for name in groups],
        require_stable=False,
    )
