"""ConsumerGroups over the wire: which groups have committed what of some partitions.

A broker lists the groups it coordinates (ListGroups), so its own answer says whom to ask for their offsets
(OffsetFetch, many groups in one request). Asked only while an incident is open, and bounded by the admin's budget: on a
cluster with thousands of groups what did not fit is a problem and not an empty answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest

from txnwatch.state.errors import BrokerError
from txnwatch.state.ids import TopicPartition
from txnwatch.state.ports import GroupOffset, GroupOffsets
from txnwatch.streaming.broker import Connection, error_name
from txnwatch.streaming.cluster import Cluster

_GROUPS_AT_A_TIME = 500
_WITH_MEMBERS = {"Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"}
_CONSUMER_PROTOCOLS = {"consumer", ""}  # empty: offsets were committed without joining
Groups = dict[str, bool]


class ClusterGroups:
    """A ConsumerGroups; not thread-safe."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def committed_offsets(self, partitions: Iterable[TopicPartition]) -> GroupOffsets:
        """See ConsumerGroups; one request a broker, then one for each 500 groups."""
        wanted = list(dict.fromkeys(partitions))
        found: dict[TopicPartition, list[GroupOffset]] = {partition: [] for partition in wanted}
        problems: Counter[str] = Counter()
        try:
            left = self._listed(problems) if wanted else {}
        except BrokerError as exc:
            return GroupOffsets(dict.fromkeys(wanted, ()), (str(exc),))
        while left:
            part = {node: dict(list(groups.items())[:_GROUPS_AT_A_TIME]) for node, groups in left.items()}
            self._fetch(part, wanted, found, problems)
            left = {node: dict(list(groups.items())[_GROUPS_AT_A_TIME:]) for node, groups in left.items()}
            left = {node: groups for node, groups in left.items() if groups}
        return GroupOffsets(
            {partition: tuple(offsets) for partition, offsets in found.items()},
            tuple(f"{problem} ({count} groups)" if count > 1 else problem for problem, count in problems.items()),
        )

    def _listed(self, problems: Counter[str]) -> dict[int, Groups]:
        """For each broker the consumer groups it coordinates, and whether they have members."""
        requests = dict.fromkeys(self._cluster.known.brokers, _list_request)
        listed: dict[int, Groups] = {}
        for node, answer in self._cluster.ask(requests, self._cluster.timeout_s).items():
            if isinstance(answer, BrokerError):
                problems[str(answer)] += 1
            elif answer.error_code:
                problems[f"broker {node}: listing groups: {error_name(answer.error_code)}"] += 1
            else:
                groups = (row for row in answer.groups if row.protocol_type in _CONSUMER_PROTOCOLS)
                listed[node] = {row.group_id: row.group_state in _WITH_MEMBERS for row in groups}
        return {node: groups for node, groups in listed.items() if groups}

    def _fetch(
        self,
        groups: dict[int, Groups],
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
                if row.error_code:
                    problems[_why(row.error_code, "group")] += 1
                else:
                    _take(row, groups[node], found, problems)


def _take(row: Any, groups: Groups, found: dict[TopicPartition, list[GroupOffset]], problems: Counter[str]) -> None:
    for topic in row.topics:
        for partition in topic.partitions:
            if partition.error_code:
                problems[_why(partition.error_code, f"topic {topic.name}")] += 1
            elif partition.committed_offset >= 0:
                offset = GroupOffset(row.group_id, partition.committed_offset, groups[row.group_id])
                found[TopicPartition(topic.name, partition.partition_index)].append(offset)


def _why(code: int, what: str) -> str:
    name = error_name(code)
    hint = f": DESCRIBE on the {what} is missing" if "AUTHORIZATION" in name.upper() else ""
    return f"offsets of consumer groups: {name}{hint}"


def _list_request(connection: Connection) -> Any:
    version = connection.require_version(ListGroupsRequest, highest=5, lowest=4)
    types = {"types_filter": ["consumer", "classic"]} if version >= 5 else {}
    return ListGroupsRequest(version=version, states_filter=[], **types)


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
