"""A snapshot of the producer state (`.snapshot`), which a broker writes to the directory of a partition.

Class `ProducerStateManager` of Kafka writes it. Integers are big-endian.

Law: a file is damaged until its size agrees with its count of producers; the count is not used before.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from txnwatch.state.model.errors import WireError
from txnwatch.state.model.values import (
    CoordinatorEpoch,
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
    last_timestamp_ms: TimestampMs | None
    coordinator_epoch: CoordinatorEpoch | None
    txn_start_offset: Offset | None


SNAPSHOT_VERSION = 1  # the only one that releases up to 4.4 write
_SNAPSHOT_HEAD = struct.Struct(">hIi")  # version, CRC, number of producers
_SNAPSHOT_ENTRY = struct.Struct(">qhiq4xqiq")  # the skipped bytes are the offset delta of the last batch
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
    timestamp: int,
    coordinator_epoch: int,
    txn_start_offset: int,
) -> SnapshotProducer:
    return SnapshotProducer(
        ProducerId(producer_id),
        ProducerEpoch(epoch),
        present(last_sequence),
        present(Offset(last_offset)),
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
