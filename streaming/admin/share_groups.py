"""The positions of share groups (KIP-932) that read with read_committed; open transactions do not stop the others.

A share group has no committed offset. It has a start offset, which is written late: after a group has processed all
records, its start offset can still be where it began. Version 1 of DescribeShareGroupOffsets also returns the lag: the
partition's end, minus the start offset, minus the processed records above it. So the group's position is the end minus
the lag. The answer does not contain that end, so the end is listed before and after: if it is the same, the position is
exact, otherwise the group may be further on. An older broker returns only the start offset, and the group may be
further on than that, too. The isolation level is part of a share group's configuration, so it is known and not
inferred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.api_message import ApiMessage

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ids import BrokerId, TopicPartition
from txnwatch.state.model.problem import Problem
from txnwatch.state.model.quantities import Offset
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection
from txnwatch.streaming.client.error_names import problem_of
from txnwatch.streaming.client.list_offsets import ListedOffset
from txnwatch.streaming.wire.absent import present

_GROUP = 32  # the resource type of a group's configuration
_ISOLATION, _READ_COMMITTED = "share.isolation.level", "read_committed"
_TRIES = 3
_NO_LAG = "offsets of share groups: the broker does not return the lag, so no group can be stopped, only at_risk"


class ShareOffset(NamedTuple):
    """A share group's position in a partition; with `is_floor`, the group may be further on."""

    group_id: str
    partition: TopicPartition
    offset: Offset
    is_floor: bool


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json="txnwatch.streaming.admin"):  # type: ignore[call-arg, misc]
    """The request with API key 90, which kafka-python does not have."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json="txnwatch.streaming.admin"):  # type: ignore[call-arg, misc]
    """The response with API key 90."""


def read_committed_only(cluster: Cluster, groups: Sequence[str], problems: Counter[str]) -> set[str]:
    """The groups that read with read_committed; a group whose configuration cannot be read is a problem."""
    if not groups:
        return set()
    try:
        connection = cluster.any_connection()
        answer = cluster.call(connection, _configs_request(connection, groups))
    except BrokerError as exc:
        problems[f"isolation level of share groups: {exc}"] += len(groups)
        return set()
    found: set[str] = set()
    for result in answer.results:
        if (refused := problem_of(result.error_code)) is not None:
            problems[_why("isolation level of share groups", refused, "DESCRIBE_CONFIGS")] += 1
        elif any(config.name == _ISOLATION and config.value == _READ_COMMITTED for config in result.configs):
            found.add(result.resource_name)
    return found


def are_supported(cluster: Cluster) -> bool:
    """Whether a broker has share groups whose offsets it returns.

    Raises:
        BrokerError: no broker answers.
    """
    return cluster.any_connection().version(DescribeShareGroupOffsetsRequest) is not None


def may_read_isolation(cluster: Cluster, group_id: str) -> bool | None:
    """Whether this user may read the configuration of a share group, which need not exist; None without an answer.

    Raises:
        BrokerError: no broker answers.
    """
    connection = cluster.any_connection()
    answer = cluster.call(connection, _configs_request(connection, [group_id]))
    refused = [problem_of(result.error_code) for result in answer.results if result.resource_name == group_id]
    if refused == [None]:
        return True
    return False if any(one is not None and one.is_denied for one in refused) else None


def share_offsets(
    cluster: Cluster,
    groups: Mapping[BrokerId, Sequence[str]],
    wanted: Sequence[TopicPartition],
    problems: Counter[str],
) -> list[ShareOffset]:
    """The position of each share group in each of its partitions; `groups` has the groups of each coordinator.

    If the end of a partition changes meanwhile, everything is asked again, at most three times in total.
    """
    best: dict[tuple[str, TopicPartition], ShareOffset] = {}
    if not groups:
        return []
    for _ in range(_TRIES):
        found_problems: Counter[str] = Counter()
        before = _ends(cluster, wanted)
        answered = list(_answers(cluster, groups, wanted, found_problems))
        after = _ends(cluster, wanted)
        for group_id, partition, answer in answered:
            found = _placed(group_id, partition, answer, before.get(partition), after.get(partition))
            known = best.get((group_id, partition))
            if known is None or (known.is_floor and (not found.is_floor or found.offset > known.offset)):
                best[group_id, partition] = found
        if before == after or not any(one.is_floor for one in best.values()):
            break
    problems.update(found_problems)
    return list(best.values())


def _ends(cluster: Cluster, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
    listed = cluster.list_offsets(wanted)
    return {partition: one.offset for partition, one in listed.items() if isinstance(one, ListedOffset)}


def _placed(
    group_id: str, partition: TopicPartition, answer: Any, before: Offset | None, after: Offset | None
) -> ShareOffset:
    lag = _lag(answer)
    if lag is None or before is None:
        return ShareOffset(group_id, partition, answer.start_offset, is_floor=True)
    # The end that the lag refers to is at or above `before`, so the group has processed at least this much.
    offset = max(answer.start_offset, before - lag)
    return ShareOffset(group_id, partition, offset, is_floor=before != after)


def _answers(
    cluster: Cluster,
    groups: Mapping[BrokerId, Sequence[str]],
    wanted: Sequence[TopicPartition],
    problems: Counter[str],
) -> Iterator[tuple[str, TopicPartition, Any]]:
    def request(names: Sequence[str]) -> Any:
        return lambda connection: _offsets_request(connection, names, wanted)

    requests = {node: request(names) for node, names in groups.items()}
    for node, answer in cluster.ask(requests, cluster.timeout_s).items():
        if isinstance(answer, BrokerError):
            problems[str(answer)] += len(groups[node])
            continue
        for group in answer.groups:
            if (refused := problem_of(group.error_code)) is not None:
                problems[_why("offsets of share groups", refused, "DESCRIBE")] += 1
            else:
                yield from _partitions_of(group, problems)


def _partitions_of(group: Any, problems: Counter[str]) -> Iterator[tuple[str, TopicPartition, Any]]:
    has_unknown_lag = False
    for topic in group.topics:
        for partition in topic.partitions:
            if (refused := problem_of(partition.error_code)) is not None:
                problems[_why("offsets of share groups", refused, "DESCRIBE")] += 1
            elif present(partition.start_offset) is not None:
                has_unknown_lag |= _lag(partition) is None
                yield group.group_id, TopicPartition(topic.topic_name, partition.partition_index), partition
    if has_unknown_lag:
        problems[_NO_LAG] += 1


def _lag(partition: Any) -> int | None:
    """The lag of a partition; version 0 of the answer has none, and a coordinator may not know it."""
    return None if partition.lag is None else present(partition.lag)


def _why(what: str, refused: Problem, right: str) -> str:
    found = refused.of(what)
    return str(found.with_hint(f"{right} on the group is missing") if found.is_denied else found)


def _configs_request(connection: Connection, groups: Sequence[str]) -> Any:
    version = connection.require_version(DescribeConfigsRequest, highest=4, lowest=1)
    resource = DescribeConfigsRequest.DescribeConfigsResource
    return DescribeConfigsRequest(
        version=version,
        resources=[
            resource(version=version, resource_type=_GROUP, resource_name=name, configuration_keys=[_ISOLATION])
            for name in groups
        ],
        include_synonyms=False,
        include_documentation=False,
    )


def _offsets_request(connection: Connection, groups: Sequence[str], partitions: Sequence[TopicPartition]) -> Any:
    version = connection.require_version(DescribeShareGroupOffsetsRequest, highest=1)
    numbers: dict[str, list[int]] = {}
    for partition in partitions:
        numbers.setdefault(partition.topic, []).append(partition.partition)
    group = DescribeShareGroupOffsetsRequest.Group
    topics = [group.Topic(version=version, topic_name=name, partitions=indexes) for name, indexes in numbers.items()]
    return DescribeShareGroupOffsetsRequest(
        version=version, groups=[group(version=version, group_id=name, topics=topics) for name in groups]
    )
