"""Keys and values of `__transaction_state` as bytes, written down from Kafka's schemas: an oracle for the decoder."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType

from support.batches import unsigned_varint
from txnwatch.streaming.wire.internal_topics import TransactionLogValue
from txnwatch.streaming.wire.primitives import encoded

STATUS = {
    "Empty": 0,
    "Ongoing": 1,
    "PrepareCommit": 2,
    "PrepareAbort": 3,
    "CompleteCommit": 4,
    "CompleteAbort": 5,
    "Dead": 6,
    "PrepareEpochFence": 7,
}
NO_TAGS: Mapping[int, bytes] = MappingProxyType({})


def a_key(transactional_id: str, *, version: int = 0) -> bytes:
    return struct.pack(">h", version) + _string(transactional_id)


def a_value(value: TransactionLogValue, unknown_tags: Mapping[int, bytes] = NO_TAGS) -> bytes:
    """The bytes a broker writes for `value`; `unknown_tags` are those of a broker that is newer than we are."""
    flexible = value.version >= 1
    return b"".join(
        [
            struct.pack(
                ">hqhib",
                value.version,
                value.producer_id,
                value.producer_epoch,
                value.transaction_timeout_ms,
                STATUS[value.state.value],
            ),
            _partitions(value, flexible=flexible),
            struct.pack(">qq", value.last_update_ms, encoded(value.start_ms)),
            _tags({**_known_tags(value), **unknown_tags}) if flexible else b"",
        ]
    )


def _partitions(value: TransactionLogValue, *, flexible: bool) -> bytes:
    if value.partitions is None:
        return b"\0" if flexible else struct.pack(">i", -1)
    encoded = [_count(len(value.partitions), flexible=flexible)]
    for topic, partitions in value.partitions:
        encoded.append(_compact_string(topic) if flexible else _string(topic))
        encoded.append(_count(len(partitions), flexible=flexible))
        encoded.append(struct.pack(f">{len(partitions)}i", *partitions))
        encoded.append(_tags(NO_TAGS) if flexible else b"")
    return b"".join(encoded)


def _known_tags(value: TransactionLogValue) -> dict[int, bytes]:
    """Kafka's generated code leaves out a tag that has its default."""
    fields = [
        (0, ">q", value.previous_producer_id, None),
        (1, ">q", value.next_producer_id, None),
        (2, ">h", value.client_transaction_version, 0),
        (3, ">h", value.next_producer_epoch, None),
    ]
    return {tag: struct.pack(layout, content) for tag, layout, content, default in fields if content != default}


def _tags(tags: Mapping[int, bytes]) -> bytes:
    encoded = [unsigned_varint(len(tags))]
    for tag, content in sorted(tags.items()):
        encoded += [unsigned_varint(tag), unsigned_varint(len(content)), content]
    return b"".join(encoded)


def _count(count: int, *, flexible: bool) -> bytes:
    return unsigned_varint(count + 1) if flexible else struct.pack(">i", count)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _compact_string(text: str) -> bytes:
    return unsigned_varint(len(text.encode()) + 1) + text.encode()
