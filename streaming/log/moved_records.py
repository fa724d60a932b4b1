"""Records of `__transaction_state` that are not in the partition of their id, because there were fewer partitions once.

A change of the number of partitions leaves the older records where they are, and compaction keeps their offsets. So the
first offsets of each partition show whether it was changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from txnwatch.state.model.values import Offset, coordinator_partition
from txnwatch.state.telling.moved_ids import MovedId
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import LogRecord, logs_of
from txnwatch.streaming.log.coordinator_records import logged_records
from txnwatch.streaming.log.lookups import list_extents, read_parts
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.wire.record_batch import BatchWalker

_MOST_OFFSETS = 2_000  # of each partition


def moved_of(cluster: Cluster, transactional_id: str, records: Iterable[LogRecord]) -> MovedId | None:
    """The id by its last record outside of its partition; None if there is none."""
    count = len(logs_of(cluster))
    belongs = coordinator_partition(transactional_id, count) if count else None
    moved = [record for record in records if record.partition not in {None, belongs}]
    if belongs is None or not moved:
        return None
    last = moved[-1]
    producer_id = next((record.value.producer_id for record in reversed(moved) if record.value is not None), None)
    state = last.value.state if last.value is not None else None
    return MovedId(transactional_id, last.partition or 0, belongs, count, state, producer_id)


def read_moved_names(cluster: Cluster) -> list[str]:
    """The ids outside of their partition, by the first offsets of each partition of the log."""
    logs = logs_of(cluster)
    whole = [log for log in list_extents(cluster, logs).values() if isinstance(log, Range)]
    reads = read_parts(
        cluster,
        [
            RangeReading(
                log.part(log.start, Offset(log.start + _MOST_OFFSETS)), _fold_of(log.partition.partition, len(logs))
            )
            for log in whole
        ],
    )
    return sorted({name for read in reads for name in read.fold.names})


class MovedNames(BatchWalker):
    """The ids of a range whose name belongs to another partition; a fold for `read_ranges`."""

    def __init__(self, number: int, count: int, start: Offset, end: Offset) -> None:
        super().__init__(start, end)
        self._number, self._count = number, count
        self.names: set[str] = set()

    def feed(self, buffer: memoryview | bytes) -> None:
        """Reads the records of one Fetch response.

        Raises:
            WireError: bytes that no broker writes.
        """
        for at, header in self.headers(buffer):
            if header.is_control:
                continue
            for record in logged_records(buffer, at, header):
                if coordinator_partition(record.transactional_id, self._count) != self._number:
                    self.names.add(record.transactional_id)


def _fold_of(number: int, count: int) -> Callable[[Offset, Offset], MovedNames]:
    return lambda start, end: MovedNames(number, count, start, end)
