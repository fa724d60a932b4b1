"""Reads the coordinators' log as the records of each transactional id, oldest first, for `txnwatch audit`.

Apart: it reads a log; gathering.py asks requests.

Law: only what the log still has is a record here. Compaction removes older records of an id, so the records of an id
are whole only behind the last hole of its partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from txnwatch.state.audit.audit_facts import AuditedId, LoggedState, NotAudited
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.facts import NoticeKind, PartitionNotice
from txnwatch.state.model.values import (
    FIRST_OFFSET,
    TRANSACTION_STATE_TOPIC,
    DurationMs,
    Offset,
    TimestampMs,
    TopicPartition,
    coordinator_partition,
)
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.hidden_topics import why_no_log
from txnwatch.streaming.log.coordinator_log import logs_of
from txnwatch.streaming.log.lookups import read_parts
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.log.transaction_fold import LoggedRecord, logged_records, quick_record
from txnwatch.streaming.wire.internal_topics import (
    KEY_PREFIX,
    NO_VALUE,
    QuickDecoded,
    quick_decode,
    quick_fields,
    quick_has_participants,
)
from txnwatch.streaming.wire.record_batch import LENGTH_OVERHEAD, NO_END, BatchHeader, BatchWalker

_HASHED = 1_000  # ids of each partition that are compared with it: if it has others, most of its ids are misplaced
_NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


class IdHistories(NamedTuple):
    """The ids of the log; None if nothing of it could be read."""

    ids: dict[str, AuditedId] | None
    missing: tuple[NotAudited, ...]


class IdHistoryFold(BatchWalker):
    """The records of each transactional id in one partition of the log; a fold for `read_ranges`.

    Attributes:
        found: the records by id; an id whose last record is a tombstone is left out.
        participants: those that the records of an id name.
        whole_from_ms: the stamp of the first batch behind the last hole.
    """

    def __init__(self, start: Offset, end: Offset) -> None:
        super().__init__(start, end)
        self.found: dict[str, list[LoggedState]] = {}
        self.participants: dict[str, set[TopicPartition]] = {}
        self.whole_from_ms: TimestampMs | None = None

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response.

        Raises:
            WireError: bytes that no broker writes to this log.
        """
        raw, at = bytes(buffer), 0
        while True:
            seen = quick_decode(raw, at)
            if seen is None:
                found = next(self.headers(raw, at), None)
                if found is None:
                    return
                at = self._decode(raw, *found)
                continue
            end, offset, leader_epoch, timestamp_ms, *_ = seen
            if offset >= self.end:
                self.position = self.end
                return
            if offset > self.position or self.whole_from_ms is None:
                self.whole_from_ms = timestamp_ms
            if offset >= self.start:
                self._add_quick(raw, seen)
            self.leader_epoch, self.position, at = leader_epoch, Offset(offset + 1), end

    def _decode(self, raw: bytes, at: int, header: BatchHeader) -> int:
        """Decodes one batch exactly; returns where it ends."""
        has_lost = header.record_count <= header.last_offset_delta
        if has_lost or header.base_offset > self.position or self.whole_from_ms is None:
            self.whole_from_ms = header.max_timestamp
        if not header.is_control and header.base_offset >= self.start:
            for record in logged_records(raw, at, header):
                self._add(record)
        self.leader_epoch, self.position = header.leader_epoch, Offset(header.last_offset + 1)
        return at + LENGTH_OVERHEAD + header.length

    def _add_quick(self, raw: bytes, seen: QuickDecoded) -> None:
        """As `_add`, without values in between for the usual record: it is called a million times."""
        _, offset, _, timestamp_ms, key, producer_id, _, _, value_at, _ = seen
        if value_at == NO_VALUE or quick_has_participants(seen):
            self._add(quick_record(raw, seen))
            return
        version, epoch, timeout_ms, state, updated_ms, start_ms, client_version = quick_fields(raw, seen)
        logged = LoggedState(
            offset,
            timestamp_ms,
            state,
            producer_id,
            epoch,
            DurationMs(timeout_ms),
            start_ms,
            updated_ms,
            client_version if version else None,
        )
        name = key[KEY_PREFIX:].decode()
        states = self.found.get(name)
        if states is None:
            self.found[name] = [logged]
        else:
            states.append(logged)

    def _add(self, record: LoggedRecord) -> None:
        value, name = record.value, record.transactional_id
        if value is None:
            self.found.pop(name, None)
            self.participants.pop(name, None)
            return
        state = LoggedState(
            record.offset,
            record.timestamp_ms,
            value.state,
            value.producer_id,
            value.producer_epoch,
            DurationMs(value.transaction_timeout_ms),
            value.start_ms,
            TimestampMs(value.last_update_ms),
            value.client_transaction_version if value.version else None,
        )
        self.found.setdefault(name, []).append(state)
        if value.partitions:
            self.participants.setdefault(name, set()).update(value.participants)


def read_ids(cluster: Cluster, max_bytes: int) -> IdHistories:
    """All transactional ids of the log.

    A part that is not read is in `missing`: then the ids of that partition are left out. What retention has deleted is
    no part of the log.
    """
    try:
        logs = logs_of(cluster)
        if not logs:
            return IdHistories(None, (NotAudited(TRANSACTION_STATE_TOPIC, str(why_no_log(cluster))),))
        topic = cluster.known.topics[TRANSACTION_STATE_TOPIC]
        led = [log for log in logs if topic.partitions[log.partition].leader is not None]
        parts = [RangeReading(Range(log, topic.topic_id, FIRST_OFFSET, NO_END), IdHistoryFold) for log in led]
        reads = read_parts(cluster, parts, max_bytes=max_bytes)
    except BrokerError as exc:
        return IdHistories(None, (NotAudited(TRANSACTION_STATE_TOPIC, str(exc)),))
    missing = [NotAudited(str(log), "it has no leader") for log in logs if log not in led]
    ids: dict[str, AuditedId] = {}
    for read in reads:
        unread = [notice for notice in read.notices if notice.kind is not NoticeKind.LOST or not read.fold.is_done]
        if unread:
            missing.append(NotAudited(str(read.partition), _why(unread[0], max_bytes)))
        else:
            ids.update((one.name, one) for one in ids_of(read.fold, read.partition, len(logs)))
    return IdHistories(ids if len(missing) < len(logs) else None, tuple(missing))


def _why(notice: PartitionNotice, max_bytes: int) -> str:
    if notice.kind is NoticeKind.LEFT:
        return f"the log has more than {max_bytes} bytes: raise --max-log-bytes"
    return notice.detail


def ids_of(fold: IdHistoryFold, log: TopicPartition, count: int) -> Iterator[AuditedId]:
    """The ids of one partition of a log that has `count`."""
    number, whole_from_ms = log.partition, fold.whole_from_ms
    for place, (name, states) in enumerate(fold.found.items()):
        own = coordinator_partition(name, count) if place < _HASHED else number
        places = fold.participants.get(name)
        partitions = frozenset(places) if places is not None else _NO_PARTITIONS
        yield AuditedId(name, number, own, states, whole_from_ms, partitions)
