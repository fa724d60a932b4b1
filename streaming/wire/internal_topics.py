"""Keys and values of Kafka's internal topics: `__transaction_state`, and the keys of `__consumer_offsets`.

Transactions: the schemas `TransactionLogKey` and `TransactionLogValue` of Kafka's transaction coordinator, versions 0
and 1. Version 1 is flexible: known tags are read, unknown ones skipped
(TransactionLogTest.testDeserializeHighestSupportedVersion and KIP-915: later brokers may add tags, and a downgraded
broker must skip them). A later *version* is an error that names the version: its fields are unknown, and a guess would
lead to false verdicts.

Offsets: the schema `OffsetCommitKey` of Kafka's group coordinator. Versions 0 and 1 have the same fields: the group,
the topic and the number of the partition. Classic groups, consumer groups and groups of Kafka Streams all have such
records. Keys with a higher version are about groups and their members. Values are never read.

The coordinators write these records, but their names come from clients: a name can be any text that fits into 32,767
bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from txnwatch.state.model.errors import WireError
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import (
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
    is_topic_name,
)
from txnwatch.streaming.wire.primitives import Reader, check_version
from txnwatch.streaming.wire.record_batch import CURRENT_MAGIC, HEADER_SIZE, LENGTH_OVERHEAD, LOG_APPEND_TIME

_KEY_VERSION = 0
_HIGHEST_VALUE_VERSION = 1
_TAG_PREVIOUS_PRODUCER_ID = 0
_TAG_NEXT_PRODUCER_ID = 1
_TAG_CLIENT_TRANSACTION_VERSION = 2
_TAG_NEXT_PRODUCER_EPOCH = 3

TopicPartitions = tuple[tuple[str, tuple[int, ...]], ...]


NO_PARTICIPANTS: frozenset[TopicPartition] = frozenset()
_REMEMBERED = 1 << 13  # sets of partitions: a producer writes the same one in most records


@lru_cache(_REMEMBERED)
def _participants(partitions: TopicPartitions) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, one) for topic, numbers in partitions for one in numbers)


@dataclass(slots=True, unsafe_hash=True)  # frozen would triple the cost of making one
class TransactionLogValue:
    """One value of the coordinator's log; times are epoch milliseconds of the broker's clock.

    Attributes:
        partitions: None if and only if the state is Empty; the whole set in Prepare*, and empty in Complete*.
        start_ms: when the transaction began; None if none has begun since InitProducerId.
    """

    version: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    transaction_timeout_ms: int
    state: TransactionState
    partitions: TopicPartitions | None
    last_update_ms: int
    start_ms: TimestampMs | None
    previous_producer_id: ProducerId | None = None
    next_producer_id: ProducerId | None = None
    client_transaction_version: int = 0
    next_producer_epoch: ProducerEpoch | None = None

    @property
    def participants(self) -> frozenset[TopicPartition]:
        """The partitions of the transaction; none in Complete*."""
        return _participants(self.partitions) if self.partitions else NO_PARTICIPANTS


def decode_key(key: memoryview | bytes) -> str | None:
    """The transactional id, or None for a key of another type, which Kafka ignores too.

    Raises:
        WireError: a key of type 0 is truncated or has bytes left over.
    """
    reader = Reader(key)
    if reader.int16("key version") != _KEY_VERSION:
        return None
    transactional_id = reader.string("transactional id")
    reader.expect_end("transaction log key")
    return transactional_id


def decode_value(value: memoryview | bytes) -> TransactionLogValue:
    """Decodes one value of the log.

    Raises:
        WireError: an unknown version or state, a truncated value, or bytes left over.
    """
    reader = Reader(value)
    version = reader.int16("value version")
    check_version(version, _HIGHEST_VALUE_VERSION, "value version")
    flexible = version >= 1
    producer_id = ProducerId(reader.int64("producer id"))
    producer_epoch = ProducerEpoch(reader.int16("producer epoch"))
    timeout_ms = reader.int32("transaction timeout")
    state = _state(reader)
    partitions = _partitions(reader, flexible=flexible)
    last_update_ms = reader.int64("last update timestamp")
    start_ms = reader.int64("start timestamp")
    tags = reader.tagged_fields("tagged fields") if flexible else {}
    reader.expect_end("transaction log value")
    return TransactionLogValue(
        version,
        producer_id,
        producer_epoch,
        timeout_ms,
        state,
        partitions,
        last_update_ms,
        TimestampMs(start_ms) if start_ms >= 0 else None,
        _producer_id(tags, _TAG_PREVIOUS_PRODUCER_ID),
        _producer_id(tags, _TAG_NEXT_PRODUCER_ID),
        _tag(tags, _TAG_CLIENT_TRANSACTION_VERSION, Reader.int16) or 0,
        _next_epoch(tags),
    )


def _state(reader: Reader) -> TransactionState:
    start = reader.position
    raw = reader.int8("transaction status")
    try:
        return TransactionState.from_id(raw)
    except ValueError as exc:
        raise WireError("transaction status", start, raw, "0 to 7") from exc


def _partitions(reader: Reader, *, flexible: bool) -> TopicPartitions | None:
    size = reader.unsigned_varint("partitions") - 1 if flexible else reader.int32("partitions")
    if size == -1:
        return None

    def ids() -> tuple[int, ...]:
        count = reader.unsigned_varint("partition ids") - 1 if flexible else reader.int32("partition ids")
        return reader.array(count, lambda: reader.int32("partition id"), "partition ids")

    def topic() -> tuple[str, tuple[int, ...]]:
        name = reader.compact_string("topic") if flexible else reader.string("topic")
        partition_ids = ids()
        if flexible:
            reader.tagged_fields("topic tags")
        return name, partition_ids

    return reader.array(size, topic, "partitions")


def _producer_id(tags: dict[int, memoryview], tag: int) -> ProducerId | None:
    value = _tag(tags, tag, Reader.int64)
    return None if value is None or value < 0 else ProducerId(value)


def _next_epoch(tags: dict[int, memoryview]) -> ProducerEpoch | None:
    value = _tag(tags, _TAG_NEXT_PRODUCER_EPOCH, Reader.int16)
    return None if value is None or value < 0 else ProducerEpoch(value)


def _tag(tags: dict[int, memoryview], tag: int, read: Callable[[Reader, str], int]) -> int | None:
    if tag not in tags:
        return None
    reader = Reader(tags[tag])
    value = read(reader, f"tag {tag}")
    reader.expect_end(f"tag {tag}")
    return value


# A fast reader of one usual batch of `__transaction_state`: takes a few fields from its bytes without decoding it, and
# the others when they are wanted (`quick_value`).
#
# Law: `quick_decode` and `quick_value` return what the exact decoders (record_batch.py and `decode_value`) would return
# for the same bytes, or None. None means only that the caller has to decode the batch. So a batch is accepted only if
# it could be followed to its last byte: one plain record, varints of at most two bytes, ASCII names, value versions 0
# and 1, and the tags that brokers write, in the order in which they write them.

NO_PRODUCER_ID = ProducerId(-1)

# Where the batch ends in the buffer, its base offset and leader epoch; the record's timestamp, its encoded key (equal
# keys are equal transactional ids), the producer id and the previous one (NO_ID for a tombstone, or if there is none),
# and whether the state is Ongoing or Prepare*; where the value begins (NO_VALUE for a tombstone), and where its times
# begin. A plain tuple, because it is created a million times.
QuickDecoded = tuple[int, Offset, LeaderEpoch, TimestampMs, bytes, ProducerId, ProducerId, bool, int, int]
NO_VALUE = -1
KEY_PREFIX = 4  # bytes of an encoded key before the transactional id

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
_NONE = b"\xff\xff\xff\xff"
_NONE_OR_EMPTY = frozenset({_NONE, b"\0\0\0\0"})
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
            return None if at != end or raw[at] else _tombstone(end, base_offset, leader_epoch, timestamp_ms, key)
        if size >= 0x80:
            size += (raw[at] << 7) - 0x80
            at += 1
        if size != (end - at) << 1 or raw[end]:
            return None
        version, producer_id, state, partitions = _value(raw, at)
        value_at = at
        at += _PARTITIONS_AT
        if version == 1:
            times_at = at + 1 if partitions <= 1 else _after_compact(raw, at)
            at = times_at + _TIMESTAMPS
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
            times_at = at + 4 if raw[at : at + 4] in _NONE_OR_EMPTY else _after_partitions(raw, at)
            if times_at + _TIMESTAMPS != end:
                return None
            previous_id = NO_PRODUCER_ID
        else:
            return None
        is_live = _LIVE[state]
    except (IndexError, struct.error):
        return None
    if state < 0:
        return None
    return end + 1, base_offset, leader_epoch, timestamp_ms, key, producer_id, previous_id, is_live, value_at, times_at


def _tombstone(end: int, offset: Offset, leader_epoch: LeaderEpoch, at_ms: TimestampMs, key: bytes) -> QuickDecoded:
    return end + 1, offset, leader_epoch, at_ms, key, NO_PRODUCER_ID, NO_PRODUCER_ID, False, NO_VALUE, NO_VALUE


_fixed = struct.Struct(">hqhib").unpack_from  # version, producer id, epoch, timeout, state
_two_times = struct.Struct(">qq").unpack_from
_STATES = tuple(TransactionState)
_WITH_CLIENT_VERSION = frozenset({5, 15})  # sizes of the tags that end with the version of the client


def quick_value(raw: bytes, seen: QuickDecoded) -> TransactionLogValue:
    """The value of a batch that `quick_decode` has accepted, and that is no tombstone."""
    _, _, _, _, _, producer_id, previous_id, _, value_at, times_at = seen
    version, epoch, timeout_ms, state, last_update_ms, start_ms, client_version = quick_fields(raw, seen)
    return TransactionLogValue(
        version,
        producer_id,
        epoch,
        timeout_ms,
        state,
        _quick_partitions(version, raw[value_at + _PARTITIONS_AT : times_at]),
        last_update_ms,
        start_ms,
        previous_id if previous_id >= 0 else None,
        None,
        client_version,
    )


# Of a value: version, epoch, timeout, state, when it was updated and when its transaction began, version of the client.
QuickFields = tuple[int, ProducerEpoch, int, TransactionState, TimestampMs, TimestampMs | None, int]


def quick_fields(raw: bytes, seen: QuickDecoded) -> QuickFields:
    """The fields of the value that are neither in `seen` nor participants."""
    end, value_at, times_at = seen[0], seen[8], seen[9]
    version, _, epoch, timeout_ms, state = _fixed(raw, value_at)
    updated_ms, start_ms = _two_times(raw, times_at)
    has_version = end - 1 - times_at - _TIMESTAMPS in _WITH_CLIENT_VERSION
    client_version = _int16(raw, end - 3)[0] if has_version else 0
    return version, epoch, timeout_ms, _STATES[state], updated_ms, start_ms if start_ms >= 0 else None, client_version


def quick_has_participants(seen: QuickDecoded) -> bool:
    """Whether its value can name participants; a tombstone has no value."""
    return seen[9] - seen[8] > _PARTITIONS_AT + len(_NONE)


@lru_cache(_REMEMBERED)
def _quick_partitions(version: int, encoded: bytes) -> TopicPartitions | None:
    return _partitions(Reader(encoded), flexible=version >= 1)


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


# The keys of `__consumer_offsets`.

_HIGHEST_OFFSET_KEY = 1


class CommittedKey(NamedTuple):
    """What one offset was committed for."""

    group_id: str
    partition: TopicPartition


def decode_offset_key(key: memoryview | bytes) -> CommittedKey | None:
    """The group and the partition; None for a key that is about something else.

    Raises:
        WireError: a key of version 0 or 1 that no group coordinator writes.
    """
    reader = Reader(key)
    if not 0 <= reader.int16("key version") <= _HIGHEST_OFFSET_KEY:
        return None
    group_id, at = reader.string("group"), reader.position
    topic, number = reader.string("topic"), reader.int32("partition")
    reader.expect_end("offset commit key")
    if not is_topic_name(topic) or number < 0:
        raise WireError("topic", at, repr(f"{topic}-{number}"), "a topic and the number of a partition")
    return CommittedKey(group_id, TopicPartition(topic, number))
