"""Lists the batches of a partition: headers and markers, as `decode` shows them. Users' records are never read."""

from __future__ import annotations

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.problem import Problem
from txnwatch.state.model.quantities import FIRST_OFFSET, Offset
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.log_extent import list_extents, read_parts
from txnwatch.streaming.wire.batch_walker import BatchWalker
from txnwatch.streaming.wire.control_record import EndTransactionMarker, read_marker
from txnwatch.streaming.wire.record_batch import BatchHeader


class BatchList(BatchWalker):
    """Keeps the first `limit` batches at or above an offset; a fold for `read_ranges`.

    Attributes:
        found: each header with its marker; None if the batch is not a marker.
    """

    reads_records = False

    def __init__(self, start: Offset, end: Offset, limit: int) -> None:
        super().__init__(start, end)
        self.limit = limit
        self.found: list[tuple[BatchHeader, EndTransactionMarker | None]] = []

    @property
    def is_done(self) -> bool:
        """Whether the range was walked, or enough batches were found."""
        return super().is_done or len(self.found) >= self.limit

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response, or a segment file.

        Raises:
            WireError: bytes that no broker writes.
        """
        for at, header in self.headers(buffer):
            if self.is_done:
                return
            if header.last_offset >= self.start:
                self.found.append((header, read_marker(buffer, at, header) if header.is_control else None))


def read_batches(
    cluster: Cluster, partition: TopicPartition, offset: Offset | None, limit: int
) -> tuple[list[tuple[BatchHeader, EndTransactionMarker | None]], str | None]:
    """Batches from an offset on, or from the log's start; and the reason if the read ended early.

    Raises:
        BrokerError: no such partition, no answer about where its log begins and ends, or an offset outside of it.
    """
    log = list_extents(cluster, [partition])[partition]
    if isinstance(log, Problem):
        raise BrokerError(f"{partition}: {log}")
    if offset is not None and not log.start <= offset <= log.end:
        raise BrokerError(f"{partition}: offset {offset} is not in [{log.start}, {log.end}]")
    part = log.part(lambda begin, end: BatchList(begin, end, limit), offset or FIRST_OFFSET)
    (read,) = read_parts(cluster, [part])
    return read.fold.found, read.notices[0].detail if read.notices else None
