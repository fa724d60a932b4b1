"""Fetch responses, versions 4 to 13, without copying the records.

This is the only response that we decode ourselves: a generated decoder copies every record twice, and the records are
nearly the whole message (docs/decisions/0003). Schema `FetchResponse.json`; unknown tags are skipped.

Law: the records are views of the connection's buffer. They are read before the next request on that connection.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from txnwatch.state.model.errors import WireError
from txnwatch.state.model.values import LeaderEpoch, Offset
from txnwatch.streaming.wire.primitives import Reader, present
from txnwatch.streaming.wire.record_batch import CONTROL, CURRENT_MAGIC, HEADER_SIZE, LENGTH_OVERHEAD, SMALLEST_LENGTH

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
    throttle_ms, error_code, topics = _read_beginning(reader, version)
    partitions: list[PartitionData] = []
    for _ in range(topics):
        topic, count = _read_topic(reader, version)
        partitions.extend(_partition(reader, topic, version) for _ in range(count))
        _skip_tags(reader, version)
    _skip_tags(reader, version)
    reader.expect_end("fetch response")
    return FetchAnswer(throttle_ms, error_code, partitions)


def _read_beginning(reader: Reader, version: int) -> tuple[int, int, int]:
    """Reads up to the first topic: throttle time, error code, number of topics."""
    throttle_ms = reader.int32("throttle time")
    error_code = 0
    if version >= _SESSIONS_SINCE:
        error_code = reader.int16("error code")
        reader.int32("session id")
    return throttle_ms, error_code, _count(reader, "responses", version)


def _read_topic(reader: Reader, version: int) -> tuple[str | bytes, int]:
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


def _read_partition_head(reader: Reader, version: int) -> PartitionHead:
    """Reads up to a partition's records."""
    index = reader.int32("partition index")
    error_code = reader.int16("partition error code")
    high_watermark = reader.int64("high watermark")
    last_stable_offset = reader.int64("last stable offset")
    log_start_offset = reader.int64("log start offset") if version >= _LOG_START_SINCE else -1
    for _ in range(_count(reader, "aborted transactions", version)):
        reader.take(16, "aborted transaction")
        _skip_tags(reader, version)
    if version >= _PREFERRED_SINCE:
        reader.int32("preferred read replica")
    size = reader.unsigned_varint("records") - 1 if version >= _FLEXIBLE_SINCE else reader.int32("records")
    return PartitionHead(index, error_code, high_watermark, last_stable_offset, log_start_offset, max(0, size))


def _skip_tags(reader: Reader, version: int) -> None:
    """Skips the tagged fields that end a structure."""
    if version >= _FLEXIBLE_SINCE:
        reader.tagged_fields("tags")


def _partition(reader: Reader, topic: str | bytes, version: int) -> PartitionData:
    head = _read_partition_head(reader, version)
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


# Finds the records of a Fetch response that nobody reads, while the response arrives, so that they are not copied.
#
# Of a data partition only batch headers and markers are read. If batches are large, nearly all bytes of a response are
# records, and the socket can drop them: neither the kernel nor we copy them, and what stands in the buffer in their
# place has no meaning.
#
# Law: only complete parts between a header of magic 2 and the next header are skipped, and never a control batch. Bytes
# that do not follow the format are not skipped, so the decoders see them and report them.

AT_A_TIME, AFTER_A_SKIP = 256 << 10, 4 << 10
_WORTH_A_CALL = 64 << 10  # bytes; copying less is cheaper than one more call
_CORRELATION_ID = 4
_SMALL_BATCHES = 16  # so many batches in a row that are not skipped: the rest is received as it comes

_fields = struct.Struct(">8xi4xb4xh").unpack_from  # length, magic, attributes


class RecordSkipper:
    """Follows one response from its first byte on.

    Attributes:
        next_size: how many bytes to receive next; few, if a batch may begin that is worth a skip.
    """

    def __init__(self, version: int) -> None:
        """Starts before the first byte of the response's header."""
        self.next_size = AT_A_TIME
        self._version = version
        self._topics: int | None = None  # topics and partitions that follow; None before the beginning is read
        self._partitions = 0
        self._at = _CORRELATION_ID
        self._records_end: int | None = None
        self._skipped_to = 0
        self._small = 0
        self._is_over = False

    def skip_to(self, buffer: memoryview, filled: int) -> int:
        """Where the next bytes that matter begin, at or after `filled`."""
        while not self._is_over and filled >= self._skipped_to:
            if self._records_end is None:
                if not self._next_partition(buffer, filled):
                    break
            elif (to := self._in_records(buffer, filled, self._records_end)) is not None:
                return to
            elif filled < self._records_end:
                break
            else:
                self._at, self._records_end = self._records_end, None
        return max(filled, self._skipped_to)

    def _next_partition(self, buffer: memoryview, filled: int) -> bool:
        """Reads up to the records of the next partition; False if they are not here yet, or there are no more."""
        reader = Reader(buffer[:filled], self._at)
        try:
            counts_and_size = self._found(reader)
        except WireError:
            return False  # cut off
        if counts_and_size is None:
            self._stop()
            return False
        self._topics, self._partitions, size = counts_and_size
        self._at, self._records_end = reader.position, reader.position + size
        return True

    def _found(self, reader: Reader) -> tuple[int, int, int] | None:
        """How many topics and partitions follow the next partition, and the size of its records."""
        topics, partitions, version = self._topics, self._partitions, self._version
        is_first = topics is None
        if topics is None:
            _skip_tags(reader, version)  # of the response's header
            _, _, topics = _read_beginning(reader, version)
        else:
            _skip_tags(reader, version)  # of the partition before
        while not partitions:
            if not is_first:
                _skip_tags(reader, version)  # of the topic before
            if not topics:
                return None
            is_first, topics = False, topics - 1
            _, partitions = _read_topic(reader, version)
        return topics, partitions - 1, _read_partition_head(reader, version).records_size

    def _in_records(self, buffer: memoryview, filled: int, end: int) -> int | None:
        """The end of the batch at hand if it is worth a skip; None if there is none such here."""
        while self._at + HEADER_SIZE <= min(filled, end):
            length, magic, attributes = _fields(buffer, self._at)
            if magic != CURRENT_MAGIC or length < SMALLEST_LENGTH:
                self._stop()
                return None
            self._at += LENGTH_OVERHEAD + length
            if self._at > filled + _WORTH_A_CALL and not attributes & CONTROL:
                self._small, self.next_size = 0, AFTER_A_SKIP
                self._skipped_to = min(self._at, end)
                return self._skipped_to
            self._small, self.next_size = self._small + 1, AT_A_TIME
            if self._small >= _SMALL_BATCHES:
                self._stop()
                return None
        return None

    def _stop(self) -> None:
        self._is_over, self.next_size = True, 1 << 62
