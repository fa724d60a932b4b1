"""Record batches: the 61-byte header that consumers hide, and, for the few batches we may read, the records.

Law: users' records are never read. batch_walker.py reads headers only and skips `records` by length; headers are never
compressed. `records` is only for `__transaction_state` and for control batches.

Format: KIP-98, class `org.apache.kafka.common.record.DefaultRecordBatch` (magic 2). Entries of magic 0 and 1 begin with
the same offset and length fields, so they can be skipped; they have no producer id.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from txnwatch.state.model.errors import WireError
from txnwatch.state.model.ids import LeaderEpoch, ProducerEpoch, ProducerId
from txnwatch.state.model.quantities import Offset, TimestampMs
from txnwatch.streaming.wire.primitives import Reader

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = 61
LENGTH_OVERHEAD = 12  # base offset and length are not counted in `length`
LENGTH_POSITION = 8
MAGIC_POSITION = 16
SMALLEST_LENGTH = HEADER_SIZE - LENGTH_OVERHEAD
SMALLEST_OLD_LENGTH = 14  # magic 0: crc, magic, attributes, key length, value length
CURRENT_MAGIC = 2

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08  # then max_timestamp, set by the broker, is every record's timestamp
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40  # then base_timestamp is the horizon, not a timestamp (KAFKA-8522)

_LENGTH = struct.Struct(">i")


class BatchHeader(NamedTuple):
    """The header of one record batch of magic 2. Offsets are log offsets, timestamps are milliseconds."""

    base_offset: Offset
    length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: TimestampMs
    max_timestamp: TimestampMs
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> Offset:
        """The offset of the batch's last record; compaction keeps it even if it removes that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a control record (marker) and no user data."""
        return bool(self.attributes & CONTROL)

    @property
    def compression(self) -> int:
        """The codec id of the records: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK


class Record(NamedTuple):
    """One record of a batch that we may read; key and value are None if the record has none."""

    offset: Offset
    timestamp: int
    key: memoryview | None
    value: memoryview | None


def check_entry(buffer: memoryview | bytes, position: int) -> None:
    """Checks an entry's magic and length. Magic 0 and 1 pass: such an entry has no producer id and is skipped.

    Raises:
        WireError: a magic or a length that no broker writes.
    """
    magic = buffer[position + MAGIC_POSITION]
    if magic > CURRENT_MAGIC:
        raise WireError("magic", position + MAGIC_POSITION, magic, f"at most {CURRENT_MAGIC}")
    length: int = _LENGTH.unpack_from(buffer, position + LENGTH_POSITION)[0]
    smallest = SMALLEST_OLD_LENGTH if magic < CURRENT_MAGIC else SMALLEST_LENGTH
    if length < smallest:
        raise WireError("batch length", position + LENGTH_POSITION, length, f"at least {smallest}")


def end_of_entry(buffer: memoryview | bytes, position: int) -> int:
    """The end of the entry at a byte position, whatever its magic; it may be behind the end of the buffer."""
    length: int = _LENGTH.unpack_from(buffer, position + LENGTH_POSITION)[0]
    return position + LENGTH_OVERHEAD + length


def header_at(buffer: memoryview | bytes, position: int) -> BatchHeader:
    """The header of the complete batch of magic 2 at a byte position."""
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def records(buffer: memoryview | bytes, position: int, header: BatchHeader) -> Iterator[Record]:
    """The records of one uncompressed batch that we may read.

    Raises:
        WireError: the batch is compressed, or its records do not follow the format.
    """
    if header.compression:
        raise WireError("attributes", position + 21, f"compression codec {header.compression}", "no compression")
    end = position + LENGTH_OVERHEAD + header.length
    reader = Reader(memoryview(buffer)[:end], position + HEADER_SIZE)
    for _ in range(header.record_count):
        yield _record(reader, header)
    reader.expect_end("records")


def _record(reader: Reader, header: BatchHeader) -> Record:
    size = reader.varint("record length")
    body_end = reader.position + size
    reader.int8("record attributes")
    timestamp = header.base_timestamp + reader.varint("timestamp delta")
    if header.attributes & LOG_APPEND_TIME:
        timestamp = header.max_timestamp
    delta_at, delta = reader.position, reader.varint("offset delta")
    if not 0 <= delta <= header.last_offset_delta:
        raise WireError("offset delta", delta_at, delta, f"0 to {header.last_offset_delta}, the batch's last one")
    key = _nullable(reader, "record key")
    value = _nullable(reader, "record value")
    header_count = reader.varint("header count")
    if header_count < 0:
        raise WireError("header count", reader.position, header_count, "0 or more")
    for _ in range(header_count):
        reader.take(reader.varint("header key length"), "header key")
        _nullable(reader, "header value")
    if reader.position != body_end:
        raise WireError("record length", reader.position, size, f"the record to end at byte {body_end}")
    return Record(Offset(header.base_offset + delta), timestamp, key, value)


def _nullable(reader: Reader, field: str) -> memoryview | None:
    size = reader.varint(field)
    return None if size < 0 else reader.take(size, field)
