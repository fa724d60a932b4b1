"""What a partition's own log tells of one open span: under which epoch it began, and the producer's last marker below.

How a hang would have ended rests on both, and DescribeProducers tells neither. Only reads; state/outcome.py decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from txnwatch.state.errors import BrokerError
from txnwatch.state.ids import TopicPartition
from txnwatch.state.ports import SpanPast
from txnwatch.state.transaction import UNREAD, Marker
from txnwatch.streaming.batch_list import BatchList
from txnwatch.streaming.cluster import Cluster
from txnwatch.streaming.extent import Extent, list_extents, read_parts
from txnwatch.streaming.fold import marker_at
from txnwatch.streaming.wire.record_batch import walk

_BELOW = 100_000  # offsets; whoever had its last marker further down is not told of


def read_past(cluster: Cluster, partition: TopicPartition, producer_id: int, start: int) -> SpanPast:
    """The past of the span that begins at `start`; what cannot be read is absent."""
    try:
        (log,) = list_extents(cluster, [partition])
        if log.problem is not None:
            return SpanPast()
        epoch, below = _epoch_at(cluster, log, producer_id, start), _below(cluster, log, producer_id, start)
    except BrokerError:
        return SpanPast()
    is_first = below is not None and below.marker is None and not below.has_hole and max(0, start - _BELOW) == log.start
    return SpanPast(epoch, below.marker if below is not None else None, is_first and log.start == 0)


def _epoch_at(cluster: Cluster, log: Extent, producer_id: int, start: int) -> int:
    (read,) = read_parts(cluster, [log.part(lambda begin, end: BatchList(begin, end, 1), start)])
    for header, _ in read.fold.found:
        if header.base_offset == start and header.producer_id == producer_id and not header.is_control:
            return int(header.producer_epoch)
    return UNREAD


def _below(cluster: Cluster, log: Extent, producer_id: int, start: int) -> LastMarker | None:
    def fold(begin: int, end: int) -> LastMarker:
        return LastMarker(producer_id, begin, end)

    (read,) = read_parts(cluster, [log.part(fold, start - _BELOW, start)])
    return None if read.notices else read.fold


@dataclass(slots=True)
class LastMarker:
    """A producer's last marker in a range; a fold as `read_ranges` wants it.

    Attributes:
        marker: None too where compaction has left a hole above it: what is missing may have been the last.
        has_hole: whether any offset of the range is missing.
    """

    producer_id: int
    position: int
    end: int
    leader_epoch: int = -1
    marker: Marker | None = None
    has_hole: bool = False

    @property
    def is_done(self) -> bool:
        """Whether the whole range has been walked."""
        return self.position >= self.end

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response.

        Raises:
            WireError: bytes that no broker writes.
        """
        for at, header in walk(buffer):
            if min(header.base_offset, self.end) > self.position:
                self.has_hole, self.marker = True, None
            if header.base_offset >= self.end:
                self.position = self.end
                return
            if header.is_control and header.producer_id == self.producer_id:
                self.marker = marker_at(buffer, at, header)
                self.has_hole = self.has_hole or self.marker is None  # compaction has emptied it
            self.leader_epoch, self.position = header.leader_epoch, header.last_offset + 1
