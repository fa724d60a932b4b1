"""The small files in the directory of a partition: producer snapshots, indexes, leader epochs, the topic id.

Classes `ProducerStateManager`, `AbortedTxn`, `OffsetIndex`, `TimeIndex`, `LeaderEpochCheckpointFile` and
`PartitionMetadataFile` of Kafka write them. Integers are big-endian; the entries of one file have one size.

Law: a file is damaged until its sizes agree; no count of a file is used before it is compared with the file's size. A
generator yields the entries before the damage and then raises a `WireError` with its byte position.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from txnwatch.state.model.errors import WireError
from txnwatch.state.model.values import (
    CoordinatorEpoch,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from txnwatch.streaming.wire.primitives import check_version, present

Bytes = memoryview | bytes


class SnapshotProducer(NamedTuple):
    """One producer of a snapshot of the producer state; a value that the producer does not have is None."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_sequence: int | None
    last_offset: Offset | None
    offset_delta: int
    last_timestamp_ms: TimestampMs | None
    coordinator_epoch: CoordinatorEpoch | None
    txn_start_offset: Offset | None


SNAPSHOT_VERSION = 1  # the only one that releases up to 4.4 write
_SNAPSHOT_HEAD = struct.Struct(">hIi")  # version, CRC, number of producers
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_CHECKSUMMED_FROM = 6


def decode_snapshot(data: Bytes) -> list[SnapshotProducer]:
    """The producers of a snapshot, in the order of the file.

    Raises:
        WireError: another version, a wrong size or a wrong checksum. Kafka ignores such a file as well.
    """
    if len(data) < _SNAPSHOT_HEAD.size:
        raise WireError("snapshot", 0, f"{len(data)} bytes", f"at least {_SNAPSHOT_HEAD.size} bytes")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    check_version(version, SNAPSHOT_VERSION, "snapshot version")
    size = _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size
    if len(data) != size:
        raise WireError("size of the file", len(data), f"{len(data)} bytes", f"{size} bytes for {count} producers")
    computed = crc32c(data[_CHECKSUMMED_FROM:])
    if computed != crc:
        raise WireError("checksum", 2, f"{crc:#010x}", f"{computed:#010x}, the CRC-32C of the file")
    return [_producer(*entry) for entry in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :])]


def _producer(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    txn_start_offset: int,
) -> SnapshotProducer:
    return SnapshotProducer(
        ProducerId(producer_id),
        ProducerEpoch(epoch),
        present(last_sequence),
        present(Offset(last_offset)),
        offset_delta,
        present(TimestampMs(timestamp)),
        present(CoordinatorEpoch(coordinator_epoch)),
        present(Offset(txn_start_offset)),
    )


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_CRC_TABLE = _crc_table()


def crc32c(data: Bytes) -> int:
    """The CRC-32C (Castagnoli) that Kafka uses."""
    table, value = _CRC_TABLE, 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


class AbortedTransaction(NamedTuple):
    """One entry of the index of aborted transactions; `last_offset` is the offset of the ABORT marker."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class IndexEntry(NamedTuple):
    """One entry of the offset index: the batch with this last offset begins at this byte of the segment.

    Attributes:
        relative_offset: the offset minus the base offset, which is the number in the file's name.
    """

    relative_offset: int
    position: int


class TimeIndexEntry(NamedTuple):
    """One entry of the time index: the highest timestamp up to an offset."""

    timestamp_ms: TimestampMs
    relative_offset: int


_ABORTED = struct.Struct(">hqqqq")
_INDEX = struct.Struct(">ii")
_TIME_INDEX = struct.Struct(">qi")
_ABORTED_VERSION = 0


def aborted_transactions(data: Bytes) -> Iterator[AbortedTransaction]:
    """The entries of a .txnindex file.

    Raises:
        WireError: another version, impossible offsets, or an incomplete last entry.
    """
    for at, (version, producer_id, first, last, last_stable) in _entries(_ABORTED, data):
        check_version(version, _ABORTED_VERSION, "version of an aborted transaction", at)
        if producer_id < 0 or not 0 <= first <= last or last_stable < 0:
            found = f"{producer_id}, {first}, {last}, {last_stable}"
            raise WireError(
                "producer id, first, last and last stable offset", at, found, "0 or more, the last not below the first"
            )
        yield AbortedTransaction(ProducerId(producer_id), Offset(first), Offset(last), Offset(last_stable))


def index_entries(data: Bytes) -> Iterator[IndexEntry]:
    """The entries of an .index file.

    Raises:
        WireError: offsets or positions that do not rise, or an incomplete last entry.
    """
    before = IndexEntry(-1, -1)
    for at, entry in _entries(_INDEX, data):
        found = IndexEntry(*entry)
        if not any(entry):
            return _check_room(data, at)
        if found.relative_offset <= before.relative_offset or found.position <= before.position:
            raise WireError("offset and position", at, f"{found[0]} and {found[1]}", f"above {before[0]}, {before[1]}")
        yield found
        before = found
    return None


def time_index_entries(data: Bytes) -> Iterator[TimeIndexEntry]:
    """The entries of a .timeindex file.

    Raises:
        WireError: timestamps that do not rise, offsets that fall, or an incomplete last entry.
    """
    before = TimeIndexEntry(TimestampMs(-1), 0)
    for at, entry in _entries(_TIME_INDEX, data):
        found = TimeIndexEntry(TimestampMs(entry[0]), entry[1])
        if not any(entry):
            return _check_room(data, at)
        if found.timestamp_ms <= before.timestamp_ms or found.relative_offset < before.relative_offset:
            raise WireError(
                "timestamp and offset",
                at,
                f"{found[0]} and {found[1]}",
                f"a timestamp above {before[0]} and an offset from {before[1]}",
            )
        yield found
        before = found
    return None


def _check_room(data: Bytes, at: int) -> None:
    """Checks that the rest is the room that a broker reserves in the index of its active segment."""
    used = len(bytes(data[at:]).rstrip(b"\0"))
    if used:
        raise WireError("entry", at, f"zeros, and other bytes up to byte {at + used}", "only zeros to the end")


def _entries(layout: struct.Struct, data: Bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The byte position and the fields of each entry."""
    whole = len(data) - len(data) % layout.size
    for number, entry in enumerate(layout.iter_unpack(memoryview(data)[:whole])):
        yield number * layout.size, entry
    if whole != len(data):
        raise WireError("entry", whole, f"{len(data) - whole} bytes left", f"{layout.size} bytes")


class EpochStart(NamedTuple):
    """A leader epoch and the offset of its first record."""

    leader_epoch: LeaderEpoch
    start_offset: Offset


class PartitionMetadata(NamedTuple):
    """The content of partition.metadata."""

    version: int
    topic_id: str


_EPOCH_LINE = re.compile(rb"(\d{1,10})[ \t]+(\d{1,19})")
_METADATA = re.compile(rb"\s*version:[ \t]*(\d{1,5})\s+topic_id:[ \t]*([A-Za-z0-9_-]{22})\s*")
_LONGEST_SHOWN = 60
_LARGEST_METADATA = 1_000


def epoch_starts(data: Bytes) -> Iterator[EpochStart]:
    """The lines of a leader-epoch-checkpoint.

    Raises:
        WireError: another version, a line that is not two numbers, epochs that do not rise, or another number of lines.
    """
    lines, at = bytes(data).splitlines(keepends=True), 0
    head = [line.strip() for line in lines[:2]]
    if len(head) < 2 or head[0] != b"0" or not head[1].isdigit():
        raise WireError("head", 0, _shown(b" ".join(head)), "the version 0 and the number of lines")
    at, last = sum(map(len, lines[:2])), -1
    for line in lines[2:]:
        found = _EPOCH_LINE.fullmatch(line.strip())
        if found is None or int(found[1]) <= last:
            raise WireError("line", at, _shown(line), f"a leader epoch above {last} and its first offset")
        last = int(found[1])
        yield EpochStart(LeaderEpoch(last), Offset(int(found[2])))
        at += len(line)
    if head[1].lstrip(b"0") != str(len(lines) - 2).encode().lstrip(b"0"):
        raise WireError("end of the file", at, f"{len(lines) - 2} lines", f"{_shown(head[1])} lines, as its head has")


def decode_partition_metadata(data: Bytes) -> PartitionMetadata:
    """The content of partition.metadata.

    Raises:
        WireError: not the two lines of this file.
    """
    found = _METADATA.fullmatch(bytes(data[:_LARGEST_METADATA]))
    if found is None:
        raise WireError("content", 0, _shown(bytes(data[:_LONGEST_SHOWN])), "version: 0 and topic_id: <22 characters>")
    return PartitionMetadata(int(found[1]), found[2].decode())


def _shown(text: bytes) -> str:
    return repr(text.strip()[:_LONGEST_SHOWN].decode(errors="backslashreplace"))
