"""Record batches: the 61-byte header that consumers hide, and, for the few batches we may read, the records.

Law: users' records are never read. The walk reads headers only and skips `records` by length; headers are never
compressed. `records` is only for `__transaction_state`, for control batches, and for the first batch of a file that may
be a segment of that log.

Format: KIP-98, class `org.apache.kafka.common.record.DefaultRecordBatch` (magic 2). Entries of magic 0 and 1 begin with
the same offset and length fields, so they can be skipped; they have no producer id.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from txnwatch.state.model.errors import WireError
from txnwatch.state.model.values import FIRST_OFFSET, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from txnwatch.streaming.wire.primitives import Reader, present

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


_header_of = tuple.__new__  # BatchHeader._make without its check of the length


class Record(NamedTuple):
    """One record of a batch that we may read; key and value are None if the record has none."""

    offset: Offset
    timestamp: int
    key: memoryview | None
    value: memoryview | None


def _check_entry(buffer: memoryview | bytes, position: int) -> None:
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
    return _header_of(BatchHeader, HEADER.unpack_from(buffer, position))


def leader_epoch_at(buffer: memoryview | bytes, position: int) -> LeaderEpoch:
    """The leader epoch of the batch of magic 2 at a byte position: that of the leader that has appended it."""
    return LeaderEpoch(int.from_bytes(buffer[position + 12 : position + 16], "big", signed=True))


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


# Control records: the ABORT and COMMIT markers that end a transaction on a partition.
#
# Key: int16 version, int16 type. Value: int16 version, int32 coordinator epoch. A version above the highest we know is
# read as the highest we know, as Kafka does (classes `ControlRecordType`, `EndTransactionMarker`). Types other than
# ABORT and COMMIT (KRaft's own, or later ones) end no transaction and are returned as None.


class MarkerType(IntEnum):
    """How the marker ends the transaction."""

    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    """One marker; `coordinator_epoch` is the leader epoch of the coordinator's log partition."""

    type: MarkerType
    coordinator_epoch: int


def decode_marker(key: memoryview | bytes, value: memoryview | bytes) -> EndTransactionMarker | None:
    """The marker in one control record, or None for a control record that ends no transaction.

    Raises:
        WireError: the key or the value is too short or has a negative version.
    """
    key_reader = Reader(key)
    _version(key_reader, "control record key version")
    raw_type = key_reader.int16("control record type")
    if raw_type not in (MarkerType.ABORT, MarkerType.COMMIT):
        return None
    value_reader = Reader(value)
    _version(value_reader, "marker version")
    return EndTransactionMarker(MarkerType(raw_type), value_reader.int32("coordinator epoch"))


# The record of a marker as every broker writes it: what stands before its type, the type, what stands before the
# coordinator epoch, the epoch, and the number of headers.
_USUAL_MARKER = struct.Struct(">7sh3siB")
_BEFORE_TYPE, _BEFORE_EPOCH = b"\x20\0\0\0\x08\0\0", b"\x0c\0\0"
_USUAL_LENGTH = HEADER_SIZE - LENGTH_OVERHEAD + _USUAL_MARKER.size
_TYPES = {kind.value: kind for kind in MarkerType}


def read_marker(buffer: memoryview | bytes, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    """The marker in the control batch at `position`; None if compaction emptied it or it is not a marker."""
    if header.length == _USUAL_LENGTH and header.record_count == 1 and not header.last_offset_delta:
        before_type, number, before_epoch, epoch, headers = _USUAL_MARKER.unpack_from(buffer, position + HEADER_SIZE)
        if (before_type, before_epoch, headers) == (_BEFORE_TYPE, _BEFORE_EPOCH, 0) and not header.compression:
            kind = _TYPES.get(number)
            return None if kind is None else EndTransactionMarker(kind, epoch)
    for record in records(buffer, position, header):
        if record.key is None or record.value is None:
            raise WireError("control record", position, "no key or value", "both")
        return decode_marker(record.key, record.value)
    return None


def _version(reader: Reader, field: str) -> None:
    start = reader.position
    version = reader.int16(field)
    if version < 0:
        raise WireError(field, start, version, "0 or more")


# The walk over record batches: the only loop over the batches of a Fetch response or a segment file.
#
# Law: the walk reads headers only and skips records by their length. It yields each complete batch whose base offset is
# below the end of the range, in order. It handles everything that can stand between batches:
#
# - a batch that the end of the bytes cuts off ends the walk: Fetch may return one, and it is fetched again;
# - a batch at or above the end of the range ends the walk, and the range is done;
# - an entry of magic 0 or 1 has no producer id: it moves the position only;
# - a magic or a length that no broker writes is a WireError, and the position is the offset of that batch.
#
# The walk is the hot loop of the project. So it joins batches into runs where nothing but offsets and timestamps
# differ, yields plain tuples, and unpacks only the fields that it needs.

# Where the run begins in the buffer, its first and last offset, its attributes, the encoded producer id and epoch
# (empty for an entry of magic 0 or 1), and the last timestamp. A plain tuple, because there is one for each batch.
Run = tuple[int, Offset, Offset, int, bytes, TimestampMs]

NO_PRODUCER = b""
NO_END = Offset(1 << 63)
_NO_TIMESTAMP = TimestampMs(-1)

# base offset, length, leader epoch, magic, attributes, last offset delta, max timestamp, producer id and epoch
_fields = struct.Struct(">qiib4xhi8xq10s8x")
_producer = struct.Struct(">qh").unpack


class BatchWalker:
    """Walks the batches of one range [start, end) of a partition, one Fetch response after the other.

    Attributes:
        position: the next offset to fetch; it moves over a batch after the caller has handled the batch.
        leader_epoch: leader epoch of the last batch, -1 before the first.
        reads_records: whether the caller reads records of data batches, and not headers and markers only.
    """

    reads_records = True

    def __init__(self, start: Offset = FIRST_OFFSET, end: Offset = NO_END) -> None:
        self.start = start
        self.end = end
        self.position = start
        self.leader_epoch = LeaderEpoch(-1)

    @property
    def last_epoch(self) -> LeaderEpoch | None:
        """Leader epoch of the last batch; None before the first, and if the batch has none."""
        return present(self.leader_epoch)

    @property
    def is_done(self) -> bool:
        """Whether every offset of the range has been walked."""
        return self.position >= self.end

    def beyond_end(self, header: BatchHeader) -> None:
        """Is called with the batch that ends the walk because it is at or above the end of the range."""

    def runs(self, buffer: memoryview | bytes, at: int = 0, *, joined: bool = True) -> Iterator[Run]:
        """Yields the batches from the byte `at` on; without `joined`, each batch is a run of its own.

        Joined batches have the same producer, epochs and attributes. Control batches, and batches that begin below the
        start of the range, are never joined.

        Raises:
            WireError: a length or magic that no broker writes.
        """
        size, start, end, unpack = len(buffer), self.start, self.end, _fields.unpack_from
        last_begin = size - HEADER_SIZE
        begin, attributes, producer, timestamp = -1, 0, NO_PRODUCER, _NO_TIMESTAMP
        first, last, leader_epoch = start, start, self.leader_epoch
        while True:
            while at <= last_begin:
                base, length, new_epoch, magic, new_attributes, delta, new_timestamp, new_producer = unpack(buffer, at)
                after = at + LENGTH_OVERHEAD + length
                if magic != CURRENT_MAGIC or length < SMALLEST_LENGTH or base >= end or after > size:
                    break
                if not (
                    new_producer == producer
                    and new_attributes == attributes
                    and new_epoch == leader_epoch
                    and first >= start
                    and joined
                    and not attributes & CONTROL
                ):
                    if begin >= 0:
                        if not 0 <= first <= last:
                            raise _bad_offsets(begin, first, last)
                        yield begin, first, last, attributes, producer, timestamp
                        self.position = last + 1
                        self.leader_epoch = leader_epoch
                    begin = at
                    first = base
                    leader_epoch = new_epoch
                    attributes = new_attributes
                    producer = new_producer
                last = base + delta
                timestamp = new_timestamp
                at = after
            if begin >= 0:
                if not 0 <= first <= last:
                    raise _bad_offsets(begin, first, last)
                yield begin, first, last, attributes, producer, timestamp
                self.position = last + 1
                self.leader_epoch = leader_epoch
            old = self._old_entry(buffer, at)
            if old is None:
                return
            yield old
            self.position = old[2] + 1
            at, begin, producer = end_of_entry(buffer, at), -1, NO_PRODUCER

    def _old_entry(self, buffer: memoryview | bytes, at: int) -> Run | None:
        """The entry of magic 0 or 1 where the batches end; None at the end of the range or of the bytes."""
        if at + MAGIC_POSITION >= len(buffer):
            return None
        _check_entry(buffer, at)
        if end_of_entry(buffer, at) > len(buffer):
            return None
        is_old = buffer[at + MAGIC_POSITION] < CURRENT_MAGIC
        offset = Offset(int.from_bytes(buffer[at : at + LENGTH_POSITION], "big", signed=True))
        if offset < self.end and is_old:
            if offset < 0:
                raise _bad_offsets(at, offset, offset)
            return at, offset, offset, 0, NO_PRODUCER, _NO_TIMESTAMP
        if not is_old:
            self.beyond_end(header_at(buffer, at))
        self.position = self.end
        return None

    def headers(self, buffer: memoryview | bytes, at: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yields (byte position, header) of each batch of magic 2 from the byte `at` on.

        Raises:
            WireError: a length or magic that no broker writes.
        """
        unpack = HEADER.unpack_from
        for begin, _, _, _, producer, _ in self.runs(buffer, at, joined=False):
            if producer:
                yield begin, _header_of(BatchHeader, unpack(buffer, begin))


def _bad_offsets(at: int, first: int, last: int) -> WireError:
    return WireError("base offset and last offset", at, f"{first} and {last}", "0 or more, the last not below the base")


def walk(buffer: memoryview | bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Yields (byte position, header) of each complete batch of magic 2 in some bytes of a log.

    Raises:
        WireError: a length or magic that no broker writes.
    """
    return BatchWalker().headers(buffer)


def end_of_whole_entries(buffer: memoryview | bytes) -> int:
    """The end of the last complete batch of a segment file; what follows, if anything, is an incomplete one.

    Raises:
        WireError: a length or magic that no broker writes.
    """
    end = 0
    for begin, *_ in BatchWalker().runs(buffer, joined=False):
        end = end_of_entry(buffer, begin)
    return end


def producer_of(encoded: bytes) -> tuple[ProducerId, ProducerEpoch]:
    """The producer id and epoch of a run."""
    producer_id, epoch = _producer(encoded)
    return ProducerId(producer_id), ProducerEpoch(epoch)
