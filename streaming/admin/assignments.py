"""Which partitions the members of groups are assigned: also of a group that has committed nothing yet.

Apart: it describes groups, and groups.py, which has 500 lines, lists them and reads their offsets.

Each protocol has its own request: classic groups (DescribeGroups; the assignment is bytes of the group's leader), those
of the consumer protocol (KIP-848) and those of Kafka Streams' own (KIP-1071; tasks, which name partitions of the source
topics). While members move, their present and their next partitions count.

Law: a coordinator shows the assignment of a classic group only while the group is stable, and that of a newer one once
it is computed. A group that rebalances is not known, and is not one without partitions. What could not be read is a
problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka.protocol.api_message import ApiMessage

from txnwatch.state.model.errors import BrokerError, WireError
from txnwatch.state.model.values import BrokerId, ErrorCode, TopicPartition, is_topic_name
from txnwatch.streaming.admin.group_rights import describe_request
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection, problem_of
from txnwatch.streaming.wire.primitives import Reader

_AT_A_TIME = 100  # groups of one request: the answer has all members with all their partitions
_OF_GROUPS = "assignments of consumer groups"
_STABLE, _EMPTY, _DEAD = "Stable", "Empty", "Dead"
REBALANCES = "its members change now (it rebalances): what they are assigned is not known, ask again"
HIDES = "its members also read a topic that is hidden from this user: what they are assigned is not known"
_UNASSIGNED = {"Assigning", "NotReady"}  # of the newer protocols: the next assignment is not computed yet


class ConsumerGroupDescribeRequest(ApiMessage, load_json="txnwatch.streaming.admin"):  # type: ignore[call-arg, misc]
    """The request with API key 69, which kafka-python does not have."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json="txnwatch.streaming.admin"):  # type: ignore[call-arg, misc]
    """The response with API key 69."""


class StreamsGroupDescribeRequest(ApiMessage, load_json="txnwatch.streaming.admin"):  # type: ignore[call-arg, misc]
    """The request with API key 89, which kafka-python does not have."""


class StreamsGroupDescribeResponse(ApiMessage, load_json="txnwatch.streaming.admin"):  # type: ignore[call-arg, misc]
    """The response with API key 89."""


class GroupToDescribe(NamedTuple):
    """A group, its coordinator and its type: `classic`, `consumer` or `streams`; empty before Kafka 3.8."""

    group_id: str
    coordinator: BrokerId
    type: str


@dataclass(slots=True)
class Assignments:
    """The answer.

    Attributes:
        partitions: by group, what its members are assigned, or will be next.
        unknown: groups whose assignment is not known, or not all of it, and why.
        problems: why groups are missing, and how many of them.
    """

    partitions: dict[str, frozenset[TopicPartition]] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    problems: Counter[str] = field(default_factory=Counter)


# ConsumerProtocolAssignment: the leader of a classic group writes these bytes, and no broker reads them.
# Versions 0 to 3 begin alike, and later ones may add fields: what follows the partitions is not read.


def decode_assignment(data: memoryview | bytes) -> frozenset[TopicPartition]:
    """The partitions that a member is assigned; an empty value is no partition.

    Raises:
        WireError: bytes that are no assignment.
    """
    if not data:
        return frozenset()
    reader = Reader(data)
    reader.int16("assignment version")

    def topic() -> list[TopicPartition]:
        name = reader.string("assigned topic")
        numbers = reader.array(reader.int32("assigned partitions"), lambda: reader.int32("partition"), "partitions")
        return [TopicPartition(name, number) for number in numbers if number >= 0 and is_topic_name(name)]

    topics = reader.array(reader.int32("assigned topics"), topic, "assigned topics")
    return frozenset(partition for partitions in topics for partition in partitions)


def read_assignments(cluster: Cluster, groups: Iterable[GroupToDescribe]) -> Assignments:
    """Asks the coordinators of some groups, which have members; one request for 100 groups of one protocol."""
    assignments = Assignments()
    wanted: dict[str, dict[BrokerId, list[str]]] = {}
    for group in groups:
        kind = group.type if group.type in _KINDS else _CLASSIC
        wanted.setdefault(kind, {}).setdefault(group.coordinator, []).append(group.group_id)
    for kind, by_node in wanted.items():
        for part in _parts(by_node):
            _ask(cluster, kind, part, assignments)
    return assignments


def _parts(by_node: dict[BrokerId, list[str]]) -> Iterator[dict[BrokerId, list[str]]]:
    for first in range(0, max(map(len, by_node.values())), _AT_A_TIME):
        yield {node: part for node, names in by_node.items() if (part := names[first : first + _AT_A_TIME])}


def _ask(cluster: Cluster, kind: str, part: Mapping[BrokerId, Sequence[str]], assignments: Assignments) -> None:
    request, take = _KINDS[kind]

    def of(names: Sequence[str]) -> Any:
        return lambda connection: request(connection, names)

    answers = cluster.ask({node: of(names) for node, names in part.items()}, cluster.timeout_s)
    for node, answer in answers.items():
        if isinstance(answer, BrokerError):
            assignments.problems[f"{_OF_GROUPS}: {answer}"] += len(part[node])
            continue
        for row in answer.groups:
            if row.group_id not in part[node]:
                continue
            refused = problem_of(row.error_code)
            if refused is not None and refused.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                assignments.unknown[row.group_id] = HIDES
            elif refused is not None:
                assignments.problems[str(refused.of(_OF_GROUPS).with_right("DESCRIBE on the group"))] += 1
            else:
                take(row, assignments)


def _take_classic(row: Any, assignments: Assignments) -> None:
    if row.group_state != _STABLE:
        if row.group_state not in (_EMPTY, _DEAD):
            assignments.unknown[row.group_id] = REBALANCES
        return
    try:
        assigned = [decode_assignment(member.member_assignment or b"") for member in row.members]
    except WireError as exc:
        assignments.problems[f"{_OF_GROUPS}: {exc}"] += 1
        return
    assignments.partitions[row.group_id] = frozenset().union(*assigned)


def _consumer_request(connection: Connection, names: Sequence[str]) -> Any:
    version = connection.require_version(ConsumerGroupDescribeRequest, highest=0)
    return ConsumerGroupDescribeRequest(version=version, group_ids=list(names), include_authorized_operations=False)


def _take_consumer(row: Any, assignments: Assignments) -> None:
    if row.group_state in _UNASSIGNED:
        assignments.unknown[row.group_id] = REBALANCES
    assignments.partitions[row.group_id] = frozenset(
        TopicPartition(topic.topic_name, number)
        for member in row.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )


def _streams_request(connection: Connection, names: Sequence[str]) -> Any:
    version = connection.require_version(StreamsGroupDescribeRequest, highest=0)
    return StreamsGroupDescribeRequest(version=version, group_ids=list(names), include_authorized_operations=False)


def _take_streams(row: Any, assignments: Assignments) -> None:
    """A task with number N of a subtopology reads partition N of each of its source topics."""
    subtopologies = row.topology.subtopologies if row.topology is not None else None
    if subtopologies is None or row.group_state in _UNASSIGNED:
        assignments.unknown[row.group_id] = REBALANCES  # also if a source topic is missing
    if subtopologies is None:
        return
    sources = {
        subtopology.subtopology_id: [
            *subtopology.source_topics,
            *(topic.name for topic in subtopology.repartition_source_topics),
        ]
        for subtopology in subtopologies
    }
    assignments.partitions[row.group_id] = frozenset(
        TopicPartition(topic, number)
        for member in row.members
        for assignment in (member.assignment, member.target_assignment)
        for task in assignment.active_tasks
        for topic in sources.get(task.subtopology_id, ())
        for number in task.partitions
    )


_CLASSIC = "classic"
_KINDS = {
    _CLASSIC: (describe_request, _take_classic),
    "consumer": (_consumer_request, _take_consumer),
    "streams": (_streams_request, _take_streams),
}
