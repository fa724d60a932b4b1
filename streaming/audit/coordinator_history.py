"""Reads the coordinators' log as the records of each transactional id, oldest first, for `txnwatch audit`.

Apart: it reads a log; gathering.py asks requests.

Law: only what the log still has is a record here. Compaction removes older records of an id, so the records of an id
are whole only behind the last hole of its partition.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import NamedTuple

from txnwatch.state.audit.audit_facts import AuditedId, LoggedState, LogPart, NotAudited
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.facts import NoticeKind, PartitionNotice
from txnwatch.state.model.values import (
    FIRST_OFFSET,
    TRANSACTION_STATE_TOPIC,
    DurationMs,
    Offset,
    TimestampMs,
    coordinator_partition,
)
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.hidden_topics import why_no_log
from txnwatch.streaming.log.coordinator_log import logs_of
from txnwatch.streaming.log.coordinator_records import CoordinatorLogWalker, LoggedRecord, logged_records
from txnwatch.streaming.log.lookups import read_parts
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.wire.internal_topics import NO_VALUE, QuickDecoded, quick_participants
from txnwatch.streaming.wire.record_batch import LOG_APPEND_TIME, NO_END, BatchHeader

_HASHED = 1_000  # ids of each partition that are compared with it first: the oldest, which a change left behind
_LONGEST_OF_NONE = 4  # bytes of encoded partitions


class IdHistories(NamedTuple):
    """The ids of the log; None if nothing of it could be read."""

    ids: dict[str, AuditedId] | None
    missing: tuple[NotAudited, ...]


class IdHistoryFold(CoordinatorLogWalker):
    """The records of each transactional id in one partition of the log; a fold for `read_ranges`.

    Attributes:
        found: the ids by their names; one whose last record is a tombstone is left out.
        log: the partition; what it has since the stamp of the first batch behind its last hole is whole.
    """

    def __init__(self, number: int, start: Offset, end: Offset) -> None:
        super().__init__(start, end)
        self.found: dict[str, AuditedId] = {}
        self.log = LogPart(number)

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response.

        Raises:
            WireError: bytes that no broker writes to this log.
        """
        raw = bytes(buffer)
        for at, batch in self.batches(raw):
            if isinstance(batch, BatchHeader):
                self._decode(raw, at, batch)
                continue
            if batch[1] > self.position or self.log.whole_from_ms is None:
                self.log.whole_from_ms = batch[3]
            if batch[1] >= self.start:
                self._add_usual(batch)

    def _decode(self, raw: bytes, at: int, header: BatchHeader) -> None:
        """Decodes one batch exactly."""
        has_lost = header.record_count <= header.last_offset_delta
        if has_lost or header.base_offset > self.position or self.log.whole_from_ms is None:
            is_last = has_lost or header.attributes & LOG_APPEND_TIME
            self.log.whole_from_ms = header.max_timestamp if is_last else header.base_timestamp
        if not header.is_control and header.base_offset >= self.start:
            for record in logged_records(raw, at, header):
                self._add(record)

    def _add_usual(self, seen: QuickDecoded) -> None:
        """As `_add`, without values in between: it is called a million times."""
        (
            _, offset, _, timestamp_ms, encoded_name, producer_id, _, _,
            version, epoch, timeout_ms, state, places, updated_ms, start_ms, client_version,
        ) = seen  # fmt: skip
        name = encoded_name.decode()
        if version == NO_VALUE:
            self.found.pop(name, None)
            return
        if updated_ms == timestamp_ms:
            updated_ms = timestamp_ms  # one object less for each record
        logged = LoggedState(
            offset, timestamp_ms, state, producer_id, epoch, DurationMs(timeout_ms), start_ms, updated_ms,
            client_version if version else None,
        )  # fmt: skip
        audited = self.found.get(name)
        if audited is None:
            self.found[name] = audited = AuditedId(name, self.log, [logged])
        else:
            audited.records.append(logged)
        if len(places) > _LONGEST_OF_NONE:
            audited.partitions |= quick_participants(version, places)

    def _add(self, record: LoggedRecord) -> None:
        value, name = record.value, record.transactional_id
        if value is None:
            self.found.pop(name, None)
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
        audited = self.found.setdefault(name, AuditedId(name, self.log, []))
        audited.records.append(state)
        audited.partitions |= value.participants


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
        parts = [
            RangeReading(Range(log, topic.topic_id, FIRST_OFFSET, NO_END), partial(IdHistoryFold, log.partition))
            for log in led
        ]
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
            ids |= ids_of(read.fold, len(logs))
    return IdHistories(ids if len(missing) < len(logs) else None, tuple(missing))


def _why(notice: PartitionNotice, max_bytes: int) -> str:
    if notice.kind is NoticeKind.LEFT:
        return f"the log has more than {max_bytes} bytes: raise --max-log-bytes"
    return notice.detail


def ids_of(fold: IdHistoryFold, count: int) -> dict[str, AuditedId]:
    """The ids of one partition of a log that has `count`; if the first ones are in their partition, so are all."""

    def is_misplaced(audited: AuditedId) -> bool:
        return coordinator_partition(audited.name, count) != fold.log.number

    if any(map(is_misplaced, islice(fold.found.values(), _HASHED))):
        for audited in fold.found.values():
            audited.is_misplaced = is_misplaced(audited)
    return fold.found
