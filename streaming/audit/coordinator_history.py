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
from txnwatch.state.model.facts import NoticeKind
from txnwatch.state.model.values import (
    TRANSACTION_STATE_TOPIC,
    DurationMs,
    Offset,
    Problem,
    TimestampMs,
    TopicPartition,
)
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.hidden_topics import why_no_log
from txnwatch.streaming.log.coordinator_log import logs_of
from txnwatch.streaming.log.lookups import list_extents, read_parts
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.log.transaction_fold import LoggedRecord, last_hole_end, logged_records
from txnwatch.streaming.wire.internal_topics import coordinator_partition
from txnwatch.streaming.wire.record_batch import BatchWalker


class IdHistories(NamedTuple):
    """The ids of the log; None if nothing of it could be read."""

    ids: dict[str, AuditedId] | None
    missing: tuple[NotAudited, ...]


class IdHistoryFold(BatchWalker):
    """The records of each transactional id in one partition of the log; a fold for `read_ranges`.

    Attributes:
        found: by id its records and its participants; an id whose last record is a tombstone is left out.
        whole_from_ms: the stamp of the first batch behind the last hole.
    """

    def __init__(self, start: Offset, end: Offset) -> None:
        super().__init__(start, end)
        self.found: dict[str, tuple[list[LoggedState], set[TopicPartition]]] = {}
        self.whole_from_ms: TimestampMs | None = None
        self._whole_from = start

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response.

        Raises:
            WireError: bytes that no broker writes to this log.
        """
        for at, header in self.headers(buffer):
            hole_end = last_hole_end(self._whole_from, self.position, header)
            if hole_end != self._whole_from:
                self._whole_from, self.whole_from_ms = hole_end, None
            if self.whole_from_ms is None and header.base_offset >= hole_end:
                self.whole_from_ms = header.max_timestamp
            if header.is_control:
                continue
            for record in logged_records(buffer, at, header):
                self._add(record)

    def _add(self, record: LoggedRecord) -> None:
        value = record.value
        if value is None:
            self.found.pop(record.transactional_id, None)
            return
        states, partitions = self.found.setdefault(record.transactional_id, ([], set()))
        version = value.client_transaction_version if value.version else None
        states.append(
            LoggedState(
                record.offset,
                record.timestamp_ms,
                value.state,
                value.producer_id,
                value.producer_epoch,
                DurationMs(value.transaction_timeout_ms),
                value.start_ms,
                TimestampMs(value.last_update_ms),
                version,
            )
        )
        partitions |= value.participants


def read_ids(cluster: Cluster, max_bytes: int) -> IdHistories:
    """All transactional ids of the log.

    A part that is not read is in `missing`: then the ids of that partition are left out.
    """
    try:
        logs = logs_of(cluster)
        if not logs:
            return IdHistories(None, (NotAudited(TRANSACTION_STATE_TOPIC, str(why_no_log(cluster))),))
        parts = list_extents(cluster, logs)
        reads = read_parts(
            cluster,
            [RangeReading(log.part(), IdHistoryFold) for log in parts.values() if isinstance(log, Range)],
            max_bytes=max_bytes,
        )
    except BrokerError as exc:
        return IdHistories(None, (NotAudited(TRANSACTION_STATE_TOPIC, str(exc)),))
    missing = [NotAudited(str(partition), str(log)) for partition, log in parts.items() if isinstance(log, Problem)]
    ids: dict[str, AuditedId] = {}
    for read in reads:
        if read.notices:
            missing.append(NotAudited(str(read.partition), _why(read, max_bytes)))
        else:
            ids |= dict(_ids(read, len(logs)))
    return IdHistories(ids if len(missing) < len(logs) else None, tuple(missing))


def _why(read: RangeReading[IdHistoryFold], max_bytes: int) -> str:
    notice = read.notices[0]
    if notice.kind is NoticeKind.LEFT:
        return f"the log has more than {max_bytes} bytes: raise --max-log-bytes"
    return notice.detail


def _ids(read: RangeReading[IdHistoryFold], count: int) -> Iterator[tuple[str, AuditedId]]:
    number = read.partition.partition
    for name, (states, partitions) in read.fold.found.items():
        own = coordinator_partition(name, count)
        yield name, AuditedId(name, number, own, states, read.fold.whole_from_ms, frozenset(partitions))
