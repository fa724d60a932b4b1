"""ConsumerGroups over the wire: which groups have committed which offsets of some partitions, or are assigned them.

A broker lists the groups that it coordinates (ListGroups), so the listing also shows which broker to ask for a group's
offsets (OffsetFetch, many groups in one request). These are the groups of the consumer protocols, old and new, and of
Kafka Streams' own protocol (KIP-1071); the share groups are below. A group with members that has committed nothing of
one of the partitions is described as well (assignments.py): it stops there like the others. Groups are read only while
an incident is open, and within the admin's budget: on a cluster with thousands of groups, what does not fit is a
problem and not an empty answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka.protocol.consumer import OffsetFetchRequest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ports import GroupOffset, GroupOffsets, WaitingGroups
from txnwatch.state.model.values import BrokerId, Offset, Problem, SpanStart, TopicPartition
from txnwatch.streaming.admin.assignments import Assignments, GroupToDescribe, read_assignments
from txnwatch.streaming.admin.connect_topics import connect_uses
from txnwatch.streaming.admin.group_rights import hides_groups, list_request
from txnwatch.streaming.admin.share_groups import NO_LAG, read_committed_only, share_offsets, share_positions
from txnwatch.streaming.admin.waiting_groups import stable_offsets, waiting_groups
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection, problem_of
from txnwatch.streaming.wire.internal_topics import CommittedKey
from txnwatch.streaming.wire.primitives import present

# The port ConsumerGroups: the groups, and the offsets of some partitions that they have committed.

_GROUPS_AT_A_TIME = 500
_WITH_MEMBERS = {"Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NotReady"}
_COMMITTING_PROTOCOLS = {"consumer", "streams", ""}  # empty: the group committed offsets without joining
_SHARE, _CONNECT = "share", "connect"
_KNOWN_PROTOCOLS = frozenset({*_COMMITTING_PROTOCOLS, _SHARE, _CONNECT})
_HIDDEN = "hidden groups are not listed: GROUP_AUTHORIZATION_FAILED: DESCRIBE on all groups is missing"
Groups = dict[str, bool]


class KnownGroup(NamedTuple):
    """A group as its coordinator lists it.

    Attributes:
        state: in Kafka's spelling, for example Stable or Empty.
        protocol: `consumer`, `streams`, `share` or `connect`; empty for a group that commits offsets without joining.
        type: the protocol of its members: `classic`, `consumer`, `streams`, `share`; empty before Kafka 3.8.
    """

    group_id: str
    coordinator: BrokerId
    state: str
    protocol: str
    type: str = ""

    @property
    def has_members(self) -> bool:
        """Whether a member is connected."""
        return self.state in _WITH_MEMBERS

    @property
    def is_share(self) -> bool:
        """Whether it is a share group, which commits no offsets."""
        return self.protocol == _SHARE

    @property
    def is_connect(self) -> bool:
        """Whether it is the group of Kafka Connect's workers, which commit no offsets."""
        return self.protocol == _CONNECT


class FoundGroup(NamedTuple):
    """A group; None if no broker lists it, which proves its absence only without problems."""

    group: KnownGroup | None
    problems: tuple[str, ...]


class UnstableGroups(NamedTuple):
    """The names of groups, complete only without problems."""

    groups: tuple[str, ...]
    problems: tuple[str, ...]


class GroupPositions(NamedTuple):
    """What one group reads, complete only without problems.

    Attributes:
        offsets: its committed offsets.
        uncommitted: the partitions that its members are assigned, and of which nothing was committed.
        is_never_stopped: whether it is a share group that does not read with read_committed; then nothing else is read.
    """

    offsets: Mapping[TopicPartition, Offset]
    problems: tuple[str, ...]
    uncommitted: frozenset[TopicPartition] = frozenset()
    is_never_stopped: bool = False


@dataclass(slots=True)
class Unknown:
    """Of whom it is not known whether anything was committed: groups, and partitions of groups."""

    groups: set[str] = field(default_factory=set)
    offsets: set[tuple[str, TopicPartition]] = field(default_factory=set)


def _to_describe(group: KnownGroup) -> GroupToDescribe:
    return GroupToDescribe(group.group_id, group.coordinator, group.type)


class ClusterGroups:
    """ConsumerGroups of one cluster; not thread-safe."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def committed_offsets(self, partitions: Iterable[TopicPartition]) -> GroupOffsets:
        """See ConsumerGroups. Sends one request per broker, then one per 500 groups, and one about the right.

        Groups with members that have committed nothing of a partition cost one request more per 100 of them.
        """
        wanted = list(dict.fromkeys(partitions))
        offsets: dict[TopicPartition, list[GroupOffset]] = {partition: [] for partition in wanted}
        problems: Counter[str] = Counter()
        try:
            committing, sharing, joined, workers = self._listed(problems) if wanted else ({}, {}, [], [])
        except BrokerError as exc:
            return GroupOffsets(dict.fromkeys(wanted, ()), (str(exc),))
        unknown = Unknown()
        for part in _parts(committing):
            self._fetch(part, wanted, offsets, problems, unknown)
        assigned = self._assigned(joined, offsets, unknown)
        problems.update(assigned.problems)
        for part in _parts(sharing):
            self._share(part, wanted, offsets, problems)
        if wanted:
            self._note_hidden(problems)
        return GroupOffsets(
            {partition: tuple(group_offsets) for partition, group_offsets in offsets.items()},
            tuple(f"{problem} ({count} groups)" if count > 1 else problem for problem, count in problems.items()),
            tuple(sorted(assigned.unknown)),
            connect_uses({at.topic for at in wanted}, shown_topics(self._cluster), workers),
        )

    def waiting(self, spans: Iterable[SpanStart]) -> WaitingGroups:
        """See ConsumerGroups. Reads at most a few MB of the partitions, then sends one request per coordinator."""
        return waiting_groups(self._cluster, spans)

    def find(self, group_id: str) -> FoundGroup:
        """Searches every broker for a group. Sends one request per broker, and one about the right."""
        problems: Counter[str] = Counter()
        groups = [group for group in self._rows(problems) if group.group_id == group_id]
        if not groups:
            self._note_hidden(problems)
        return FoundGroup(groups[0] if groups else None, tuple(problems))

    def names(self) -> tuple[list[str], tuple[str, ...]]:
        """The names of all groups that this user sees, and why some may be missing; one request per broker."""
        problems: Counter[str] = Counter()
        names = [group.group_id for group in self._rows(problems)]
        self._note_hidden(problems)
        return names, tuple(problems)

    def unstable(self, partition: TopicPartition) -> UnstableGroups:
        """The groups that do not get their committed offset of a partition, because it is pending in a transaction."""
        problems: Counter[str] = Counter()
        committing, *_ = self._listed(problems)
        unstable: list[str] = []
        for part in _parts(committing):
            asked = {node: [CommittedKey(name, partition) for name in groups] for node, groups in part.items()}
            unstable += [key.group_id for key in stable_offsets(self._cluster, asked, problems).unstable]
        self._note_hidden(problems)
        return UnstableGroups(tuple(sorted(unstable)), tuple(problems))

    def offsets_of(self, group: KnownGroup) -> GroupPositions:
        """All committed offsets of one group, and what its members are assigned; of a share group its positions."""
        if group.is_share:
            return self._share_positions_of(group)
        request = {group.coordinator: lambda connection: _fetch_request(connection, [group.group_id], None)}
        (answer,) = self._cluster.ask(request, self._cluster.timeout_s).values()
        if isinstance(answer, BrokerError):
            return GroupPositions({}, (str(answer),))
        problems: Counter[str] = Counter()
        offsets: dict[TopicPartition, Offset] = {}
        for row in answer.groups:
            if (refused := problem_of(row.error_code)) is not None:
                problems[_why_unread(refused, "group")] += 1
            for topic in row.topics:
                for partition in topic.partitions:
                    if (committed := present(partition.committed_offset)) is not None and not partition.error_code:
                        offsets[TopicPartition(topic.name, partition.partition_index)] = committed
        assigned: frozenset[TopicPartition] = frozenset()
        if group.has_members:
            answer = read_assignments(self._cluster, [_to_describe(group)])
            problems.update(answer.problems)
            problems.update(answer.unknown.values())
            assigned = answer.partitions.get(group.group_id, frozenset())
        return GroupPositions(offsets, tuple(problems), assigned - offsets.keys())

    def _share_positions_of(self, group: KnownGroup) -> GroupPositions:
        problems: Counter[str] = Counter()
        if not read_committed_only(self._cluster, [group.group_id], problems):
            return GroupPositions({}, tuple(problems), is_never_stopped=not problems)
        positions = share_positions(self._cluster, group.coordinator, group.group_id, problems)
        return GroupPositions(positions, tuple(problem for problem in problems if problem != NO_LAG))

    def _listed(
        self, problems: Counter[str]
    ) -> tuple[dict[BrokerId, Groups], dict[BrokerId, Groups], list[KnownGroup], list[str]]:
        """For each broker its groups, and whether each has members: groups that commit, and share groups.

        The third are those of the first that have members, and the fourth the groups of Connect's workers.
        """
        committing: dict[BrokerId, Groups] = {}
        sharing: dict[BrokerId, Groups] = {}
        joined: list[KnownGroup] = []
        workers: list[str] = []
        for group in self._rows(problems):
            if group.is_connect:
                workers.append(group.group_id)
                continue
            kinds = sharing if group.is_share else committing
            kinds.setdefault(group.coordinator, {})[group.group_id] = group.has_members
            if group.has_members and not group.is_share:
                joined.append(group)
        return committing, sharing, joined, workers

    def _assigned(
        self, joined: Iterable[KnownGroup], offsets: dict[TopicPartition, list[GroupOffset]], unknown: Unknown
    ) -> Assignments:
        """Adds the groups that are assigned one of the partitions and have committed nothing of it."""
        counts = Counter(offset.group_id for group_offsets in offsets.values() for offset in group_offsets)
        lacking = [
            group for group in joined if counts[group.group_id] < len(offsets) and group.group_id not in unknown.groups
        ]
        answer = read_assignments(self._cluster, map(_to_describe, lacking))
        for name, partitions in answer.partitions.items():
            for at in partitions & offsets.keys():
                is_new = all(offset.group_id != name for offset in offsets[at])
                if is_new and (name, at) not in unknown.offsets:
                    offsets[at].append(GroupOffset(name, None, has_members=True))
        return answer

    def _rows(self, problems: Counter[str]) -> Iterator[KnownGroup]:
        """The groups of every broker that read topics, and those of Connect's workers."""
        requests = dict.fromkeys(self._cluster.known.brokers, list_request)
        for node, answer in self._cluster.ask(requests, self._cluster.timeout_s).items():
            if isinstance(answer, BrokerError):
                problems[str(answer)] += 1
            elif (refused := problem_of(answer.error_code)) is not None:
                problems[f"broker {node}: cannot list groups: {refused}"] += 1
            else:
                for row in answer.groups:
                    if row.protocol_type in _KNOWN_PROTOCOLS:
                        kind = (row.group_type or "").lower()
                        yield KnownGroup(row.group_id, node, row.group_state, row.protocol_type, kind)

    def _note_hidden(self, problems: Counter[str]) -> None:
        try:
            if hides_groups(self._cluster):
                problems[_HIDDEN] += 1
        except BrokerError as exc:
            problems[str(exc)] += 1

    def _share(
        self,
        by_broker: dict[BrokerId, Groups],
        wanted: Sequence[TopicPartition],
        offsets: dict[TopicPartition, list[GroupOffset]],
        problems: Counter[str],
    ) -> None:
        members = {name: has_members for groups in by_broker.values() for name, has_members in groups.items()}
        stopped_by_it = read_committed_only(self._cluster, list(members), problems)
        asked = {
            node: names
            for node, groups in by_broker.items()
            if (names := [name for name in groups if name in stopped_by_it])
        }
        for (_, partition), offset in share_offsets(self._cluster, asked, members, wanted, problems).items():
            if partition in offsets:
                offsets[partition].append(offset)

    def _fetch(
        self,
        groups: dict[BrokerId, Groups],
        wanted: Sequence[TopicPartition],
        offsets: dict[TopicPartition, list[GroupOffset]],
        problems: Counter[str],
        unknown: Unknown,
    ) -> None:
        def request(names: Sequence[str]) -> Any:
            return lambda connection: _fetch_request(connection, names, wanted)

        requests = {node: request(list(names)) for node, names in groups.items()}
        for node, answer in self._cluster.ask(requests, self._cluster.timeout_s).items():
            if isinstance(answer, BrokerError):
                problems[str(answer)] += len(groups[node])
                unknown.groups.update(groups[node])
                continue
            for row in answer.groups:
                if (refused := problem_of(row.error_code)) is not None:
                    problems[_why_unread(refused, "group")] += 1
                    unknown.groups.add(row.group_id)
                elif row.group_id in groups[node]:
                    _take(row, groups[node], offsets, problems, unknown)


def shown_topics(cluster: Cluster) -> Iterator[str]:
    """The topics that this user sees."""
    yield from (name for name, topic in cluster.known.topics.items() if not topic.is_hidden)


def _parts(left: dict[BrokerId, Groups]) -> Iterator[dict[BrokerId, Groups]]:
    """Splits each broker's groups into parts of one request each."""
    while left:
        yield {node: dict(list(groups.items())[:_GROUPS_AT_A_TIME]) for node, groups in left.items()}
        left = {node: dict(list(groups.items())[_GROUPS_AT_A_TIME:]) for node, groups in left.items()}
        left = {node: groups for node, groups in left.items() if groups}


def _take(
    row: Any,
    groups: Groups,
    offsets: dict[TopicPartition, list[GroupOffset]],
    problems: Counter[str],
    unknown: Unknown,
) -> None:
    for topic in row.topics:
        for partition in topic.partitions:
            at = TopicPartition(topic.name, partition.partition_index)
            if (refused := problem_of(partition.error_code)) is not None:
                problems[_why_unread(refused, f"topic {topic.name}")] += 1
                unknown.offsets.add((row.group_id, at))
            elif (committed := present(partition.committed_offset)) is not None and at in offsets:
                offsets[at].append(GroupOffset(row.group_id, committed, groups[row.group_id]))


def _why_unread(refused: Problem, what: str) -> str:
    problem = refused.of("offsets of consumer groups")
    return str(problem.with_hint(f"DESCRIBE on the {what} is missing") if problem.is_denied else problem)


def _fetch_request(connection: Connection, groups: Sequence[str], partitions: Sequence[TopicPartition] | None) -> Any:
    """Asks for the offsets of some groups, of some partitions or (None) of all."""
    version = connection.require_version(OffsetFetchRequest, highest=9, lowest=8)
    numbers: dict[str, list[int]] = {}
    for partition in partitions or ():
        numbers.setdefault(partition.topic, []).append(partition.partition)
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    topics = [
        group.OffsetFetchRequestTopics(version=version, name=name, partition_indexes=indexes)
        for name, indexes in numbers.items()
    ]
    wanted = topics if partitions is not None else None
    return OffsetFetchRequest(
        version=version,
        groups=[group(version=version, group_id=name, topics=wanted) for name in groups],
        require_stable=False,
    )
