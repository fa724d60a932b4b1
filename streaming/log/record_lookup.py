"""One offset of a partition: its batch, where its transaction begins there, and the marker that ended it.

Apart: each question of lookups.py is one read. This one, which only `explain` asks, needs three: the batch at the
offset, the data of its producer around it, and what the leader has open. Records are never read.
"""

from __future__ import annotations

from txnwatch.state.evidence.read_committed import BatchPlace, RecordPlace
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.transaction import Marker
from txnwatch.state.model.values import FIRST_OFFSET, Offset, Problem, ProducerEpoch, ProducerId, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.lookups import OFFSETS_BELOW, BatchList, list_extents, read_parts
from txnwatch.streaming.log.partition_fold import marker_at
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.wire.primitives import present
from txnwatch.streaming.wire.record_batch import BatchHeader, BatchWalker, EndTransactionMarker, MarkerType

_MOST_BYTES = 256 << 20  # of records, in the search for the marker


class TransactionAround(BatchWalker):
    """Walks [start, end) up to the marker that ends the transaction of one offset; a fold for `read_ranges`.

    Attributes:
        first_offset: the first data of the producer behind its last marker below the offset; an upper bound if no such
            marker is in the range.
        is_first_certain: whether the producer's data cannot begin below it: the range has everything up to that marker.
        epochs: the producer epochs of the data from there on, in order.
        marker: None if there is none up to the end, or compaction has emptied it.
    """

    reads_records = False

    def __init__(self, producer_id: ProducerId, offset: Offset, start: Offset, end: Offset) -> None:
        super().__init__(start, end)
        self.producer_id = producer_id
        self.offset = offset
        self.first_offset: Offset | None = None
        self.is_first_certain = start == FIRST_OFFSET
        self.epochs: dict[ProducerEpoch, None] = {}
        self.marker: Marker | None = None

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response.

        Raises:
            WireError: bytes that no broker writes.
        """
        for at, header in self.headers(buffer):
            if header.producer_id != self.producer_id:
                continue
            if header.is_control and header.base_offset > self.offset:
                self.marker = marker_at(buffer, at, header)
                self.position = self.end
                return
            if header.is_control:
                self.first_offset, self.epochs, self.is_first_certain = None, {}, True
            elif header.is_transactional:
                self.first_offset = header.base_offset if self.first_offset is None else self.first_offset
                self.epochs[header.producer_epoch] = None


def look_up(
    cluster: Cluster, partition: TopicPartition, offset: Offset, reading: PartitionReading
) -> tuple[RecordPlace, str | None]:
    """What the partition shows about the offset, and why its marker could not be read; `reading` is a fresh one.

    Raises:
        BrokerError: the partition cannot be listed, or the batch at the offset cannot be read.
    """
    log = list_extents(cluster, [partition])[partition]
    if isinstance(log, Problem):
        raise BrokerError(f"{partition}: {log}")
    stable = log.end if reading.last_stable_offset is None else reading.last_stable_offset
    if not log.start <= offset < log.end:
        return RecordPlace(offset, log.start, log.end, stable), None
    batch = _batch_at(cluster, log, offset)
    if batch is None or batch.producer_id is None or batch.base_offset > offset:
        return RecordPlace(offset, log.start, log.end, stable, batch), None
    if batch.is_control or not batch.is_transactional:
        return RecordPlace(offset, log.start, log.end, stable, batch), None
    row = reading.open_transaction(batch.producer_id)
    is_open = row is not None and row.start_offset <= offset
    around, problem = _around(cluster, log, batch, offset, is_open=is_open)
    is_described = row is not None and is_open
    place = RecordPlace(
        offset=offset,
        log_start=log.start,
        end=log.end,
        last_stable_offset=stable,
        batch=batch,
        is_open=is_open,
        first_offset=row.start_offset if row is not None and is_open else around.first_offset,
        is_first_certain=is_described or around.is_first_certain,
        epochs=tuple(around.epochs),
        marker=around.marker,
    )
    return place, problem


def _batch_at(cluster: Cluster, log: Range, offset: Offset) -> BatchPlace | None:
    (read,) = read_parts(cluster, [RangeReading(log.part(offset), lambda begin, end: BatchList(begin, end, 1))])
    if read.notices:
        raise BrokerError(f"{log.partition}@{offset}: {read.notices[0].detail}")
    return next((_place(header, marker) for header, marker in read.fold.found), None)


def _place(header: BatchHeader, marker: EndTransactionMarker | None) -> BatchPlace:
    return BatchPlace(
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        record_count=header.record_count,
        producer_id=present(header.producer_id),
        producer_epoch=header.producer_epoch,
        timestamp_ms=header.max_timestamp,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        commit=marker.type is MarkerType.COMMIT if marker is not None else None,
    )


def _around(
    cluster: Cluster, log: Range, batch: BatchPlace, offset: Offset, *, is_open: bool
) -> tuple[TransactionAround, str | None]:
    """The transaction of a batch; of an open one only what is below, because it has no marker."""
    producer_id = batch.producer_id
    assert producer_id is not None
    begin, end = Offset(max(FIRST_OFFSET, offset - OFFSETS_BELOW)), batch.last_offset + 1 if is_open else log.end
    part = RangeReading(log.part(begin, end), lambda first, last: TransactionAround(producer_id, offset, first, last))
    (read,) = read_parts(cluster, [part], max_bytes=_MOST_BYTES)
    fold: TransactionAround = read.fold
    if read.notices:
        return fold, read.notices[0].detail
    if fold.marker is None and not is_open:
        return fold, "the log has no marker of its producer behind it yet"
    return fold, None
