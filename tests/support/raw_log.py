"""A partition's log as txnwatch reads it: every batch header, every marker, and the bytes they came from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from support.answers import listed
from txnwatch.state.model.values import LeaderEpoch, TopicPartition
from txnwatch.streaming.client.cluster import EARLIEST, Cluster
from txnwatch.streaming.log.fetch import read_ranges
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.wire.record_batch import (
    LENGTH_OVERHEAD,
    BatchHeader,
    EndTransactionMarker,
    Record,
    read_marker,
    records,
    walk,
)


@dataclass(frozen=True, slots=True)
class RawBatch:
    """One batch: its header, its marker if it is a control batch, and all its bytes."""

    header: BatchHeader
    marker: EndTransactionMarker | None
    encoded: bytes

    @property
    def records(self) -> list[Record]:
        """The records, of a topic that is ours to read."""
        return list(records(self.encoded, 0, self.header))


@dataclass(slots=True)
class RawFold:
    """A Fold that keeps what it walks.

    Attributes:
        on_feed: called with the fold before each response is walked, for what has to happen in the middle of reading.
        responses: how many responses brought something.
    """

    start: int
    end: int
    position: int = -1
    leader_epoch: int = -1
    reads_records: bool = True
    batches: list[RawBatch] = field(default_factory=list)
    on_feed: Callable[[RawFold], None] = lambda _: None
    responses: int = 0

    def __post_init__(self) -> None:
        self.position = self.start

    @property
    def last_epoch(self) -> LeaderEpoch | None:
        """The leader epoch of the last batch; None before the first."""
        return LeaderEpoch(self.leader_epoch) if self.leader_epoch >= 0 else None

    @property
    def is_done(self) -> bool:
        """Whether the whole range has been walked."""
        return self.position >= self.end

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response."""
        self.on_feed(self)
        self.responses += bool(len(buffer))
        for at, header in walk(buffer):
            if header.base_offset >= self.end:
                self.position = self.end
                return
            encoded = bytes(buffer[at : at + LENGTH_OVERHEAD + header.length])
            if header.base_offset >= self.start:
                marker = read_marker(encoded, 0, header) if header.is_control else None
                self.batches.append(RawBatch(header, marker, encoded))
            self.leader_epoch = header.leader_epoch
            self.position = header.last_offset + 1

    @property
    def offsets(self) -> list[int]:
        """Every offset that was walked, in the order of walking."""
        return [
            offset for batch in self.batches for offset in range(batch.header.base_offset, batch.header.last_offset + 1)
        ]


def range_of(
    cluster: Cluster,
    partition: TopicPartition,
    start: int,
    end: int,
    *,
    last_epoch: int | None = None,
    must_check: bool = False,
    on_feed: Callable[[RawFold], None] = lambda _: None,
) -> RangeReading:
    """A range of a partition of which everything is kept."""
    return RangeReading(
        Range(partition, cluster.known.topics[partition.topic].topic_id, start, end, last_epoch, must_check),
        lambda begin, stop: RawFold(begin, stop, on_feed=on_feed),
    )


def read_log(cluster: Cluster, partition: TopicPartition) -> list[RawBatch]:
    """Everything in a partition now.

    Raises:
        AssertionError: not all of it could be read.
    """
    cluster.refresh()
    start, end = listed(cluster, partition, EARLIEST), listed(cluster, partition)
    read = range_of(cluster, partition, start.offset, end.offset)
    read_ranges(cluster, [read], patience_s=10.0)
    assert read.notices == []
    assert read.fold.is_done
    return list(read.fold.batches)
