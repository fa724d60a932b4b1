"""Single questions to a log: how a span began, which marker closed it, the last markers, the batches, where it ends.

One question is about an offset: to which transaction its record belongs, and whether it ended. Users' records are never
read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from txnwatch.state.evidence.read_committed import BatchPlace, RecordPlace
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.facts import NoticeKind
from txnwatch.state.model.ports import BEING_READ, ListedOffset, PartitionReading, SpanHistory
from txnwatch.state.model.transaction import ClosingMarker, Marker
from txnwatch.state.model.values import (
    FIRST_OFFSET,
    Offset,
    PartitionOffset,
    Problem,
    ProducerEpoch,
    ProducerId,
    SpanStart,
    TopicPartition,
)
from txnwatch.streaming.client.cluster import EARLIEST, Cluster
from txnwatch.streaming.log.fetch import NO_LIMIT, Budget, read_ranges
from txnwatch.streaming.log.partition_fold import marker_at
from txnwatch.streaming.log.range_reading import F_co, Range, RangeReading
from txnwatch.streaming.wire.primitives import present
from txnwatch.streaming.wire.record_batch import BatchHeader, BatchWalker, EndTransactionMarker, MarkerType, read_marker

# Where a log begins and ends now, for one-time reads of all of it or of a part.
#
# A log that could not be listed is a problem, and a part that could not be read has a notice. The caller decides what
# they mean.

_PATIENCE_S = 5.0


def list_extents(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Range | Problem]:
    """The whole log of each partition, in the given order."""
    starts = cluster.list_offsets(partitions, timestamp=EARLIEST)
    return extents(cluster, starts, cluster.list_offsets(partitions))


def extents(
    cluster: Cluster,
    starts: Mapping[TopicPartition, ListedOffset | Problem],
    ends: Mapping[TopicPartition, ListedOffset | Problem],
) -> dict[TopicPartition, Range | Problem]:
    """The whole log of each partition whose start and end were listed; of each other one the problem."""
    logs: dict[TopicPartition, Range | Problem] = {}
    for partition, start in starts.items():
        end, topic = ends[partition], cluster.known.topics.get(partition.topic)
        topic_id = topic.topic_id if topic is not None else ""
        if isinstance(start, Problem):
            logs[partition] = start
        elif isinstance(end, Problem):
            logs[partition] = end
        else:
            logs[partition] = Range(partition, topic_id, start.offset, end.offset)
    return logs


def read_parts(
    cluster: Cluster, parts: Iterable[RangeReading[F_co]], until: float = math.inf, max_bytes: int = NO_LIMIT
) -> list[RangeReading[F_co]]:
    """Reads parts of logs in parallel, each to its end, to a notice with the reason, or until the time `until`.

    Once `max_bytes` of records have arrived in all, a part that has had its share is left, with a notice.
    """
    reads = list(parts)
    read_ranges(cluster, reads, patience_s=_PATIENCE_S, until=until, budgets=[Budget(reads, max_bytes)])
    return reads


# A read that does not fit into the time budget of a call, and continues at the next call.

_ANSWER_S = 2.0  # for an answer that is under way when the budget ends
_KEPT_S = 300.0  # then a read that no caller has asked for again is dropped


@contextmanager
def continued_read(cluster: Cluster) -> Iterator[float]:
    """Until when the block may begin requests, on the monotonic clock; the last answer may come a little later."""
    until = cluster.until
    with cluster.budget(until - time.monotonic() + _ANSWER_S):
        yield until


def is_still_wanted(used_s: float) -> bool:
    """Whether a read that was last continued at this time is kept for its next call."""
    return time.monotonic() - used_s < _KEPT_S


# Reads from partitions' own logs how open spans began: the epoch of each, and its producer's last marker below it.
#
# The expected outcome of a hang rests on both, and DescribeProducers returns neither. This module only reads;
# state/evidence/outcome.py decides. Many spans are read in parallel; spans of one partition that are near each other
# are read in one pass. A read that does not fit into the time budget is kept and continues at the next call, so a long
# read finishes however small the budgets are. The end of the budget stops only reads that have not begun, because a
# Fetch that is cut off has read nothing.

OFFSETS_BELOW = 100_000  # offsets; a last marker further down is not found
_NO_TIME = "the time budget was used up before this read"
_NOTHING_CAME = "its partition's log returned no data in time"


@dataclass(slots=True)
class _Reading:
    """Spans of one partition, and the range that is read for them."""

    spans: tuple[SpanStart, ...]
    read: RangeReading[SpanHistoryFold]
    used_s: float


class SpanHistoryReader:
    """Reads the histories of open spans, and continues reads that did not finish; not thread-safe."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kept: dict[TopicPartition, _Reading] = {}

    def read(self, spans: Iterable[SpanStart]) -> dict[SpanStart, SpanHistory]:
        """See TransactionAdmin.read_span_histories."""
        left = list(dict.fromkeys(spans))
        histories: dict[SpanStart, SpanHistory] = {}
        wanted = set(left)
        with continued_read(self._cluster) as until:
            while left and time.monotonic() < until:
                answers = self._one_of_each_partition(left, until)
                histories |= {span: history for span, history in answers.items() if span in wanted}
                left = [span for span in left if span not in answers]
        self._kept = {at: kept for at, kept in self._kept.items() if is_still_wanted(kept.used_s)}
        return histories | dict.fromkeys(left, SpanHistory(problem=_NO_TIME))

    def _one_of_each_partition(self, spans: list[SpanStart], until: float) -> dict[SpanStart, SpanHistory]:
        """Begins a read in each partition or continues the unfinished one; each read span gets an answer."""
        at: dict[TopicPartition, list[SpanStart]] = {}
        for span in spans:
            at.setdefault(span.partition, []).append(span)
        answers = self._begin(
            {partition: near(starts) for partition, starts in at.items() if partition not in self._kept}
        )
        readings = [self._kept.pop(partition) for partition in at if partition in self._kept]
        before = [reading.read.fold.position for reading in readings]
        try:
            read_parts(self._cluster, [reading.read for reading in readings], until)
        except BrokerError as exc:
            return answers | {span: SpanHistory(problem=str(exc)) for reading in readings for span in reading.spans}
        for reading, position in zip(readings, before, strict=True):
            if reading.read.needs_fetch:
                reading.used_s = time.monotonic()
                self._kept[reading.spans[0].partition] = reading
                has_come = reading.read.fold.position > position
                answers |= dict.fromkeys(reading.spans, BEING_READ if has_come else SpanHistory(problem=_NOTHING_CAME))
            else:
                answers |= _answers_of(reading)
        return answers

    def _begin(self, groups: dict[TopicPartition, tuple[SpanStart, ...]]) -> dict[SpanStart, SpanHistory]:
        """Lists the logs; those that cannot be listed are answered, and a read of each other one is kept for later."""
        try:
            logs = list_extents(self._cluster, groups) if groups else {}
        except BrokerError as exc:
            return {span: SpanHistory(problem=str(exc)) for group in groups.values() for span in group}
        answers: dict[SpanStart, SpanHistory] = {}
        for partition, log in logs.items():
            if isinstance(log, Problem):
                answers |= dict.fromkeys(groups[partition], SpanHistory(problem=str(log)))
            else:
                part = _part(log, groups[partition])
                self._kept[partition] = _Reading(groups[partition], part, time.monotonic())
        return answers


def near(spans: Iterable[SpanStart]) -> tuple[SpanStart, ...]:
    """The lowest of some spans of one partition, and those that are read in the same pass."""
    lowest, *others = sorted(spans, key=lambda span: span.start_offset)
    return (lowest, *(span for span in others if span.start_offset - lowest.start_offset <= OFFSETS_BELOW))


def _part(log: Range, spans: tuple[SpanStart, ...]) -> RangeReading[SpanHistoryFold]:
    def fold(begin: Offset, end: Offset) -> SpanHistoryFold:
        return SpanHistoryFold(spans, begin, end)

    return RangeReading(log.part(Offset(spans[0].start_offset - OFFSETS_BELOW), spans[-1].start_offset + 1), fold)


def _answers_of(reading: _Reading) -> dict[SpanStart, SpanHistory]:
    """The answers of a finished read; a part that could not be read is a problem, unless it can never be decoded."""
    for notice in reading.read.notices:
        if notice.kind is NoticeKind.GAP and notice.is_decode_failure:
            return dict.fromkeys(reading.spans, SpanHistory())
        if notice.kind is not NoticeKind.LOST:  # retention deleted these offsets; the fold began above them
            return dict.fromkeys(reading.spans, SpanHistory(problem=notice.detail))
    return dict(reading.read.fold.histories())


class SpanHistoryFold(BatchWalker):
    """The histories of some spans of one partition, lowest first, from one walk; a fold for `read_ranges`.

    A producer's last marker is unknown if a later offset is missing, because that offset may have held a later marker.
    """

    reads_records = False

    def __init__(self, spans: tuple[SpanStart, ...], start: Offset, end: Offset) -> None:
        super().__init__(start, end)
        self.spans = spans
        self._reached = 0
        self._has_hole = False
        self._markers: dict[ProducerId, Marker | None] = {}  # None if compaction has emptied it
        self._found: dict[SpanStart, SpanHistory] = {}

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response.

        Raises:
            WireError: bytes that no broker writes.
        """
        producers = {span.producer_id for span in self.spans}
        for at, header in self.headers(buffer):
            self._reach(header)
            if header.is_control and header.producer_id in producers:
                self._markers[header.producer_id] = marker_at(buffer, at, header)

    def beyond_end(self, header: BatchHeader) -> None:
        """Finds the spans that have no batch of their own below the end of the range."""
        self._reach(header)

    def _reach(self, header: BatchHeader) -> None:
        for span in self._reached_by(header.base_offset):
            self._missing_up_to(span.start_offset)
            self._found[span] = self._history(span, _epoch_of(header, span))
        self._missing_up_to(min(header.base_offset, self.end))

    def histories(self) -> Iterator[tuple[SpanStart, SpanHistory]]:
        """The results, once the range is walked; the epoch is None if a span does not begin with a batch."""
        for span in self.spans:
            yield span, self._found.get(span) or self._history(span, None)

    def _reached_by(self, offset: Offset) -> Iterator[SpanStart]:
        while self._reached < len(self.spans) and self.spans[self._reached].start_offset <= offset:
            yield self.spans[self._reached]
            self._reached += 1

    def _missing_up_to(self, offset: Offset) -> None:
        if offset > self.position:
            self._has_hole = True
            self._markers.clear()

    def _history(self, span: SpanStart, epoch: ProducerEpoch | None) -> SpanHistory:
        has_marker = span.producer_id in self._markers
        is_first = self.start == 0 and not self._has_hole and not has_marker
        return SpanHistory(epoch, self._markers.get(span.producer_id), is_first)


def _epoch_of(header: BatchHeader, span: SpanStart) -> ProducerEpoch | None:
    is_its_own = header.base_offset == span.start_offset and header.producer_id == span.producer_id
    return header.producer_epoch if is_its_own and not header.is_control else None


# Lists the batches of a partition: headers and markers, as `decode` shows them. Users' records are never read.


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
        """Walks the `records` of one Fetch response.

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
    part = RangeReading(log.part(offset or FIRST_OFFSET), lambda begin, end: BatchList(begin, end, limit))
    (read,) = read_parts(cluster, [part])
    return read.fold.found, read.notices[0].detail if read.notices else None


# Finds the marker that closed a transaction: the first marker at or after an offset where the transaction was open. The
# data of the producer below the marker joined that transaction, because nothing has closed it before.

_MOST = 1_000_000  # offsets; a later marker is not searched for


class FirstMarker(BatchWalker):
    """Walks [start, end) up to a producer's first control batch; a fold for `read_ranges`.

    Attributes:
        found: the marker in that batch; None if there is no such batch, or compaction has emptied it.

    Above a missing offset no data counts as joined, because that offset may have held a marker.
    """

    reads_records = False

    def __init__(self, producer_id: ProducerId, start: Offset, end: Offset) -> None:
        super().__init__(start, end)
        self.producer_id = producer_id
        self.found: ClosingMarker | None = None
        self._has_hole = False
        self._data_epoch: ProducerEpoch | None = None

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response.

        Raises:
            WireError: bytes that no broker writes.
        """
        for at, header in self.headers(buffer):
            self._has_hole = self._has_hole or header.base_offset > self.position
            if header.producer_id != self.producer_id or header.base_offset < self.start:
                continue
            if header.is_control:
                marker = marker_at(buffer, at, header)
                self.found = ClosingMarker(marker, self._data_epoch) if marker is not None else None
                self.position = self.end
                return
            if header.is_transactional and not self._has_hole:
                newest = self._data_epoch
                self._data_epoch = header.producer_epoch if newest is None else max(newest, header.producer_epoch)


def closing_marker(cluster: Cluster, span: SpanStart, from_offset: Offset) -> ClosingMarker | None:
    """See TransactionAdmin."""
    partition, producer_id, start_offset = span
    first = max(start_offset, from_offset)
    try:
        log = list_extents(cluster, [partition])[partition]
        if isinstance(log, Problem) or log.start > first:  # the deleted offsets may have held it
            return None
        part = RangeReading(log.part(first, first + _MOST), lambda begin, end: FirstMarker(producer_id, begin, end))
        (read,) = read_parts(cluster, [part])
    except BrokerError:
        return None
    return read.fold.found if not read.notices else None


# Finds the last markers of producers, in the last offsets of each partition.

OFFSETS_BACK = 1_000  # below the end of each partition
_MOST_BYTES = 16 << 20  # of records, in all


def is_sent_again(earlier: Sequence[Marker], marker: Marker) -> bool:
    """Whether a marker is the same as the last one of its producer; behind that one, it ends nothing if no data is."""
    return bool(earlier) and (earlier[-1].commit, earlier[-1].producer_epoch) == (marker.commit, marker.producer_epoch)


class MarkersOfProducers(BatchWalker):
    """Keeps the markers of each producer in [start, end), in the order of the log; a fold for `read_ranges`.

    A marker that is there again, without data of its producer between the two, has ended nothing: it is left out.
    """

    reads_records = False

    def __init__(self, start: Offset, end: Offset) -> None:
        super().__init__(start, end)
        self.found: dict[ProducerId, list[Marker]] = {}
        self._written: set[ProducerId] = set()  # has data behind its last marker

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response.

        Raises:
            WireError: bytes that no broker writes.
        """
        for at, header in self.headers(buffer):
            producer_id = header.producer_id
            if not header.is_control:
                self._written.add(producer_id)
                continue
            marker = marker_at(buffer, at, header)
            if marker is None:
                continue
            markers = self.found.setdefault(producer_id, [])
            if producer_id in self._written or not is_sent_again(markers, marker):
                markers.append(marker)
            self._written.discard(producer_id)


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


# One offset of a partition: its batch, where its transaction begins there, and the marker that ended it. That takes
# three reads: the batch at the offset, the data of its producer around it, and what the leader has open.

_MOST_BYTES_AROUND = 256 << 20  # of records, in the search for the marker


class TransactionAround(BatchWalker):
    """Walks [start, end) up to the marker that ends the transaction of one offset; a fold for `read_ranges`.

    Attributes:
        first_offset: the first data of the producer behind its last marker below the offset; an upper bound if no such
            marker is in the range.
        is_first_certain: whether the producer's data cannot begin below it: the range has everything up to that marker.
        epochs: the producer epochs of the data from there on, in order.
        marker: None if there is none up to the end, or compaction has emptied it.
        earlier: the markers of the producer below the offset; of one that was sent again, the last.
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
        self.earlier: list[Marker] = []

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response.

        Raises:
            WireError: bytes that no broker writes.
        """
        for at, header in self.headers(buffer):
            if header.producer_id != self.producer_id:
                continue
            if header.is_control:
                marker = marker_at(buffer, at, header)
                if marker is not None and self.first_offset is None and is_sent_again(self.earlier, marker):
                    self.earlier.pop()
                if header.base_offset > self.offset:
                    self.marker = marker
                    self.position = self.end
                    return
                self.earlier += [marker] if marker is not None else []
                self.first_offset, self.epochs, self.is_first_certain = None, {}, True
            elif header.is_transactional:
                self.first_offset = header.base_offset if self.first_offset is None else self.first_offset
                self.epochs[header.producer_epoch] = None


def look_up(cluster: Cluster, place: PartitionOffset, reading: PartitionReading) -> tuple[RecordPlace, str | None]:
    """What the partition shows about the offset, and why its marker could not be read; `reading` is a fresh one.

    Raises:
        BrokerError: the partition cannot be listed, or the batch at the offset cannot be read.
    """
    partition, offset = place
    log = list_extents(cluster, [partition])[partition]
    if isinstance(log, Problem):
        raise BrokerError(f"{partition}: {log}")
    stable = log.end if reading.last_stable_offset is None else reading.last_stable_offset
    if not log.start <= offset < log.end:
        return RecordPlace(offset, log.start, log.end, stable), None
    batch = _batch_at(cluster, log, offset)
    if batch is None or batch.producer_id is None or batch.base_offset > offset:
        return RecordPlace(offset, log.start, log.end, stable, batch), None
    if batch.is_control:
        around, problem = _around(cluster, log, batch, Offset(batch.base_offset - 1), is_open=False)
        own = RecordPlace(offset, log.start, log.end, stable, batch, marker=around.marker, earlier=(*around.earlier,))
        return own, problem
    if not batch.is_transactional:
        return RecordPlace(offset, log.start, log.end, stable, batch), None
    row = reading.open_transaction(batch.producer_id)
    is_open = row is not None and row.start_offset <= offset
    around, problem = _around(cluster, log, batch, offset, is_open=is_open)
    is_described = row is not None and is_open
    shown = RecordPlace(
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
        earlier=tuple(around.earlier),
    )
    return shown, problem


def _batch_at(cluster: Cluster, log: Range, offset: Offset) -> BatchPlace | None:
    (read,) = read_parts(cluster, [RangeReading(log.part(offset), lambda begin, end: BatchList(begin, end, 1))])
    if read.notices:
        raise BrokerError(f"{PartitionOffset(log.partition, offset)}: {read.notices[0].detail}")
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
    (read,) = read_parts(cluster, [part], max_bytes=_MOST_BYTES_AROUND)
    fold: TransactionAround = read.fold
    if read.notices:
        return fold, read.notices[0].detail
    if fold.marker is None and not is_open:
        return fold, "the log has no marker of its producer behind it yet"
    return fold, None
