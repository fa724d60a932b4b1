"""The walk over record batches: the only loop over the batches of a Fetch response or a segment file.

Law: the walk reads headers only and skips records by their length. It yields each complete batch whose base offset is
below the end of the range, in order. It handles everything that can stand between batches:

- a batch that the end of the bytes cuts off ends the walk: Fetch may return one, and it is fetched again;
- a batch at or above the end of the range ends the walk, and the range is done;
- an entry of magic 0 or 1 has no producer id: it moves the position only;
- a magic or a length that no broker writes is a WireError, and the position is the offset of that batch.

The walk is the hot loop of the project. So it joins batches into runs where nothing but offsets and timestamps differ,
yields plain tuples, and unpacks only the fields that it needs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from txnwatch.state.model.errors import WireError
from txnwatch.state.model.ids import LeaderEpoch, ProducerEpoch, ProducerId
from txnwatch.state.model.quantities import FIRST_OFFSET, Offset, TimestampMs
from txnwatch.streaming.wire.absent import present
from txnwatch.streaming.wire.record_batch import (
    CONTROL,
    CURRENT_MAGIC,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LENGTH_POSITION,
    MAGIC_POSITION,
    SMALLEST_LENGTH,
    BatchHeader,
    check_entry,
    end_of_entry,
    header_at,
)

# Where the run begins in the buffer, its first and last offset, its attributes, the encoded producer id and epoch
# (empty for an entry of magic 0 or 1), and the last timestamp. A plain tuple, because there is one for each batch.
Run = tuple[int, Offset, Offset, int, bytes, TimestampMs]

NO_PRODUCER = b""
_NO_END = Offset(1 << 63)
_NO_TIMESTAMP = TimestampMs(-1)

# base offset, length, leader epoch, magic, attributes, last offset delta, max timestamp, producer id and epoch
_fields = struct.Struct(">qiib4xhi8xq10s8x")
_producer = struct.Struct(">qh").unpack


class BatchWalker:
    """Walks the batches of one range [start, end) of a partition, one Fetch response after the other.

    Attributes:
        position: the next offset to fetch; it moves over a batch after the caller has handled the batch.
        leader_epoch: leader epoch of the last batch, -1 before the first.
        reads_records: whether the caller reads records of data batches, and not headers and markers only.
    """

    reads_records = True

    def __init__(self, start: Offset = FIRST_OFFSET, end: Offset = _NO_END) -> None:
        self.start = start
        self.end = end
        self.position = start
        self.leader_epoch = LeaderEpoch(-1)

    @property
    def last_epoch(self) -> LeaderEpoch | None:
        """Leader epoch of the last batch; None before the first, and if the batch has none."""
        return present(self.leader_epoch)

    @property
    def is_done(self) -> bool:
        """Whether every offset of the range has been walked."""
        return self.position >= self.end

    def beyond_end(self, header: BatchHeader) -> None:
        """Is called with the batch that ends the walk because it is at or above the end of the range."""

    def runs(self, buffer: memoryview | bytes, at: int = 0, *, joined: bool = True) -> Iterator[Run]:
        """Yields the batches from the byte `at` on; without `joined`, each batch is a run of its own.

        Joined batches have the same producer, epochs and attributes. Control batches, and batches that begin below the
        start of the range, are never joined.

        Raises:
            WireError: a length or magic that no broker writes.
        """
        size, start, end, unpack = len(buffer), self.start, self.end, _fields.unpack_from
        last_begin = size - HEADER_SIZE
        begin, attributes, producer, timestamp = -1, 0, NO_PRODUCER, _NO_TIMESTAMP
        first, last, leader_epoch = start, start, self.leader_epoch
        while True:
            while at <= last_begin:
                base, length, new_epoch, magic, new_attributes, delta, new_timestamp, new_producer = unpack(buffer, at)
                after = at + LENGTH_OVERHEAD + length
                if magic != CURRENT_MAGIC or length < SMALLEST_LENGTH or base >= end or after > size:
                    break
                if not (
                    new_producer == producer
                    and new_attributes == attributes
                    and new_epoch == leader_epoch
                    and first >= start
                    and joined
                    and not attributes & CONTROL
                ):
                    if begin >= 0:
                        if not 0 <= first <= last:
                            raise _bad_offsets(begin, first, last)
                        yield begin, first, last, attributes, producer, timestamp
                        self.position = last + 1
                        self.leader_epoch = leader_epoch
                    begin = at
                    first = base
                    leader_epoch = new_epoch
                    attributes = new_attributes
                    producer = new_producer
                last = base + delta
                timestamp = new_timestamp
                at = after
            if begin >= 0:
                if not 0 <= first <= last:
                    raise _bad_offsets(begin, first, last)
                yield begin, first, last, attributes, producer, timestamp
                self.position = last + 1
                self.leader_epoch = leader_epoch
            old = self._old_entry(buffer, at)
            if old is None:
                return
            yield old
            self.position = old[2] + 1
            at, begin, producer = end_of_entry(buffer, at), -1, NO_PRODUCER

    def _old_entry(self, buffer: memoryview | bytes, at: int) -> Run | None:
        """The entry of magic 0 or 1 where the batches end; None at the end of the range or of the bytes."""
        if at + MAGIC_POSITION >= len(buffer):
            return None
        check_entry(buffer, at)
        if end_of_entry(buffer, at) > len(buffer):
            return None
        is_old = buffer[at + MAGIC_POSITION] < CURRENT_MAGIC
        offset = Offset(int.from_bytes(buffer[at : at + LENGTH_POSITION], "big", signed=True))
        if offset < self.end and is_old:
            if offset < 0:
                raise _bad_offsets(at, offset, offset)
            return at, offset, offset, 0, NO_PRODUCER, _NO_TIMESTAMP
        if not is_old:
            self.beyond_end(header_at(buffer, at))
        self.position = self.end
        return None

    def headers(self, buffer: memoryview | bytes, at: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yields (byte position, header) of each batch of magic 2 from the byte `at` on.

        Raises:
            WireError: a length or magic that no broker writes.
        """
        unpack = HEADER.unpack_from
        for begin, _, _, _, producer, _ in self.runs(buffer, at, joined=False):
            if producer:
                yield begin, BatchHeader._make(unpack(buffer, begin))


def _bad_offsets(at: int, first: int, last: int) -> WireError:
    return WireError("base offset and last offset", at, f"{first} and {last}", "0 or more, the last not below the base")


def walk(buffer: memoryview | bytes, at: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yields (byte position, header) of each complete batch of magic 2 in some bytes of a log.

    Raises:
        WireError: a length or magic that no broker writes.
    """
    return BatchWalker().headers(buffer, at)


def end_of_whole_entries(buffer: memoryview | bytes) -> int:
    """The end of the last complete batch of a segment file; what follows, if anything, is an incomplete one.

    Raises:
        WireError: a length or magic that no broker writes.
    """
    end = 0
    for begin, *_ in BatchWalker().runs(buffer, joined=False):
        end = end_of_entry(buffer, begin)
    return end


def producer_of(encoded: bytes) -> tuple[ProducerId, ProducerEpoch]:
    """The producer id and epoch of a run."""
    producer_id, epoch = _producer(encoded)
    return ProducerId(producer_id), ProducerEpoch(epoch)
