"""A fast reader of one usual batch of `__transaction_state`: takes a few fields from its bytes without decoding it.

Law: `quick_decode` returns what the exact decoders (record_batch.py, transaction_log.py) would return for the same
bytes, or None. None means only that the caller has to decode the batch. So a batch is accepted only if it could be
followed to its last byte: one plain record, varints of at most two bytes, ASCII names, value versions 0 and 1, and the
tags that brokers write, in the order in which they write them.
"""

from __future__ import annotations

import struct

from txnwatch.state.model.ids import LeaderEpoch, ProducerId
from txnwatch.state.model.quantities import Offset, TimestampMs
from txnwatch.streaming.wire.record_batch import CURRENT_MAGIC, HEADER_SIZE, LENGTH_OVERHEAD, LOG_APPEND_TIME

NO_PRODUCER_ID = ProducerId(-1)

# Where the batch ends in the buffer, its base offset and leader epoch; the record's timestamp, its encoded key (equal
# keys are equal transactional ids), the producer id and the previous one (NO_ID for a tombstone, or if there is none),
# and whether the state is Ongoing or Prepare*. A plain tuple, because it is created a million times.
QuickDecoded = tuple[int, Offset, LeaderEpoch, TimestampMs, bytes, ProducerId, ProducerId, bool]

# base offset, length, leader epoch, magic, attributes, last offset delta, both timestamps, record count
_header = struct.Struct(">qiib4xhiqq14xi").unpack_from
_value = struct.Struct(">hq6xbB").unpack_from  # version, producer id, state, first byte of the partitions
_int64 = struct.Struct(">q").unpack_from
_int32 = struct.Struct(">i").unpack_from
_int16 = struct.Struct(">h").unpack_from
_PLAIN = frozenset({0, LOG_APPEND_TIME})
_LONGEST_BATCH = 8_000  # so every size within it fits into a varint of two bytes
_LONGEST_KEY = 1_024
_KEY_BEGINS = tuple(struct.pack(">hh", 0, max(0, size - 4)) for size in range(_LONGEST_KEY))
_NULL = 1  # -1, zigzag
_NO_DELTAS = b"\0\0"
_LIVE = (False, True, True, True, False, False)  # by the state's id; states with a higher id never reach the log
_PARTITIONS_AT, _TIMESTAMPS = 17, 16
_NONE_OR_EMPTY = frozenset({b"\xff\xff\xff\xff", b"\0\0\0\0"})
_MOST_TOPICS = 1_000
_NOWHERE = 1 << 62  # beyond every end, so a comparison with the end fails


def quick_decode(raw: bytes, at: int) -> QuickDecoded | None:  # noqa: C901, PLR0911, PLR0912, PLR0915 - a call costs
    """The batch at `at`; None if it has to be decoded or is cut off."""
    try:
        base_offset, length, leader_epoch, magic, attributes, delta, base_ms, max_ms, count = _header(raw, at)
        end = at + LENGTH_OVERHEAD + length
        if count != 1 or delta or magic != CURRENT_MAGIC or attributes not in _PLAIN or end > len(raw):
            return None
        at += HEADER_SIZE
        size = raw[at]
        at += 1
        if size >= 0x80:
            size += (raw[at] << 7) - 0x80
            at += 1
        # One comparison checks that the size is even (not negative), has two bytes at most, and reaches the end.
        if size != (end - at) << 1 or length > _LONGEST_BATCH or base_offset < 0 or raw[at + 1 : at + 3] != _NO_DELTAS:
            return None
        size = raw[at + 3]
        at += 4
        if size >= 0x80:
            size += (raw[at] << 7) - 0x80
            at += 1
        if size & 1 or size >= _LONGEST_KEY << 1:
            return None
        size >>= 1
        key = raw[at : at + size]
        if key[:4] != _KEY_BEGINS[size] or not key.isascii():
            return None
        at += size
        size = raw[at]
        at += 1
        end -= 1  # the last byte of the batch is the number of the record's headers
        timestamp_ms = max_ms if attributes else base_ms
        if size == _NULL:
            return (
                None
                if at != end or raw[at]
                else (end + 1, base_offset, leader_epoch, timestamp_ms, key, NO_PRODUCER_ID, NO_PRODUCER_ID, False)
            )
        if size >= 0x80:
            size += (raw[at] << 7) - 0x80
            at += 1
        if size != (end - at) << 1 or raw[end]:
            return None
        version, producer_id, state, partitions = _value(raw, at)
        at += _PARTITIONS_AT
        if version == 1:
            at = (at + 1 if partitions <= 1 else _after_compact(raw, at)) + _TIMESTAMPS
            size = end - at
            if (size == 11 and raw[at : at + 3] == b"\1\0\x08") or (
                size == 15 and raw[at : at + 3] == b"\2\0\x08" and raw[at + 11 : at + 13] == b"\2\2"
            ):
                previous_id = _int64(raw, at + 3)[0]
            elif (size == 1 and not raw[at]) or (size == 5 and raw[at : at + 3] == b"\1\2\2"):
                previous_id = NO_PRODUCER_ID
            else:
                return None
        elif version == 0:
            at = at + 4 if raw[at : at + 4] in _NONE_OR_EMPTY else _after_partitions(raw, at)
            if at + _TIMESTAMPS != end:
                return None
            previous_id = NO_PRODUCER_ID
        else:
            return None
        is_live = _LIVE[state]
    except (IndexError, struct.error):
        return None
    return (
        None
        if state < 0
        else (end + 1, base_offset, leader_epoch, timestamp_ms, key, producer_id, previous_id, is_live)
    )


def _after_compact(raw: bytes, at: int) -> int:
    """The end of the partitions of a version 1 value; they begin at `at`."""
    topics = raw[at] - 1
    at += 1
    if topics >= 0x7F:
        return _NOWHERE
    for _ in range(topics):
        size = raw[at]
        name = raw[at + 1 : at + size]
        at += size
        count = raw[at]
        at += 4 * count - 3
        if not 0 < size < 0x80 or not 0 < count < 0x80 or not name.isascii() or raw[at]:
            return _NOWHERE
        at += 1
    return at


def _after_partitions(raw: bytes, at: int) -> int:
    """The same for version 0."""
    topics: int = _int32(raw, at)[0]
    at += 4
    if not 0 <= topics <= _MOST_TOPICS:
        return _NOWHERE
    for _ in range(topics):
        size: int = _int16(raw, at)[0]
        at += 2
        if size < 0 or not raw[at : at + size].isascii():
            return _NOWHERE
        at += size
        count: int = _int32(raw, at)[0]
        if count < 0:
            return _NOWHERE
        at += 4 + 4 * count
    return at
