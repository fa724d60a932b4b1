"""The last markers of some partitions: who has just ended a transaction there. Only `explain` asks this.

It is apart from lookups.py, which begins at a known offset: here nothing is known but the end of the log.
"""

from __future__ import annotations

from collections.abc import Collection

from txnwatch.state.model.transaction import Marker
from txnwatch.state.model.values import Offset, ProducerId, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.lookups import list_extents, read_parts
from txnwatch.streaming.log.partition_fold import marker_at
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.wire.record_batch import BatchWalker

OFFSETS_BACK = 1_000  # below the end of each partition
_MOST_BYTES = 16 << 20  # of records, in all


class MarkersOfProducers(BatchWalker):
    """Keeps the markers of each producer in [start, end), in the order of the log; a fold for `read_ranges`."""

    reads_records = False

    def __init__(self, start: Offset, end: Offset) -> None:
        super().__init__(start, end)
        self.found: dict[ProducerId, list[Marker]] = {}

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response.

        Raises:
            WireError: bytes that no broker writes.
        """
        for at, header in self.headers(buffer):
            marker = marker_at(buffer, at, header) if header.is_control else None
            if marker is not None:
                self.found.setdefault(header.producer_id, []).append(marker)


def last_markers(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, dict[ProducerId, list[Marker]]]:
    """The markers of each producer near the end of each partition; what cannot be read is left out.

    Raises:
        BrokerError: no broker answers.
    """
    logs = [log for log in list_extents(cluster, partitions).values() if isinstance(log, Range)]
    parts = [RangeReading(log.part(Offset(log.end - OFFSETS_BACK)), MarkersOfProducers) for log in logs]
    return {read.partition: read.fold.found for read in read_parts(cluster, parts, max_bytes=_MOST_BYTES)}
