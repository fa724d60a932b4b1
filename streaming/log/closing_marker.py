"""Finds the marker that closed a transaction: the first marker at or after an offset where the transaction was open."""

from __future__ import annotations

from dataclasses import dataclass, field

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.transaction import Marker
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.log_extent import list_extents, read_parts
from txnwatch.streaming.log.partition_fold import marker_at
from txnwatch.streaming.wire.record_batch import walk

_MOST = 1_000_000  # offsets; a later marker is not searched for


@dataclass(slots=True)
class FirstMarker:
    """Walks [start, end) up to a producer's first control batch; a fold for `read_ranges`.

    Attributes:
        found: the marker in that batch; None if there is no such batch, or compaction has emptied it.
    """

    producer_id: int
    start: int
    end: int
    position: int = field(init=False)
    leader_epoch: int = -1
    found: Marker | None = None

    def __post_init__(self) -> None:
        self.position = self.start

    @property
    def is_done(self) -> bool:
        """Whether the range was walked, or the batch was found."""
        return self.position >= self.end

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response.

        Raises:
            WireError: bytes that no broker writes.
        """
        for at, header in walk(buffer):
            if self.is_done:
                return
            is_met = header.is_control and header.producer_id == self.producer_id
            if is_met and self.start <= header.base_offset < self.end:
                self.found = marker_at(buffer, at, header)
                self.position = self.end
                return
            self.leader_epoch = header.leader_epoch
            self.position = header.last_offset + 1


def closing_marker(
    cluster: Cluster, partition: TopicPartition, producer_id: int, start_offset: int, from_offset: int
) -> Marker | None:
    """The producer's first marker at or above both offsets; None if there is none, or it cannot be read."""
    first = max(start_offset, from_offset)
    try:
        (log,) = list_extents(cluster, [partition])
        if log.problem is not None or log.start > first:  # the deleted offsets may have held it
            return None
        part = log.part(lambda begin, end: FirstMarker(producer_id, begin, end), first, first + _MOST)
        (read,) = read_parts(cluster, [part])
    except BrokerError:
        return None
    found: Marker | None = read.fold.found
    return found if not read.notices else None
