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
from typing import Any, NamedTuple

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
    return frozenset(TopicPartition(topic, number) for topic, numbers in partitions for number in numbers)


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


# A fast reader of one usual batch of `__transaction_state`: one record, which has few forms.
#
# The lengths in a batch decide where its fields are. So the first batch with some lengths is followed byte by byte, and
# its layout is kept: then one call takes all fields of each batch with the same lengths.
#
# Law: `quick_decode` returns what the exact decoders (record_batch.py and `decode_value`) would return for the same
# bytes, or None. None means only that the caller has to decode the batch. So each byte between the fields of an
# accepted batch is compared with what it has to be, except for the checksum and the producer in the header. A usual
# batch has one plain record, an ASCII name, a value of version 0 or 1, and the tags that brokers write, in the order in
# which they write them.

NO_PRODUCER_ID = ProducerId(-1)

# Where the batch ends in the buffer, its base offset and leader epoch; the record's timestamp, its encoded
# transactional id, the producer id and the previous one (NO_PRODUCER_ID for a tombstone, or if there is none), and
# whether the state is Ongoing or Prepare*. Then the version of the value (NO_VALUE for a tombstone), the producer
# epoch, the timeout, the state, the encoded partitions, when it was updated, when its transaction began, and the
# version of the client. A plain tuple, because it is created a million times.
QuickDecoded = tuple[
    int, Offset, LeaderEpoch, TimestampMs, bytes, ProducerId, ProducerId, bool,
    int, ProducerEpoch, int, TransactionState, bytes, TimestampMs, TimestampMs | None, int,
]  # fmt: skip
NO_VALUE = -1
_OF_TOMBSTONE = (
    NO_PRODUCER_ID, NO_PRODUCER_ID, False,
    NO_VALUE, ProducerEpoch(-1), 0, TransactionState.DEAD, b"", TimestampMs(-1), None, 0,
)  # fmt: skip

_lengths = struct.Struct(">8xi4xb4xhi30xi").unpack_from  # length, magic, attributes, last offset delta, record count
_shape = struct.Struct(">8x4s4xs4x6s30x11s").unpack_from  # the same, and the begin of the record
_SHAPE_SIZE = 68
# How to take the fields of a batch; its size, the format of the fields, the bytes before the name and before the
# producer id, the version of the value, and whether it has a previous producer id.
_Layout = tuple[Callable[[bytes, int], tuple[Any, ...]], int, str, bytes, bytes, int, bool]
_layouts: dict[tuple[bytes, ...], list[_Layout]] = {}
_MOST_LAYOUTS, _MOST_OF_A_SHAPE = 1 << 12, 8

_int32 = struct.Struct(">i").unpack_from
_int16 = struct.Struct(">h").unpack_from
_PLAIN = frozenset({0, LOG_APPEND_TIME})
_LONGEST_BATCH, _LONGEST_NAME = 8_000, 1_000
_NULL_WITHOUT_HEADERS = b"\1\0"
_PARTITIONS_AT, _TIMES = 17, 16
_NONE_OR_EMPTY = frozenset({b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0", b"\1"})
_STATES = {number: (state, state.is_live) for number, state in enumerate(TransactionState) if number < 6}  # logged ones
_MOST_TOPICS = 1_000
_NOWHERE = 1 << 62  # beyond every end, so a comparison with the end fails

# The version of the client by the bytes behind the times, without the previous producer id; the last of them is the
# number of headers. Version 0 has only that.
_ENDS = {b"\0": 0, b"\0\0": 0, b"\1\0\x08\0": 0}
_ENDS |= {
    begin + b"\2\2\0%c\0" % client_version: client_version
    for begin in (b"\1", b"\2\0\x08")
    for client_version in range(10)
}
_SIZES_OF_ENDS = (frozenset({1}), frozenset({2, 6, 12, 16}))  # with the previous producer id, by version
_WITH_PREVIOUS = 12  # and more


def quick_decode(raw: bytes, at: int) -> QuickDecoded | None:
    """The batch at `at`; None if it has to be decoded or is cut off."""
    try:
        shape = _shape(raw, at)
        for fields, size, _, before_name, before_value, version, has_previous in _layouts.get(shape, ()):
            previous_id = NO_PRODUCER_ID
            if has_previous:
                (
                    offset, leader_epoch, at_ms, begin, name, middle, producer_id, epoch, timeout_ms, number, places,
                    updated_ms, start_ms, tags, previous_id, end,
                ) = fields(raw, at)  # fmt: skip
                end = tags + end
            elif version != NO_VALUE:
                (
                    offset, leader_epoch, at_ms, begin, name, middle, producer_id, epoch, timeout_ms, number, places,
                    updated_ms, start_ms, end,
                ) = fields(raw, at)  # fmt: skip
            else:
                offset, leader_epoch, at_ms, begin, name, middle = fields(raw, at)
                if begin == before_name and middle == before_value and offset >= 0 and name.isascii():
                    return at + size, offset, leader_epoch, at_ms, name, *_OF_TOMBSTONE
                continue
            if begin != before_name or middle != before_value or end not in _ENDS or number not in _STATES:
                continue
            if offset < 0 or not name.isascii() or not (places in _NONE_OR_EMPTY or _are_usual(version, places)):
                continue
            state, is_live = _STATES[number]
            start_ms = start_ms if start_ms >= 0 else None
            return (
                at + size, offset, leader_epoch, at_ms, name, producer_id, previous_id, is_live,
                version, epoch, timeout_ms, state, places, updated_ms, start_ms, _ENDS[end],
            )  # fmt: skip
    except struct.error:
        return None
    return quick_decode(raw, at) if _has_new_layout(raw, at, shape) else None


def _has_new_layout(raw: bytes, at: int, shape: tuple[bytes, ...]) -> bool:
    """Follows the batch at `at` to its end; False if it has to be decoded or is cut off."""
    length, magic, attributes, delta, count = _lengths(raw, at)
    batch = raw[at : at + LENGTH_OVERHEAD + length]
    is_usual = count == 1 and not delta and magic == CURRENT_MAGIC and attributes in _PLAIN
    if not is_usual or not 0 < length <= _LONGEST_BATCH or len(batch) != LENGTH_OVERHEAD + length:
        return False
    try:
        layout = _followed(batch, "8xq" if attributes else "q8x")
    except (WireError, IndexError, struct.error):
        return False
    layouts = _layouts.get(shape, [])
    if layout is None or len(layouts) >= _MOST_OF_A_SHAPE or any(layout[1:] == other[1:] for other in layouts):
        return False
    if len(_layouts) >= _MOST_LAYOUTS:
        _layouts.clear()
    _layouts.setdefault(shape, layouts).append(layout)
    return True


def _followed(batch: bytes, timestamp: str) -> _Layout | None:
    """The layout of a batch with one record, as far as its lengths decide it."""
    reader = Reader(batch, HEADER_SIZE)
    has_size, _ = reader.varint("size") == reader.remaining, reader.int8("attributes")
    if not has_size or reader.varint("timestamp delta") or reader.varint("offset delta"):
        return None
    key_size, key_at = reader.varint("key"), reader.position
    key_version, name_size = reader.int16("key version"), reader.int16("name")
    name_at = reader.position
    name_end = name_at + len(reader.take(name_size, "name"))
    if key_version != _KEY_VERSION or name_end - key_at != key_size or name_size > _LONGEST_NAME:
        return None
    value_size, value_at = reader.varint("value"), reader.position
    before_name = batch[_SHAPE_SIZE:name_at]
    form = f">q4xi11x{timestamp}25x{len(before_name)}s{name_size}s"
    if batch[name_end:] == _NULL_WITHOUT_HEADERS:
        return _laid_out(f"{form}2s", before_name, _NULL_WITHOUT_HEADERS, NO_VALUE)
    version = reader.int16("value version")
    if value_size != len(batch) - value_at - 1 or not 0 <= version <= _HIGHEST_VALUE_VERSION:
        return None
    before_value, partitions_at = batch[name_end : reader.position], value_at + _PARTITIONS_AT
    times_at = _after_partitions(version, batch, partitions_at)
    end_size = len(batch) - times_at - _TIMES
    if end_size not in _SIZES_OF_ENDS[version]:
        return None
    has_previous = end_size >= _WITH_PREVIOUS
    end = f"3sq{end_size - 11}s" if has_previous else f"{end_size}s"
    form += f"{len(before_value)}sqhib{times_at - partitions_at}sqq{end}"
    return _laid_out(form, before_name, before_value, version, has_previous=has_previous)


def _laid_out(
    form: str, before_name: bytes, before_value: bytes, version: int, *, has_previous: bool = False
) -> _Layout:
    fields = struct.Struct(form)
    return fields.unpack_from, fields.size, form, before_name, before_value, version, has_previous


@lru_cache(_REMEMBERED)
def quick_participants(version: int, encoded: bytes) -> frozenset[TopicPartition]:
    """As TransactionLogValue.participants, of encoded partitions that `quick_decode` has accepted."""
    partitions = _partitions(Reader(encoded), flexible=version >= 1)
    return _participants(partitions) if partitions else NO_PARTICIPANTS


@lru_cache(_REMEMBERED)
def _are_usual(version: int, encoded: bytes) -> bool:
    """Whether these bytes are partitions, whole, with ASCII names and without tags."""
    try:
        return _after_partitions(version, encoded, 0) == len(encoded)
    except (IndexError, struct.error):
        return False


def _after_partitions(version: int, raw: bytes, at: int) -> int:
    """The end of the partitions of a value; they begin at `at`."""
    return _after_compact(raw, at) if version else _after_first_version(raw, at)


def _after_compact(raw: bytes, at: int) -> int:
    """The same for version 1."""
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


def _after_first_version(raw: bytes, at: int) -> int:
    """The same for version 0."""
    topics: int = _int32(raw, at)[0]
    at += 4
    if not -1 <= topics <= _MOST_TOPICS:
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
