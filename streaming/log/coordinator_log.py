"""One-time searches of `__transaction_state`: who owned a producer id, when an id was updated, how it ended.

DescribeTransactions shows the present. The log also shows the past: the last update (KIP-994 proposed it, but brokers
do not return it), when a transaction was complete, and the transactional id of a superseded producer id. Partitions are
read from their beginning, because compaction keeps the last record of an id at any offset. What could not be read is
returned as a problem beside the answer.

Law: a producer id without a name is unknown, not without an owner. Compaction removes the records with the former
producer ids of a transactional id, and those of an id that has expired. Two transactional ids may have had one producer
id (a log that was restored from a backup): then neither is the answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from txnwatch.state.detection.view import is_newer, view_of_two
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.facts import NoticeKind, PartitionNotice, TransactionSeen
from txnwatch.state.model.ports import FormerOwnersRead, LeaderStamp, ListedOffset
from txnwatch.state.model.transaction import CoordinatorView
from txnwatch.state.model.values import (
    FIRST_OFFSET,
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    CoordinatorEpoch,
    LeaderEpoch,
    Offset,
    Problem,
    ProducerId,
    TimestampMs,
    TopicPartition,
    coordinator_partition,
    log_numbered,
)
from txnwatch.streaming.client.cluster import EARLIEST, Cluster
from txnwatch.streaming.client.hidden_topics import NOT_SHOWN, why_no_log
from txnwatch.streaming.log.coordinator_records import logged_record, logged_records
from txnwatch.streaming.log.lookups import BatchList, continued_read, extents, is_still_wanted, list_extents, read_parts
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.log.transaction_fold import TransactionFold, last_hole_end, view_of
from txnwatch.streaming.wire.internal_topics import TransactionLogValue
from txnwatch.streaming.wire.record_batch import LENGTH_OVERHEAD, BatchWalker, records, walk

_BEFORE_AN_ID = (b"\x00\x00", b"\x00\x01", b"\x08")  # version of the value, 0 or 1; size of a tagged producer id


class LogRecord(NamedTuple):
    """One record of the log.

    Attributes:
        partition: the number of its partition; None if it is from a file whose partition is not known.
        timestamp_ms: the broker's clock at the append.
        value: None for a tombstone.
        coordinator_epoch: the leader epoch under which the record was appended.
    """

    partition: int | None
    offset: Offset
    timestamp_ms: TimestampMs
    transactional_id: str
    value: TransactionLogValue | None
    coordinator_epoch: CoordinatorEpoch | None = None


@dataclass(slots=True)
class LogViews:
    """What the log shows of some producer ids.

    Attributes:
        problems: the partitions that were not read to their end, and why.
        led: by log partition, its leader, if that leader has left a stamp there.
        epochs: by log partition, the leader epoch under which its end was listed.
        unwatched: log partitions whose leader may have restarted with the same leader epoch: one reading does not show
            it, because its connections are new.
    """

    views: dict[ProducerId, CoordinatorView] = field(default_factory=dict)
    problems: dict[TopicPartition, str] = field(default_factory=dict)
    led: dict[TopicPartition, LeaderStamp] = field(default_factory=dict)
    epochs: dict[TopicPartition, CoordinatorEpoch] = field(default_factory=dict)
    unwatched: frozenset[TopicPartition] = frozenset()

    def add(self, producer_id: ProducerId, view: CoordinatorView) -> None:
        """Adds the view of a producer id; a second transactional id may have one of the same producer id."""
        view_before = self.views.get(producer_id)
        if view_before is not None:
            view = view_of_two(view_before, view, is_newer=is_newer(view_before, view))
        self.views[producer_id] = view


def read_views(cluster: Cluster, producer_ids: Collection[ProducerId]) -> LogViews:
    """The last view of each producer id that the log still has; reads all partitions of the log.

    Records that end a producer id without naming it (a tombstone, or in version 0 the id's next producer id) are not
    searched for. So a caller must ask the id's coordinator whether a view still holds.
    """
    log_views = LogViews()
    if not producer_ids:
        return log_views
    asked = logs_of(cluster)
    starts, ends = cluster.list_offsets(asked, timestamp=EARLIEST), cluster.list_offsets(asked)
    logs = extents(cluster, starts, ends)
    log_views.epochs = {
        partition: CoordinatorEpoch(end.leader_epoch)
        for partition, end in ends.items()
        if isinstance(logs[partition], Range) and isinstance(end, ListedOffset) and end.leader_epoch is not None
    }
    log_views.unwatched = frozenset(
        partition
        for partition, end in ends.items()
        if isinstance(end, ListedOffset) and cluster.connection_to_keep(end.leader)
    )
    for read in _search(cluster, logs, _needles_of(producer_ids), log_views.problems):
        leader, since_ms = _leader(cluster, read.partition, read.fold.leader_epoch), read.fold.epoch_since_ms
        if leader is not None and since_ms is not None:
            log_views.led[read.partition] = LeaderStamp(leader, since_ms)
        fold = TransactionFold(read.partition, read.start, read.end)
        fold.feed(memoryview(read.fold.kept), read.fold.hole_end_before)
        for fact in fold.facts():
            if isinstance(fact, TransactionSeen) and fact.producer_id in producer_ids:
                log_views.add(fact.producer_id, fact.view)
    return log_views


def _needles_of(producer_ids: Collection[ProducerId]) -> tuple[bytes, ...]:
    """Byte strings of which one is in each record that names one of the producer ids."""
    return tuple(before + producer_id.to_bytes(8, "big") for producer_id in producer_ids for before in _BEFORE_AN_ID)


def log_of(cluster: Cluster, transactional_id: str) -> TopicPartition | None:
    """The partition of the log that has an id, by the last metadata; None if the log is not shown."""
    logs = logs_of(cluster)
    return logs[coordinator_partition(transactional_id, len(logs))] if logs else None


def read_records(cluster: Cluster, transactional_id: str) -> tuple[list[LogRecord], str | None]:
    """Every record of one id that the log still has, oldest first; and why the log was not read to its end."""
    cluster.refresh()
    log = log_of(cluster, transactional_id)
    if log is None:
        return [], f"{TRANSACTION_STATE_TOPIC}: {why_no_log(cluster)}"
    problems: dict[TopicPartition, str] = {}
    log_records = [
        record
        for read in _search(cluster, list_extents(cluster, [log]), (transactional_id.encode(),), problems)
        for record in records_of(memoryview(read.fold.kept), log.partition)
        if record.transactional_id == transactional_id
    ]
    return log_records, next((f"{partition}: {why}" for partition, why in problems.items()), None)


def read_all_records(cluster: Cluster, transactional_id: str) -> tuple[list[LogRecord], str | None]:
    """The same from all partitions, by time: the log may have had another number of partitions before."""
    cluster.refresh()
    if not logs_of(cluster):
        return [], f"{TRANSACTION_STATE_TOPIC}: {why_no_log(cluster)}"
    log_records, problem = read_naming(cluster, transactional_id)
    return [record for record in log_records if record.transactional_id == transactional_id], problem


def read_records_anywhere(cluster: Cluster, transactional_id: str) -> tuple[list[LogRecord], str | None]:
    """The records of the id's partition; if it has none, those of all partitions."""
    log_records, problem = read_records(cluster, transactional_id)
    return (log_records, problem) if log_records or problem is not None else read_all_records(cluster, transactional_id)


def read_naming(cluster: Cluster, name: str) -> tuple[list[LogRecord], str | None]:
    """Every record of the log whose bytes contain a name, for example of a topic; by time, and why some are missing."""
    problems: dict[TopicPartition, str] = {}
    log_records = [
        record
        for read in _search(cluster, list_extents(cluster, logs_of(cluster)), (name.encode(),), problems)
        for record in records_of(memoryview(read.fold.kept), read.partition.partition)
    ]
    problem = next((f"{partition}: {why}" for partition, why in problems.items()), None)
    return sorted(log_records, key=lambda record: record.timestamp_ms), problem


def history_of(records: Iterable[LogRecord]) -> list[CoordinatorView | None]:
    """The records of one id, oldest first, as the views that state/evidence/past_ends.py takes; None is a tombstone."""
    return [
        view_of(record, record.value, record.partition or 0, record.coordinator_epoch)
        if record.value is not None
        else None
        for record in records
    ]


def records_of(buffer: memoryview | bytes, log_partition: int | None) -> Iterator[LogRecord]:
    """The records of complete batches of the log, for example of a segment file.

    Raises:
        WireError: bytes that no broker writes to this log.
    """
    for at, header in walk(buffer):
        if header.is_control:
            continue
        by = CoordinatorEpoch(header.leader_epoch)
        for record in records(buffer, at, header):
            logged = logged_record(record)
            if logged is not None:
                yield LogRecord(
                    log_partition, logged.offset, logged.timestamp_ms, logged.transactional_id, logged.value, by
                )


def logs_of(cluster: Cluster) -> list[TopicPartition]:
    """The partitions of the log, by number; none if the log is hidden."""
    topic = cluster.known.topics.get(TRANSACTION_STATE_TOPIC)
    numbers = sorted(topic.partitions) if topic is not None else []
    return [log_numbered(number) for number in numbers]


def _search(
    cluster: Cluster,
    logs: Mapping[TopicPartition, Range | Problem],
    needles: tuple[bytes, ...],
    problems: dict[TopicPartition, str],
) -> list[RangeReading[_KeptBatches]]:
    """Reads partitions of the log from beginning to end, and keeps the batches that contain a needle."""
    problems.update({partition: str(log) for partition, log in logs.items() if isinstance(log, Problem)})
    reads = read_parts(
        cluster, [RangeReading(log.part(), _kept_batches(needles)) for log in logs.values() if isinstance(log, Range)]
    )
    for read in reads:
        if read.notices:
            problems[read.partition] = read.notices[0].detail
    return reads


class _KeptBatches(BatchWalker):
    """The batches of a range that contain one of some byte strings; a fold for `read_ranges`.

    Searching bytes is an order of magnitude cheaper than decoding records, and few records are wanted.

    Attributes:
        hole_end_before: by base offset of a kept batch, where the log's last hole before it ended; the start of the
            range if there was none.
        epoch_since_ms: the stamp of the first batch under the leader epoch of the last batch; None before the first.
    """

    def __init__(self, needles: tuple[bytes, ...], start: Offset, end: Offset) -> None:
        super().__init__(start, end)
        self.needles = needles
        self.kept = bytearray()
        self.hole_end_before: dict[Offset, Offset] = {}
        self.epoch_since_ms: TimestampMs | None = None
        self._whole_from = start

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response.

        Raises:
            WireError: bytes that no broker writes.
        """
        whole = bytes(buffer)
        matches = iter(sorted(position for needle in self.needles for position in _positions(whole, needle)))
        match = next(matches, None)
        for at, header in self.headers(whole):
            self._whole_from = last_hole_end(self._whole_from, self.position, header)
            after = at + LENGTH_OVERHEAD + header.length
            while match is not None and match < at:
                match = next(matches, None)
            if match is not None and match < after:
                self.kept += whole[at:after]
                self.hole_end_before[header.base_offset] = self._whole_from
            if header.leader_epoch != self.leader_epoch:
                self.epoch_since_ms = header.max_timestamp


def _positions(buffer: bytes, needle: bytes) -> Iterator[int]:
    position = buffer.find(needle)
    while position >= 0:
        yield position
        position = buffer.find(needle, position + 1)


def _kept_batches(needles: tuple[bytes, ...]) -> Callable[[Offset, Offset], _KeptBatches]:
    """Makes the fold that keeps the batches with one of the byte strings."""
    return lambda start, end: _KeptBatches(needles, start, end)


class NewestStamp(NamedTuple):
    """The newest stamp in a partition of the log; `broker` is its leader, None if a former leader set the stamp.

    `offset` is the last one of the batch that has the stamp.
    """

    broker: BrokerId | None
    stamp_ms: TimestampMs
    partition: TopicPartition
    offset: Offset


def newest_stamps(cluster: Cluster) -> list[NewestStamp]:
    """The newest stamp of each partition of the log that has one and could be read."""
    logs = [log for log in list_extents(cluster, logs_of(cluster)).values() if isinstance(log, Range)]
    reads = read_parts(cluster, [RangeReading(log.part(Offset(log.end - 1)), _first_batch) for log in logs])
    return [
        NewestStamp(
            _leader(cluster, read.partition, header.leader_epoch),
            header.max_timestamp,
            read.partition,
            header.last_offset,
        )
        for read in reads
        for header, _ in read.fold.found
    ]


def _leader(cluster: Cluster, partition: TopicPartition, leader_epoch: LeaderEpoch) -> BrokerId | None:
    """The partition's leader, if it leads under this epoch."""
    info = cluster.known.info(partition)
    return info.leader if info is not None and info.leader_epoch == leader_epoch else None


def _first_batch(start: Offset, end: Offset) -> BatchList:
    return BatchList(start, end, 1)


# Whose a producer id is or was, by a read of the whole log: for a hang without owner, and for history.
#
# If a transactional id has expired, compaction keeps its last record until it cleans that part of the log, and then a
# tombstone, which names no producer id. A first reading of the log leaves idle ids out (transaction_fold.py), so the
# log is searched when a hang without an owner is found: all of it, once for several producer ids, by byte strings
# (`_KeptBatches`). Only the matching batches are held. A read that does not fit into the time budget continues at the
# next call. History is read once, without a budget.

AT_A_TIME = 20  # producer ids: the bytes are searched for each of them


@dataclass(slots=True)
class _Search:
    """One read of the log for some producer ids."""

    producer_ids: frozenset[ProducerId]
    reads: list[RangeReading[_KeptBatches]]
    used_s: float


class FormerOwnersReader:
    """FormerOwners of one cluster; it reads the log for one set of producer ids after the other. Not thread-safe."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._search: _Search | None = None

    def read(self, producer_ids: Collection[ProducerId]) -> FormerOwnersRead:
        """See FormerOwners."""
        with continued_read(self._cluster) as until:
            try:
                search = self._under_way() or self._begin(producer_ids)
                read_parts(self._cluster, search.reads, until)
            except BrokerError as exc:
                self._search = None
                return FormerOwnersRead({}, str(exc))
        search.used_s = time.monotonic()
        if any(read.needs_fetch for read in search.reads):
            return FormerOwnersRead({})
        self._search = None
        return _answer(search)

    def _under_way(self) -> _Search | None:
        search = self._search
        return search if search is not None and is_still_wanted(search.used_s) else None

    def _begin(self, producer_ids: Collection[ProducerId]) -> _Search:
        """Lists the log, and begins to read it from its beginning.

        Raises:
            BrokerError: a part of the log cannot be listed, so a record of the producer ids may be there.
        """
        self._cluster.refresh()
        wanted = sorted(producer_ids)[:AT_A_TIME]
        logs = list_extents(self._cluster, logs_of(self._cluster))
        if not logs:
            raise BrokerError(f"{TRANSACTION_STATE_TOPIC}: {NOT_SHOWN}")
        reads = []
        for partition, log in logs.items():
            if isinstance(log, Problem):
                raise BrokerError(f"{partition}: {log}")
            reads.append(RangeReading(log.part(), _kept_batches(_needles_of(wanted))))
        self._search = _Search(frozenset(wanted), reads, time.monotonic())
        return self._search


def _answer(search: _Search) -> FormerOwnersRead:
    """The names in a finished read; if a part of it could not be read, it names nobody."""
    problem = next((f"{read.partition}: {read.notices[0].detail}" for read in search.reads if read.notices), None)
    if problem is not None:
        return FormerOwnersRead({}, problem)
    owners: dict[ProducerId, set[str]] = {producer_id: set() for producer_id in search.producer_ids}
    for read in search.reads:
        for record in records_of(memoryview(read.fold.kept), read.partition.partition):
            if record.value is not None and record.value.producer_id in owners:
                owners[record.value.producer_id].add(record.transactional_id)
    return FormerOwnersRead({of: next(iter(names)) if len(names) == 1 else None for of, names in owners.items()})


class OwnerNames(NamedTuple):
    """The owners of producer ids, and what of the log could not be read."""

    names: Mapping[ProducerId, str] = {}
    missing: tuple[PartitionNotice, ...] = ()


class NameFold(BatchWalker):
    """The transactional ids of each wanted producer id in a range; a fold for `read_ranges`."""

    def __init__(self, wanted: Collection[ProducerId], start: Offset, end: Offset) -> None:
        super().__init__(start, end)
        self._wanted = wanted
        self.names: dict[ProducerId, set[str]] = {}

    def feed(self, buffer: memoryview | bytes) -> None:
        """Reads the records of one Fetch response.

        Raises:
            WireError: bytes that no broker writes.
        """
        for at, header in self.headers(buffer):
            if header.is_control:
                continue
            for record in logged_records(buffer, at, header):
                for producer_id in _producer_ids(record.value):
                    if producer_id in self._wanted:
                        self.names.setdefault(producer_id, set()).add(record.transactional_id)


def _producer_ids(value: TransactionLogValue | None) -> Iterator[ProducerId]:
    """The producer ids that a record names: that of now, the one before it and the one after it."""
    if value is not None:
        yield value.producer_id
        yield from (
            producer_id
            for producer_id in (value.previous_producer_id, value.next_producer_id)
            if producer_id is not None
        )


def read_owner_names(cluster: Cluster, wanted: Collection[ProducerId]) -> OwnerNames:
    """Reads the whole log for the owners of some producer ids."""
    if not wanted:
        return OwnerNames()
    try:
        cluster.refresh()
        logs = list_extents(cluster, logs_of(cluster))
        fold_of = partial(NameFold, wanted)
        parts = [RangeReading(log.part(), fold_of) for log in logs.values() if isinstance(log, Range)]
        reads = read_parts(cluster, parts)
    except BrokerError as exc:
        return OwnerNames(missing=(_unread(log_numbered(0), str(exc)),))
    names: dict[ProducerId, set[str]] = {}
    for read in reads:
        for producer_id, owners in read.fold.names.items():
            names.setdefault(producer_id, set()).update(owners)
    missing = [_unread(partition, str(log)) for partition, log in logs.items() if isinstance(log, Problem)]
    if not logs:
        missing.append(_unread(log_numbered(0), "no broker shows this topic"))
    return OwnerNames(
        {producer_id: next(iter(owners)) for producer_id, owners in names.items() if len(owners) == 1},
        (*missing, *(notice for read in reads for notice in read.notices)),
    )


def _unread(partition: TopicPartition, why: str) -> PartitionNotice:
    detail = f"{why}: transactional ids that only this part of the log names are missing"
    return PartitionNotice(NoticeKind.GAP, partition, "", FIRST_OFFSET, FIRST_OFFSET, detail)
