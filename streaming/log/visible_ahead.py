"""What a log has from an offset on for a read_committed consumer: what is there, and where the next record is.

Apart: lookups.py, which has 550 lines, has the questions about one transaction.

Batch headers and markers show it; users' records are never read. A record of a transaction counts once its COMMIT
marker was read. So the search goes on behind a record until no earlier one is undecided.

Law: the reading is bounded. What was not read to its end is not known, and is never nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from txnwatch.state.model.values import Offset, Problem, ProducerId, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.lookups import list_extents, read_parts
from txnwatch.streaming.log.partition_fold import marker_at
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.wire.record_batch import BatchHeader, BatchWalker

_MOST_BYTES = 16 << 20  # of records, for all partitions of one call


class Place(StrEnum):
    """What is at an offset."""

    RECORD = "record"
    COMMIT_MARKER = "commit_marker"
    ABORT_MARKER = "abort_marker"
    NOTHING = "nothing"
    BELOW_START = "below_start"
    END = "end"
    BEYOND_END = "beyond_end"


class Ahead(NamedTuple):
    """What a partition has from an offset on.

    Attributes:
        at: what is at the offset.
        next_record: where the next record is that read_committed consumers get; None if there is none.
        is_known: whether everything was read that `next_record` needs.
    """

    at: Place
    log_start: Offset
    next_record: Offset | None = None
    is_known: bool = True


class VisibleAhead(BatchWalker):
    """Walks [start, end) up to the first record below `stable` that read_committed consumers get; for `read_ranges`.

    Attributes:
        at: what is at the start.
        visible: that record; it may still be preceded by one that is not decided yet.
    """

    reads_records = False

    def __init__(self, start: Offset, end: Offset, stable: Offset) -> None:
        super().__init__(start, end)
        self.stable = stable
        self.at: Place | None = None
        self.visible: Offset | None = None
        self._undecided: dict[ProducerId, Offset] = {}

    @property
    def is_done(self) -> bool:
        """Whether the range was walked, or what is left cannot change the answer."""
        if super().is_done:
            return True
        limit = self.stable if self.visible is None else self.visible
        return self.position >= limit and all(offset >= limit for offset in self._undecided.values())

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response.

        Raises:
            WireError: bytes that no broker writes.
        """
        for at, header in self.headers(buffer):
            if self.is_done:
                return
            if header.last_offset >= self.start:
                self._take(buffer, at, header)

    def _take(self, buffer: memoryview | bytes, at: int, header: BatchHeader) -> None:
        first = Offset(max(header.base_offset, self.start))
        marker = marker_at(buffer, at, header) if header.is_control else None
        if self.at is None:
            self.at = Place.NOTHING if header.base_offset > self.start or not header.record_count else Place.RECORD
            if header.is_control and self.at is Place.RECORD:
                is_commit = marker is not None and marker.commit
                self.at = Place.COMMIT_MARKER if is_commit else Place.ABORT_MARKER
        if header.is_control:
            begun = self._undecided.pop(header.producer_id, None)
            if begun is not None and marker is not None and marker.commit:
                self._see(begun)
        elif header.record_count and header.is_transactional:
            self._undecided.setdefault(header.producer_id, first)
        elif header.record_count:
            self._see(first)

    def _see(self, offset: Offset) -> None:
        if offset < self.stable and (self.visible is None or offset < self.visible):
            self.visible = offset


def look_ahead(
    cluster: Cluster, offsets: Mapping[TopicPartition, Offset], stable: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, Ahead | Problem]:
    """What some partitions have from an offset on; `stable` has their last stable offsets.

    Raises:
        BrokerError: no broker answers.
    """
    ahead: dict[TopicPartition, Ahead | Problem] = {}
    parts: list[RangeReading[VisibleAhead]] = []
    logs = list_extents(cluster, offsets)
    for partition, log in logs.items():
        place = _outside(log, offsets[partition]) if isinstance(log, Range) else None
        if isinstance(log, Problem):
            ahead[partition] = log
        elif place is not None:
            ahead[partition] = Ahead(place, log.start)
        else:
            parts.append(_part(log, offsets[partition], stable[partition]))
    for read in read_parts(cluster, parts, max_bytes=_MOST_BYTES):
        log = logs[read.partition]
        assert isinstance(log, Range)
        at = read.fold.at or Place.NOTHING
        ahead[read.partition] = Ahead(at, log.start, read.fold.visible, is_known=not read.notices)
    return ahead


def _outside(log: Range, offset: Offset) -> Place | None:
    if offset < log.start:
        return Place.BELOW_START
    if offset >= log.end:
        return Place.END if offset == log.end else Place.BEYOND_END
    return None


def _part(log: Range, offset: Offset, stable: Offset) -> RangeReading[VisibleAhead]:
    return RangeReading(log.part(offset), lambda start, end: VisibleAhead(start, end, stable))
