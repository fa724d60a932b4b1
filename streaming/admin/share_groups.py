"""The positions of share groups (KIP-932) that read with read_committed; open transactions do not stop the others.

A share group has no committed offset. It has a start offset, which is written late: after a group has processed all
records, its start offset can still be where it began. Version 1 of DescribeShareGroupOffsets also returns the lag:
the partition's end, minus the start offset, minus the processed records above it. So the group's position is the end
minus the lag. The answer does not contain that end, so the end is listed before and after: if it is the same, the
position is exact, otherwise the group may be further on. An older broker returns only the start offset, and the group
may be further on than that, too. The isolation level is part of a share group's configuration, so it is known and not
inferred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafka.protocol.api_message import ApiMessage

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ports import GroupOffset, ListedOffset
from txnwatch.state.model.values import BrokerId, Offset, TopicPartition
from txnwatch.streaming.admin.kafka_settings import ConfigOf, configs_request
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection, problem_of
from txnwatch.streaming.wire.primitives import present

_ISOLATION, _READ_COMMITTED = "share.isolation.level", "read_committed"
_TRIES = 3
_LEVEL, _OFFSETS = "isolation level of share groups", "offsets of share groups"
NO_LAG = f"{_OFFSETS}: the broker does not return the lag, so no group can be stopped, only at_risk"


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
        answer = cluster.call(connection, configs_request(connection, ConfigOf.GROUP, groups, [_ISOLATION]))
    except BrokerError as exc:
        problems[f"{_LEVEL}: {exc}"] += len(groups)
        return set()
    names: set[str] = set()
    for result in answer.results:
        if (refused := problem_of(result.error_code)) is not None:
            problems[str(refused.of(_LEVEL).with_right("DESCRIBE_CONFIGS on the group"))] += 1
        elif any(config.name == _ISOLATION and config.value == _READ_COMMITTED for config in result.configs):
            names.add(result.resource_name)
    return names


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
    answer = cluster.call(connection, configs_request(connection, ConfigOf.GROUP, [group_id], [_ISOLATION]))
    refused = [problem_of(result.error_code) for result in answer.results if result.resource_name == group_id]
    if refused == [None]:
        return True
    return False if any(problem is not None and problem.is_denied for problem in refused) else None


def share_offsets(
    cluster: Cluster,
    groups: Mapping[BrokerId, Sequence[str]],
    members: Mapping[str, bool],
    wanted: Sequence[TopicPartition],
    problems: Counter[str],
) -> dict[tuple[str, TopicPartition], GroupOffset]:
    """The position of each share group in each of its partitions, as its committed offset.

    `groups` has the groups of each coordinator, `members` whether each of them has members.
    If the end of a partition changes meanwhile, everything is asked again, at most three times in total.
    """
    best: dict[tuple[str, TopicPartition], GroupOffset] = {}
    if not groups:
        return best
    for _ in range(_TRIES):
        found_problems: Counter[str] = Counter()
        before = _ends(cluster, wanted)
        answered = list(_answers(cluster, groups, wanted, found_problems))
        after = _ends(cluster, wanted)
        for group_id, partition, answer in answered:
            if group_id not in members:
                continue
            offset, is_floor = _placed(answer, before.get(partition), after.get(partition))
            best_so_far = best.get((group_id, partition))
            if best_so_far is None or (
                best_so_far.is_floor and (not is_floor or offset > (best_so_far.committed_offset or 0))
            ):
                best[group_id, partition] = GroupOffset(group_id, offset, members[group_id], is_floor)
        if before == after or not any(position.is_floor for position in best.values()):
            break
    problems.update(found_problems)
    return best


def share_positions(
    cluster: Cluster, coordinator: BrokerId, group_id: str, problems: Counter[str]
) -> dict[TopicPartition, Offset]:
    """Where a share group that reads with read_committed is on its partitions."""
    of_group = {coordinator: [group_id]}
    wanted = [partition for _, partition, _ in _answers(cluster, of_group, None, problems)]
    offsets = share_offsets(cluster, of_group, {group_id: True}, wanted, problems) if wanted else {}
    return {at: offset.committed_offset for (_, at), offset in offsets.items() if offset.committed_offset is not None}


def _ends(cluster: Cluster, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
    listed = cluster.list_offsets(wanted)
    return {partition: end.offset for partition, end in listed.items() if isinstance(end, ListedOffset)}


def _placed(answer: Any, before: Offset | None, after: Offset | None) -> tuple[Offset, bool]:
    """A share group's position in a partition, and whether the group may be further on."""
    lag = _lag(answer)
    if lag is None or before is None:
        return answer.start_offset, True
    # The end that the lag refers to is at or above `before`, so the group has processed at least this much.
    return max(answer.start_offset, before - lag), before != after


def _answers(
    cluster: Cluster,
    groups: Mapping[BrokerId, Sequence[str]],
    wanted: Sequence[TopicPartition] | None,
    problems: Counter[str],
) -> Iterator[tuple[str, TopicPartition, Any]]:
    """The answers about some partitions, or (None) about all that a group has."""

    def request(names: Sequence[str]) -> Any:
        return lambda connection: _offsets_request(connection, names, wanted)

    requests = {node: request(names) for node, names in groups.items()}
    for node, answer in cluster.ask(requests, cluster.timeout_s).items():
        if isinstance(answer, BrokerError):
            problems[str(answer)] += len(groups[node])
            continue
        for group in answer.groups:
            if (refused := problem_of(group.error_code)) is not None:
                problems[str(refused.of(_OFFSETS).with_right("DESCRIBE on the group"))] += 1
            else:
                yield from _partitions_of(group, problems)


def _partitions_of(group: Any, problems: Counter[str]) -> Iterator[tuple[str, TopicPartition, Any]]:
    has_unknown_lag = False
    for topic in group.topics:
        for partition in topic.partitions:
            if (refused := problem_of(partition.error_code)) is not None:
                problems[str(refused.of(_OFFSETS).with_right("DESCRIBE on the group"))] += 1
            elif present(partition.start_offset) is not None:
                has_unknown_lag |= _lag(partition) is None
                yield group.group_id, TopicPartition(topic.topic_name, partition.partition_index), partition
    if has_unknown_lag:
        problems[NO_LAG] += 1


def _lag(partition: Any) -> int | None:
    """The lag of a partition; version 0 of the answer has none, and a coordinator may not know it."""
    return None if partition.lag is None else present(partition.lag)


def _offsets_request(connection: Connection, groups: Sequence[str], partitions: Sequence[TopicPartition] | None) -> Any:
    version = connection.require_version(DescribeShareGroupOffsetsRequest, highest=1)
    numbers: dict[str, list[int]] = {}
    for partition in partitions or ():
        numbers.setdefault(partition.topic, []).append(partition.partition)
    group = DescribeShareGroupOffsetsRequest.Group
    topics = [group.Topic(version=version, topic_name=name, partitions=indexes) for name, indexes in numbers.items()]
    return DescribeShareGroupOffsetsRequest(
        version=version,
        groups=[
            group(version=version, group_id=name, topics=topics if partitions is not None else None) for name in groups
        ],
    )
