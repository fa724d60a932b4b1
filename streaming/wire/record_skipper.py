"""Finds the records of a Fetch response that nobody reads, while the response arrives, so that they are not copied.

Of a data partition only batch headers and markers are read. If batches are large, nearly all bytes of a response are
records, and the socket can drop them: neither the kernel nor we copy them, and what stands in the buffer in their place
has no meaning.

Law: only complete parts between a header of magic 2 and the next header are skipped, and never a control batch. Bytes
that do not follow the format are not skipped, so the decoders see them and report them.
"""

from __future__ import annotations

import struct

from txnwatch.state.model.errors import WireError
from txnwatch.streaming.wire.fetch_response import read_beginning, read_partition_head, read_topic, skip_tags
from txnwatch.streaming.wire.primitives import Reader
from txnwatch.streaming.wire.record_batch import CONTROL, CURRENT_MAGIC, HEADER_SIZE, LENGTH_OVERHEAD, SMALLEST_LENGTH

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
            found = self._found(reader)
        except WireError:
            return False  # cut off
        if found is None:
            self._stop()
            return False
        self._topics, self._partitions, size = found
        self._at, self._records_end = reader.position, reader.position + size
        return True

    def _found(self, reader: Reader) -> tuple[int, int, int] | None:
        """How many topics and partitions follow the next partition, and the size of its records."""
        topics, partitions, version = self._topics, self._partitions, self._version
        is_first = topics is None
        if topics is None:
            skip_tags(reader, version)  # of the response's header
            _, _, topics = read_beginning(reader, version)
        else:
            skip_tags(reader, version)  # of the partition before
        while not partitions:
            if not is_first:
                skip_tags(reader, version)  # of the topic before
            if not topics:
                return None
            is_first, topics = False, topics - 1
            _, partitions = read_topic(reader, version)
        return topics, partitions - 1, read_partition_head(reader, version).records_size

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
