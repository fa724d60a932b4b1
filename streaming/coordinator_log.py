"""`__transaction_state` read once for a question: who owned a producer id, when an id was updated, how it ended.

DescribeTransactions tells the present. The log also tells the past: the last update (which KIP-994 wanted and brokers
do not answer), when a transaction was complete, the id of a producer id that has been superseded. Partitions are
read from their beginning, since compaction keeps the last record of an id wherever it stands; what could not be read
is a problem beside the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from txnwatch.state.facts import NoticeKind, TransactionSeen
from txnwatch.state.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.transaction import CoordinatorView
from txnwatch.streaming.cluster import EARLIEST, Cluster
from txnwatch.streaming.fetch import RangeRead, read_ranges
from txnwatch.streaming.transaction_fold import TransactionFold
from txnwatch.streaming.wire.record_batch import records, walk
from txnwatch.streaming.wire.transaction_log import (
    TransactionLogValue,
    coordinator_partition,
    decode_key,
    decode_value,
)

_PATIENCE_S = 5.0


class LogRecord(NamedTuple):
    """One record of the log; `value` None is a tombstone. `timestamp_ms` is the broker's clock at the append."""

    partition: int
    offset: int
    timestamp_ms: int
    transactional_id: str
    value: TransactionLogValue | None


@dataclass(slots=True)
class LogViews:
    """What the log says of producer ids; `problems` name the partitions that were not read to their ends."""

    views: dict[int, CoordinatorView] = field(default_factory=dict)
    problems: dict[TopicPartition, str] = field(default_factory=dict)


def read_views(cluster: Cluster, producer_ids: Collection[int]) -> LogViews:
    """The last view of each producer id that the log still has; reads all partitions of the log."""
    found = LogViews()
    reads = _reads(cluster, None, found.problems, lambda number: lambda start, end: TransactionFold(number, start, end))
    for read in reads:
        for fact in read.fold.facts(live_only=False):
            if isinstance(fact, TransactionSeen) and fact.producer_id in producer_ids:
                found.views[fact.producer_id] = fact.view
    return found


def read_records(cluster: Cluster, transactional_id: str) -> tuple[list[LogRecord], str | None]:
    """Every record of one id that the log still has, oldest first, and what kept it from being read to its end."""
    topic = cluster.refresh().topics.get(TRANSACTION_STATE_TOPIC)
    if topic is None or not topic.partitions:
        return (
            [],
            f"{TRANSACTION_STATE_TOPIC} is not in the cluster's metadata: no right to describe it, or no such topic",
        )
    number = coordinator_partition(transactional_id, len(topic.partitions))
    problems: dict[TopicPartition, str] = {}
    reads = _reads(
        cluster, [number], problems, lambda _: lambda start, end: RecordsOf(number, transactional_id, start, end)
    )
    found = [record for read in reads for record in read.fold.found]
    return found, next((f"{partition}: {why}" for partition, why in problems.items()), None)


def _reads(
    cluster: Cluster,
    numbers: Iterable[int] | None,
    problems: dict[TopicPartition, str],
    fold_of: Callable[[int], Callable[[int, int], Any]],
) -> list[RangeRead]:
    """Reads partitions of the log, all of them for None, from their beginning to their ends."""
    topic = cluster.known.topics.get(TRANSACTION_STATE_TOPIC)
    if topic is None:
        return []
    wanted = [
        TopicPartition(TRANSACTION_STATE_TOPIC, number)
        for number in (sorted(topic.partitions) if numbers is None else numbers)
    ]
    starts = cluster.list_offsets(wanted, timestamp=EARLIEST)
    ends = cluster.list_offsets(wanted)
    reads: list[RangeRead] = []
    for partition in wanted:
        problem = starts[partition].error or ends[partition].error
        if problem is not None:
            problems[partition] = problem
            continue
        start, end = starts[partition].offset, ends[partition].offset
        fold = fold_of(partition.partition)
        reads.append(RangeRead(partition, topic.topic_id, start, end, -1, must_check=False, new_fold=fold))
    read_ranges(cluster, reads, patience_s=_PATIENCE_S)
    for read in reads:
        unread = [notice.detail for notice in read.notices if notice.kind is not NoticeKind.TRUNCATED]
        if unread:
            problems[read.partition] = unread[0]
    return reads


class RecordsOf:
    """Keeps one id's records of a range of one partition of the log; a fold as `read_ranges` wants it."""

    def __init__(self, log_partition: int, transactional_id: str | None, start: int, end: int) -> None:
        self.position = start
        self.leader_epoch = -1
        self.size = 0
        self.found: list[LogRecord] = []
        self._end = end
        self._log_partition = log_partition
        self._wanted = transactional_id
        self._needle = b"" if transactional_id is None else transactional_id.encode()

    @property
    def is_done(self) -> bool:
        """Whether every offset of the range has been walked."""
        return self.position >= self._end

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response; a batch without the id's bytes is stepped over.

        Raises:
            WireError: a record of the id that cannot be decoded.
        """
        for at, header in walk(buffer):
            if header.base_offset >= self._end:
                self.position = self._end
                return
            if self._needle in bytes(buffer[at : at + 12 + header.length]) and not header.is_control:
                self._keep(buffer, at, header)
            self.size += header.length
            self.leader_epoch = header.leader_epoch
            self.position = header.last_offset + 1

    def _keep(self, buffer: memoryview | bytes, at: int, header: Any) -> None:  # noqa: ANN401 - BatchHeader
        for record in records(buffer, at, header):
            name = decode_key(record.key) if record.key is not None else None
            if name is not None and self._wanted in (None, name):
                value = decode_value(record.value) if record.value is not None else None
                self.found.append(LogRecord(self._log_partition, record.offset, record.timestamp, name, value))


def newest_stamp_ms(cluster: Cluster) -> int | None:
    """The youngest timestamp a broker has set in the log; None where nothing could be read."""
    topic = cluster.known.topics[TRANSACTION_STATE_TOPIC]
    partitions = [TopicPartition(TRANSACTION_STATE_TOPIC, number) for number in sorted(topic.partitions)]
    ends = {partition: found.offset for partition, found in cluster.list_offsets(partitions).items() if not found.error}
    reads = [
        RangeRead(partition, topic.topic_id, max(0, end - 1), end, -1, must_check=False, new_fold=_any_of(partition))
        for partition, end in ends.items()
    ]
    read_ranges(cluster, reads, patience_s=_PATIENCE_S)
    return max((record.timestamp_ms for read in reads for record in read.fold.found), default=None)


def _any_of(partition: TopicPartition) -> Callable[[int, int], RecordsOf]:
    return lambda start, end: RecordsOf(partition.partition, None, start, end)
