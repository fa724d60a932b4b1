"""The rows of `txnwatch decode`: one class for each kind of file, and where their values come from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from txnwatch.cli.output import LeftOut, Name, NotChecked, Time
from txnwatch.state.model.values import (
    CoordinatorEpoch,
    DurationMs,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from txnwatch.streaming.log.coordinator_log import LogRecord
from txnwatch.streaming.wire.internal_topics import TransactionLogValue
from txnwatch.streaming.wire.primitives import present
from txnwatch.streaming.wire.printed import PrintedProblem, PrintedRecord
from txnwatch.streaming.wire.printed_batches import BadLine
from txnwatch.streaming.wire.record_batch import BatchHeader, EndTransactionMarker
from txnwatch.streaming.wire.snapshot_file import SnapshotProducer

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class LogRow:
    """One record of the coordinator's log. For a tombstone every field of the value is None."""

    partition: int | None
    offset: Offset | None
    timestamp_ms: Time | None
    transactional_id: Name | None
    transaction_state: str | None
    producer_id: ProducerId | None
    producer_epoch: ProducerEpoch | None
    transaction_timeout_ms: DurationMs | None
    start_time_ms: Time | None
    last_update_time_ms: Time | None
    topic_partitions: tuple[str, ...] | None
    previous_producer_id: ProducerId | None
    next_producer_id: ProducerId | None
    client_transaction_version: int | None
    version: int | None


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One record batch. `kind` is data, transactional, COMMIT, ABORT or control."""

    base_offset: Offset
    last_offset: Offset
    kind: str
    producer_id: ProducerId | None
    producer_epoch: ProducerEpoch | None
    base_sequence: int | None
    coordinator_epoch: CoordinatorEpoch | None
    leader_epoch: LeaderEpoch | None
    max_timestamp_ms: Time | None
    records: int
    compression: str
    size: int


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """One producer of a snapshot of the producer state, as `describe-producers` shows it for now."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    current_transaction_start_offset: Offset | None
    latest_coordinator_epoch: CoordinatorEpoch | None
    last_sequence: int | None
    last_offset: Offset | None
    last_timestamp_ms: Time | None


def snapshot_row(producer: SnapshotProducer) -> SnapshotRow:
    """A producer of a snapshot."""
    return SnapshotRow(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        current_transaction_start_offset=producer.txn_start_offset,
        latest_coordinator_epoch=producer.coordinator_epoch,
        last_sequence=producer.last_sequence,
        last_offset=producer.last_offset,
        last_timestamp_ms=producer.last_timestamp_ms,
    )


def printed_row(record: PrintedRecord) -> LogRow:
    """A record that one of Kafka's tools has printed: its fields have the names of the row."""
    return LogRow(**{spec.name: getattr(record, spec.name) for spec in fields(LogRow)})


def record_row(record: LogRecord) -> LogRow:
    """A record of the coordinators' log."""
    row = log_row(record.transactional_id, record.value)
    return replace(row, partition=record.partition, offset=record.offset, timestamp_ms=record.timestamp_ms)


def log_row(name: str | None, value: TransactionLogValue | None) -> LogRow:
    """A key and a value without their place; a value that is None is a tombstone."""
    return LogRow(
        partition=None,
        offset=None,
        timestamp_ms=None,
        transactional_id=name or None,
        transaction_state=str(value.state) if value else None,
        producer_id=value.producer_id if value else None,
        producer_epoch=value.producer_epoch if value else None,
        transaction_timeout_ms=DurationMs(value.transaction_timeout_ms) if value else None,
        start_time_ms=value.start_ms if value else None,
        last_update_time_ms=TimestampMs(value.last_update_ms) if value else None,
        topic_partitions=(
            tuple(f"{topic}-{number}" for topic, numbers in value.partitions for number in numbers)
            if value and value.partitions is not None
            else None
        ),
        previous_producer_id=value.previous_producer_id if value else None,
        next_producer_id=value.next_producer_id if value else None,
        client_transaction_version=value.client_transaction_version if value else None,
        version=value.version if value else None,
    )


def batch_row(header: BatchHeader, marker: EndTransactionMarker | None) -> BatchRow:
    """A batch, and its marker if it is one."""
    if marker is not None:
        kind = marker.type.name
    elif header.is_control:
        kind = "control"
    else:
        kind = "transactional" if header.is_transactional else "data"
    codec = header.compression
    return BatchRow(
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        kind=kind,
        producer_id=present(header.producer_id),
        producer_epoch=present(header.producer_epoch),
        base_sequence=present(header.base_sequence),
        coordinator_epoch=CoordinatorEpoch(marker.coordinator_epoch) if marker is not None else None,
        leader_epoch=present(header.leader_epoch),
        max_timestamp_ms=present(header.max_timestamp),
        records=header.record_count,
        compression=_CODECS[codec] if codec < len(_CODECS) else str(codec),
        size=header.length + 12,
    )


# What the forms of answers share.

_MOST_PROBLEMS: Final = 20


def open_first(producers: Iterable[SnapshotProducer]) -> tuple[list[SnapshotProducer], str]:
    """Open transactions first, the oldest before all, because they are what the reader looks for; and their number."""
    ordered = sorted(
        producers,
        key=lambda producer: (producer.txn_start_offset is None, producer.txn_start_offset or 0, producer.producer_id),
    )
    is_open = sum(producer.txn_start_offset is not None for producer in ordered)
    return ordered, f"{is_open} of {len(ordered)} producers have an open transaction"


def rows_above(left: int, count: int) -> tuple[LeftOut, ...]:
    """The rows that --count leaves out."""
    return (LeftOut(left, "rows", f"--count {count}"),) if left > 0 else ()


def bad_lines(where: str, problems: Sequence[BadLine | PrintedProblem]) -> tuple[NotChecked, ...]:
    """The lines of a text that cannot be read; of many, the first."""
    missing = [NotChecked(f"{where} line {problem.line}", problem.why) for problem in problems[:_MOST_PROBLEMS]]
    if len(problems) > _MOST_PROBLEMS:
        missing.append(NotChecked(f"{len(problems) - _MOST_PROBLEMS} more lines", "they are no records"))
    return tuple(missing)
