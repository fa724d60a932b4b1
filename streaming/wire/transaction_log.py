"""Keys and values of `__transaction_state`, versions 0 and 1.

Schemas `TransactionLogKey` and `TransactionLogValue` of Kafka's transaction coordinator. Version 1 is flexible: known
tags are read, unknown ones skipped (TransactionLogTest.testDeserializeHighestSupportedVersion and KIP-915: later
brokers may add tags, and a downgraded broker must skip them). A later *version* is an error that names the version: its
fields are unknown, and a guess would lead to false verdicts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from txnwatch.state.model.errors import WireError
from txnwatch.state.model.ids import ProducerEpoch, ProducerId
from txnwatch.state.model.quantities import TimestampMs
from txnwatch.state.model.transaction import TransactionState
from txnwatch.streaming.wire.primitives import Reader

_KEY_VERSION = 0
_HIGHEST_VALUE_VERSION = 1
_TAG_PREVIOUS_PRODUCER_ID = 0
_TAG_NEXT_PRODUCER_ID = 1
_TAG_CLIENT_TRANSACTION_VERSION = 2
_TAG_NEXT_PRODUCER_EPOCH = 3

TopicPartitions = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
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
    if not 0 <= version <= _HIGHEST_VALUE_VERSION:
        raise WireError(
            "value version", 0, version, f"0 to {_HIGHEST_VALUE_VERSION} (if the broker is newer, upgrade txnwatch)"
        )
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


def coordinator_partition(transactional_id: str, partition_count: int) -> int:
    """The partition of `__transaction_state` that owns the id (`TransactionStateManager.partitionFor`).

    Java's String.hashCode over UTF-16 units, absolute value, with 0 for abs(MIN_VALUE).
    """
    hashed = 0
    encoded = transactional_id.encode("utf-16-be")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        hashed = (31 * hashed + (high << 8 | low)) & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed >= 1 << 31 else hashed
    return (0 if signed == -(1 << 31) else abs(signed)) % partition_count


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
