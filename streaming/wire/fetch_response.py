"""Fetch responses, versions 4 to 13, without copying the records.

This is the only response that we decode ourselves: a generated decoder copies every record twice, and the records are
nearly the whole message (docs/decisions/0003). Schema `FetchResponse.json`; unknown tags are skipped.

Law: the records are views of the connection's buffer. They are read before the next request on that connection.
"""

from __future__ import annotations

from typing import NamedTuple

from txnwatch.state.model.ids import LeaderEpoch
from txnwatch.state.model.quantities import Offset
from txnwatch.streaming.wire.absent import present
from txnwatch.streaming.wire.primitives import Reader

HIGHEST_VERSION = 13
_FLEXIBLE_SINCE, _TOPIC_IDS_SINCE, _SESSIONS_SINCE, _LOG_START_SINCE, _PREFERRED_SINCE = 12, 13, 7, 5, 11
_TAG_DIVERGING_EPOCH = 0
NO_RECORDS = memoryview(b"")


class Divergence(NamedTuple):
    """The largest leader epoch on which two logs agree, and where it ends."""

    epoch: LeaderEpoch
    end: Offset


class PartitionData(NamedTuple):
    """One partition's part of a Fetch response.

    Attributes:
        topic: the name (to version 12) or the topic id's 16 bytes (from version 13).
        high_watermark, last_stable_offset, log_start_offset: None if the leader did not send it.
        divergence: None if the leader's log agrees with what was read before.
        records: a view into the response's buffer, valid until the next response is read.
    """

    topic: str | bytes
    partition: int
    error_code: int
    high_watermark: Offset | None
    last_stable_offset: Offset | None
    log_start_offset: Offset | None
    divergence: Divergence | None
    records: memoryview


class FetchAnswer(NamedTuple):
    """A whole Fetch response; a broker that throttles its client answers without records."""

    throttle_ms: int
    error_code: int
    partitions: list[PartitionData]


def decode_fetch_response(body: memoryview, version: int) -> FetchAnswer:
    """Decodes the body of a response (after its header).

    Raises:
        WireError: the bytes do not follow the schema.
    """
    reader = Reader(body)
    throttle_ms, error_code, topics = read_beginning(reader, version)
    partitions: list[PartitionData] = []
    for _ in range(topics):
        topic, count = read_topic(reader, version)
        partitions.extend(_partition(reader, topic, version) for _ in range(count))
        skip_tags(reader, version)
    skip_tags(reader, version)
    reader.expect_end("fetch response")
    return FetchAnswer(throttle_ms, error_code, partitions)


def read_beginning(reader: Reader, version: int) -> tuple[int, int, int]:
    """Reads up to the first topic: throttle time, error code, number of topics."""
    throttle_ms = reader.int32("throttle time")
    error_code = 0
    if version >= _SESSIONS_SINCE:
        error_code = reader.int16("error code")
        reader.int32("session id")
    return throttle_ms, error_code, _count(reader, "responses", version)


def read_topic(reader: Reader, version: int) -> tuple[str | bytes, int]:
    """Reads up to a topic's first partition: its name or id, and the number of partitions."""
    topic: str | bytes
    if version >= _TOPIC_IDS_SINCE:
        topic = bytes(reader.take(16, "topic id"))
    else:
        topic = reader.compact_string("topic") if version >= _FLEXIBLE_SINCE else reader.string("topic")
    return topic, _count(reader, "partitions", version)


class PartitionHead(NamedTuple):
    """What stands before a partition's records, as the leader sent it."""

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records_size: int


def read_partition_head(reader: Reader, version: int) -> PartitionHead:
    """Reads up to a partition's records."""
    index = reader.int32("partition index")
    error_code = reader.int16("partition error code")
    high_watermark = reader.int64("high watermark")
    last_stable_offset = reader.int64("last stable offset")
    log_start_offset = reader.int64("log start offset") if version >= _LOG_START_SINCE else -1
    for _ in range(_count(reader, "aborted transactions", version)):
        reader.take(16, "aborted transaction")
        skip_tags(reader, version)
    if version >= _PREFERRED_SINCE:
        reader.int32("preferred read replica")
    size = reader.unsigned_varint("records") - 1 if version >= _FLEXIBLE_SINCE else reader.int32("records")
    return PartitionHead(index, error_code, high_watermark, last_stable_offset, log_start_offset, max(0, size))


def skip_tags(reader: Reader, version: int) -> None:
    """Skips the tagged fields that end a structure."""
    if version >= _FLEXIBLE_SINCE:
        reader.tagged_fields("tags")


def _partition(reader: Reader, topic: str | bytes, version: int) -> PartitionData:
    head = read_partition_head(reader, version)
    records = reader.take(head.records_size, "records") if head.records_size else NO_RECORDS
    divergence = _diverging(reader) if version >= _FLEXIBLE_SINCE else None
    offsets = (
        present(Offset(head.high_watermark)),
        present(Offset(head.last_stable_offset)),
        present(Offset(head.log_start_offset)),
    )
    return PartitionData(topic, head.partition, head.error_code, *offsets, divergence, records)


def _diverging(reader: Reader) -> Divergence | None:
    tag = reader.tagged_fields("partition tags").get(_TAG_DIVERGING_EPOCH)
    if tag is None:
        return None
    inner = Reader(tag)
    epoch, end = LeaderEpoch(inner.int32("diverging epoch")), Offset(inner.int64("diverging end offset"))
    return Divergence(epoch, end) if end >= 0 else None


def _count(reader: Reader, field: str, version: int) -> int:
    return max(0, reader.unsigned_varint(field) - 1 if version >= _FLEXIBLE_SINCE else reader.int32(field))
