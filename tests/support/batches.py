"""Record batches as the bytes a broker sends, written down from the format (KIP-98) alone.

Nothing of txnwatch is used here, so that these bytes can judge its decoders; test_record_batch.py has
kafka-python read them back, checksum included, so that they are themselves judged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kafka.record.util import calc_crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")  # base offset .. record count
NOT_CHECKSUMMED = 21  # offset, length, leader epoch, magic and the checksum itself
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
ABORT, COMMIT = 0, 1
TIMESTAMP_MS = 1_700_000_000_000

Headers = Iterable[tuple[str | bytes, bytes | None]]  # a name in bytes is written as it is


def varint(value: int) -> bytes:
    """A zigzag varint, as records use it."""
    raw = (value << 1) ^ (value >> 63)
    return unsigned_varint(raw & 0xFFFFFFFFFFFFFFFF)


def unsigned_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def a_record(
    offset_delta: int = 0,
    *,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    timestamp_delta: int = 0,
    headers: Headers = (),
) -> bytes:
    """One uncompressed record, its length in front."""
    pairs = [(name.encode() if isinstance(name, str) else name, content) for name, content in headers]
    body = b"".join(
        [
            b"\0",
            varint(timestamp_delta),
            varint(offset_delta),
            _nullable(key),
            _nullable(value),
            varint(len(pairs)),
            *(_nullable(name) + _nullable(content) for name, content in pairs),
        ]
    )
    return varint(len(body)) + body


def a_batch(
    base_offset: int = 0,
    *,
    count: int = 1,
    records: Iterable[bytes] | None = None,
    producer_id: int = 7,
    producer_epoch: int = 0,
    transactional: bool = True,
    codec: int = 0,
    leader_epoch: int = 0,
    base_sequence: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = TIMESTAMP_MS,
    max_timestamp: int | None = None,
    attributes: int = 0,
) -> bytes:
    """A batch of magic 2 with `count` plain records, or with the given ones.

    With a codec the records are opaque bytes: nobody is to look into them. `attributes` are further bits. A batch
    that compaction has thinned out has fewer records than its `last_offset_delta` shows.
    """
    encoded = [a_record(delta) for delta in range(count)] if records is None else list(records)
    payload = b"".join(encoded) if codec == 0 else b"\xff" * 11
    attributes |= codec | (TRANSACTIONAL if transactional else 0)
    delta = max(0, len(encoded) - 1) if last_offset_delta is None else last_offset_delta
    latest = base_timestamp if max_timestamp is None else max_timestamp

    def header(crc: int) -> bytes:
        return HEADER.pack(
            base_offset,
            HEADER.size - 12 + len(payload),
            leader_epoch,
            2,
            crc,
            attributes,
            delta,
            base_timestamp,
            latest,
            producer_id,
            producer_epoch,
            base_sequence,
            len(encoded),
        )

    return header(calc_crc32c((header(0) + payload)[NOT_CHECKSUMMED:])) + payload


def a_marker(
    offset: int = 0,
    *,
    commit: bool = True,
    producer_id: int = 7,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    leader_epoch: int = 0,
    timestamp: int = TIMESTAMP_MS,
) -> bytes:
    """The control batch that ends a producer's transaction on a partition."""
    key = struct.pack(">hh", 0, COMMIT if commit else ABORT)
    value = struct.pack(">hi", 0, coordinator_epoch)
    return a_control_batch(
        [a_record(key=key, value=value)],
        offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        timestamp=timestamp,
    )


def a_control_batch(
    records: Iterable[bytes],
    offset: int = 0,
    *,
    producer_id: int = 7,
    producer_epoch: int = 0,
    leader_epoch: int = 0,
    timestamp: int = TIMESTAMP_MS,
) -> bytes:
    """A control batch with any records; none at all is what compaction can leave of it."""
    return a_batch(
        offset,
        records=records,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        base_sequence=-1,
        base_timestamp=timestamp,
        attributes=CONTROL,
    )


def an_old_entry(offset: int = 0, *, magic: int = 1, key: bytes | None = None, value: bytes | None = b"old") -> bytes:
    """A message of the format before 0.11, as old segments still hold it; it knows no producer."""
    timestamp = struct.pack(">q", TIMESTAMP_MS) if magic else b""
    body = struct.pack(">bb", magic, 0) + timestamp + _old_bytes(key) + _old_bytes(value)
    return struct.pack(">qiI", offset, 4 + len(body), 0) + body


def _nullable(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def _old_bytes(content: bytes | None) -> bytes:
    return struct.pack(">i", -1) if content is None else struct.pack(">i", len(content)) + content
