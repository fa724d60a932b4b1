"""Finds the marker that closed a transaction: the first marker at or after an offset where the transaction was open."""

from __future__ import annotations

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ids import ProducerId, TopicPartition
from txnwatch.state.model.problem import Problem
from txnwatch.state.model.quantities import Offset
from txnwatch.state.model.transaction import Marker
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.log_extent import list_extents, read_parts
from txnwatch.streaming.log.partition_fold import marker_at
from txnwatch.streaming.wire.batch_walker import BatchWalker

_MOST = 1_000_000  # offsets; a later marker is not searched for


class FirstMarker(BatchWalker):
    """Walks [start, end) up to a producer's first control batch; a fold for `read_ranges`.

    Attributes:
        found: the marker in that batch; None if there is no such batch, or compaction has emptied it.
    """

    reads_records = False

    def __init__(self, producer_id: ProducerId, start: Offset, end: Offset) -> None:
        super().__init__(start, end)
        self.producer_id = producer_id
        self.found: Marker | None = None

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response.

        Raises:
            WireError: bytes that no broker writes.
        """
        for at, header in self.headers(buffer):
            if header.is_control and header.producer_id == self.producer_id and header.base_offset >= self.start:
                self.found = marker_at(buffer, at, header)
                self.position = self.end
                return


def closing_marker(
    cluster: Cluster, partition: TopicPartition, producer_id: ProducerId, start_offset: Offset, from_offset: Offset
) -> Marker | None:
    """The producer's first marker at or above both offsets; None if there is none, or it cannot be read."""
    first = max(start_offset, from_offset)
    try:
        log = list_extents(cluster, [partition])[partition]
        if isinstance(log, Problem) or log.start > first:  # the deleted offsets may have held it
            return None
        part = log.part(lambda begin, end: FirstMarker(producer_id, begin, end), first, first + _MOST)
        (read,) = read_parts(cluster, [part])
    except BrokerError:
        return None
    found: Marker | None = read.fold.found
    return found if not read.notices else None
