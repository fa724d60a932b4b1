"""The groups that wait for their committed offsets, because the offsets are pending in an open transaction.

A transaction that commits offsets (TxnOffsetCommit, KIP-98) writes them to `__consumer_offsets`, and they are pending
until its marker is there. A client with `require_stable` (KIP-447: each Java consumer, and a read_committed one of
librdkafka) gets UNSTABLE_OFFSET_COMMIT for such a partition and asks again. So a group whose pending offsets hang does
not begin to read after its next start or rebalance. Share groups commit no offsets in transactions: they never wait.

Two readings, and both must agree. The records of the open transaction name the groups: they are in the log from its
first offset on, because the log cleaner does not pass it. Then the coordinator of each group, which leads that
partition, is asked for the stable offsets. So a name that a client has written counts only if the coordinator confirms
it.

Apart: it reads a log, and groups.py, which has 500 lines, reads none.

Law: the reading is bounded, in bytes for each call and in names for each transaction. What could not be read, and a
transaction of which no record was found, is a problem and not an empty answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafka.protocol.consumer import OffsetFetchRequest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.facts import NoticeKind
from txnwatch.state.model.incident import WaitingGroup
from txnwatch.state.model.ports import WaitingGroups
from txnwatch.state.model.values import (
    CONSUMER_OFFSETS_TOPIC,
    BrokerId,
    ErrorCode,
    Offset,
    ProducerId,
    SpanStart,
    TopicPartition,
)
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection, problem_of
from txnwatch.streaming.client.metadata import NO_LEADER
from txnwatch.streaming.log.lookups import list_extents, read_parts
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.wire.internal_topics import CommittedKey, decode_offset_key
from txnwatch.streaming.wire.record_batch import BatchWalker, records

MOST_BYTES = 4 << 20  # of records, for all spans of one call
MOST_KEYS = 1_000  # groups with their partitions, of one span
MOST_PARTITIONS = 100  # that are named of one group
_DESCRIBE_GROUP, _DESCRIBE_TOPIC = "DESCRIBE on the group", "DESCRIBE on the topic"


class PendingOffsets(BatchWalker):
    """For whom some open transactions have committed offsets; a fold for `read_ranges`.

    Attributes:
        found: by producer id, in the order of the log; at most MOST_KEYS of each.
    """

    def __init__(self, starts: Mapping[ProducerId, Offset], start: Offset, end: Offset) -> None:
        super().__init__(start, end)
        self.starts = starts
        self.found: dict[ProducerId, dict[CommittedKey, None]] = {}

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response.

        Raises:
            WireError: bytes that no group coordinator writes, or compressed records.
        """
        for at, header in self.headers(buffer):
            start = self.starts.get(header.producer_id)
            if start is None or header.last_offset < start or header.is_control or not header.is_transactional:
                continue
            keys = self.found.setdefault(header.producer_id, {})
            for record in records(buffer, at, header):
                key = decode_offset_key(record.key) if record.key is not None else None
                if key is not None and len(keys) < MOST_KEYS:
                    keys[key] = None


def waiting_groups(cluster: Cluster, spans: Iterable[SpanStart]) -> WaitingGroups:
    """See ConsumerGroups.waiting; a span on another topic has no pending offsets."""
    wanted = [span for span in dict.fromkeys(spans) if span.partition.topic == CONSUMER_OFFSETS_TOPIC]
    if not wanted:
        return WaitingGroups({})
    problems: Counter[str] = Counter()
    try:
        pending = _read(cluster, wanted, problems)
        stable = _confirmed(cluster, pending, problems)
    except BrokerError as exc:
        return WaitingGroups({}, (f"pending offsets: {exc}",))
    groups = {
        span: _groups(keys & stable.unstable)
        for span, keys in pending.items()
        if keys & stable.unstable or keys <= stable.answered
    }
    return WaitingGroups(groups, tuple(problems))


def _groups(confirmed: Iterable[CommittedKey]) -> tuple[WaitingGroup, ...]:
    by_group: dict[str, list[TopicPartition]] = {}
    for key in sorted(confirmed):
        by_group.setdefault(key.group_id, []).append(key.partition)
    return tuple(
        WaitingGroup(group_id=name, partitions=tuple(map(str, partitions[:MOST_PARTITIONS])))
        for name, partitions in by_group.items()
    )


def _read(cluster: Cluster, spans: Iterable[SpanStart], problems: Counter[str]) -> dict[SpanStart, set[CommittedKey]]:
    """What the records of the spans name; a span whose partition could not be read is missing."""
    starts: dict[TopicPartition, dict[ProducerId, Offset]] = {}
    for span in spans:
        starts.setdefault(span.partition, {})[span.producer_id] = span.start_offset
    parts = []
    for partition, log in list_extents(cluster, starts).items():
        if isinstance(log, Range):
            parts.append(_part(log, starts[partition]))
        else:
            problems[f"pending offsets of {partition}: {log}"] += 1
    keys_of: dict[SpanStart, set[CommittedKey]] = {}
    for read in read_parts(cluster, parts, max_bytes=MOST_BYTES):
        is_cut = any(notice.kind is NoticeKind.LEFT for notice in read.notices)
        for notice in read.notices:
            if notice.kind is not NoticeKind.LEFT:
                problems[f"pending offsets of {read.partition}: {notice.detail}"] += 1
        for producer_id, start in starts[read.partition].items():
            keys = set(read.fold.found.get(producer_id, ()))
            if keys or not read.notices:
                keys_of[SpanStart(read.partition, producer_id, start)] = keys
            elif is_cut:
                where = f"{read.partition} from offset {start} on"
                problems[f"pending offsets of {where}: none in the first {read.size} bytes"] += 1
    return keys_of


def _part(log: Range, starts: Mapping[ProducerId, Offset]) -> RangeReading[PendingOffsets]:
    return RangeReading(log.part(min(starts.values())), lambda begin, end: PendingOffsets(starts, begin, end))


class StableOffsets(NamedTuple):
    """What coordinators answer about committed offsets: those about which they answer, and those that are pending."""

    answered: set[CommittedKey]
    unstable: set[CommittedKey]


def _confirmed(
    cluster: Cluster, pending: Mapping[SpanStart, set[CommittedKey]], problems: Counter[str]
) -> StableOffsets:
    """Which of the offsets are confirmed by the coordinators of their groups."""
    asked: dict[BrokerId, set[CommittedKey]] = {}
    for span, keys in pending.items():
        leader = cluster.known.leader(span.partition)
        if leader is None:
            problems[f"pending offsets of {span.partition}: {NO_LEADER}"] += 1
        elif keys:
            asked.setdefault(leader, set()).update(keys)
    return stable_offsets(cluster, asked, problems)


def stable_offsets(
    cluster: Cluster, asked: Mapping[BrokerId, Iterable[CommittedKey]], problems: Counter[str]
) -> StableOffsets:
    """Asks coordinators for the stable offsets of their groups (OffsetFetch with `require_stable`)."""

    def request(keys: Iterable[CommittedKey]) -> Any:
        return lambda connection: _request(connection, keys)

    requests = {node: request(sorted(keys)) for node, keys in asked.items()}
    stable = StableOffsets(set(), set())
    for answer in cluster.ask(requests, cluster.timeout_s).values():
        if isinstance(answer, BrokerError):
            problems[f"pending offsets: {answer}"] += 1
            continue
        for group in answer.groups:
            if (refused := problem_of(group.error_code)) is not None:
                problems[f"pending offsets: {refused.with_right(_DESCRIBE_GROUP)}"] += 1
            for topic in group.topics:
                for row in topic.partitions:
                    partition = TopicPartition(topic.name, row.partition_index)
                    _take(CommittedKey(group.group_id, partition), row, stable, problems)
    return stable


def _take(key: CommittedKey, row: Any, stable: StableOffsets, problems: Counter[str]) -> None:
    problem = problem_of(row.error_code)
    is_unstable = problem is not None and problem.code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    if problem is not None and not is_unstable:
        problems[f"pending offsets: {problem.with_right(_DESCRIBE_TOPIC)}"] += 1
        return
    stable.answered.add(key)
    if is_unstable:
        stable.unstable.add(key)


def _request(connection: Connection, keys: Iterable[CommittedKey]) -> Any:
    version = connection.require_version(OffsetFetchRequest, highest=9, lowest=8)
    wanted: dict[str, dict[str, list[int]]] = {}
    for key in keys:
        wanted.setdefault(key.group_id, {}).setdefault(key.partition.topic, []).append(key.partition.partition)
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    topic = group.OffsetFetchRequestTopics
    return OffsetFetchRequest(
        version=version,
        groups=[
            group(
                version=version,
                group_id=name,
                topics=[
                    topic(version=version, name=named, partition_indexes=numbers) for named, numbers in topics.items()
                ],
            )
            for name, topics in wanted.items()
        ],
        require_stable=True,
    )
