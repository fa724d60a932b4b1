"""What the partitions' own logs tell of open spans: under which epoch each began, and its producer's last marker below.

How a hang would have ended rests on both, and DescribeProducers tells neither. Only reads; state/evidence/outcome.py
decides. Many spans are read side by side, those of one partition that are near each other in one pass. A reading that
does not fit into the time budget is kept and goes on when it is asked for again, so a long one is finished however
small the budgets are; the budget ends only what was not begun, because a Fetch that is cut off has read nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.facts import CANNOT_DECODE, NoticeKind
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.ports import STILL_READING, SpanPast, SpanStart
from txnwatch.state.model.transaction import UNREAD, Marker
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.log_extent import Extent, list_extents, read_parts
from txnwatch.streaming.log.partition_fold import marker_at
from txnwatch.streaming.log.range_read import RangeRead
from txnwatch.streaming.wire.record_batch import BatchHeader, walk

_BELOW = 100_000  # offsets; whoever had its last marker further down is not told of
_ANSWER_S = 2.0  # for an answer that is under way when the budget ends
_KEPT_S = 300.0  # a reading that nobody asks for any more
_NO_TIME = "the time budget was used up before this was asked"
_NOTHING_CAME = "nothing of its partition's log came in time"


@dataclass(slots=True)
class _Reading:
    """Spans of one partition, and the range that tells their pasts."""

    spans: tuple[SpanStart, ...]
    read: RangeRead
    used_s: float


class Pasts:
    """Reads the pasts of open spans, and goes on with what it could not finish; not thread-safe."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kept: dict[TopicPartition, _Reading] = {}

    def read(self, spans: Iterable[SpanStart]) -> dict[SpanStart, SpanPast]:
        """See TransactionAdmin.read_pasts."""
        until, left = self._cluster.until, list(dict.fromkeys(spans))
        found: dict[SpanStart, SpanPast] = {}
        wanted = set(left)
        with self._cluster.budget(until - time.monotonic() + _ANSWER_S):
            while left and time.monotonic() < until:
                told = self._one_of_each_partition(left, until)
                found |= {span: past for span, past in told.items() if span in wanted}
                left = [span for span in left if span not in told]
        now_s = time.monotonic()
        self._kept = {at: one for at, one in self._kept.items() if now_s - one.used_s < _KEPT_S}
        return found | dict.fromkeys(left, SpanPast(problem=_NO_TIME))

    def _one_of_each_partition(self, spans: list[SpanStart], until: float) -> dict[SpanStart, SpanPast]:
        """Begins a reading of each partition, or goes on with the one that is there; each of them has an answer."""
        at: dict[TopicPartition, list[SpanStart]] = {}
        for span in spans:
            at.setdefault(span.partition, []).append(span)
        told = self._begin({partition: near(found) for partition, found in at.items() if partition not in self._kept})
        readings = [self._kept.pop(partition) for partition in at if partition in self._kept]
        before = [reading.read.fold.position for reading in readings]
        try:
            read_parts(self._cluster, [reading.read for reading in readings], until)
        except BrokerError as exc:
            return told | {span: SpanPast(problem=str(exc)) for reading in readings for span in reading.spans}
        for reading, position in zip(readings, before, strict=True):
            if reading.read.needs_fetch:
                reading.used_s = time.monotonic()
                self._kept[reading.spans[0].partition] = reading
                why = STILL_READING if reading.read.fold.position > position else _NOTHING_CAME
                told |= dict.fromkeys(reading.spans, SpanPast(problem=why))
            else:
                told |= _told(reading)
        return told

    def _begin(self, groups: dict[TopicPartition, tuple[SpanStart, ...]]) -> dict[SpanStart, SpanPast]:
        """Lists the logs; what cannot be listed is answered, the rest is kept, to be read."""
        try:
            logs = list_extents(self._cluster, groups) if groups else []
        except BrokerError as exc:
            return {span: SpanPast(problem=str(exc)) for group in groups.values() for span in group}
        told: dict[SpanStart, SpanPast] = {}
        for log in logs:
            if log.problem is not None:
                told |= dict.fromkeys(groups[log.partition], SpanPast(problem=log.problem))
            else:
                part = _part(log, groups[log.partition])
                self._kept[log.partition] = _Reading(groups[log.partition], part, time.monotonic())
        return told


def near(spans: Iterable[SpanStart]) -> tuple[SpanStart, ...]:
    """The lowest of some spans of one partition, and those that one pass reads with it."""
    lowest, *others = sorted(spans, key=lambda span: span.start_offset)
    return (lowest, *(span for span in others if span.start_offset - lowest.start_offset <= _BELOW))


def _part(log: Extent, spans: tuple[SpanStart, ...]) -> RangeRead:
    def fold(begin: int, end: int) -> PastFold:
        return PastFold(spans, begin, end)

    return log.part(fold, spans[0].start_offset - _BELOW, spans[-1].start_offset + 1)


def _told(reading: _Reading) -> dict[SpanStart, SpanPast]:
    """What a reading that is over has told; what it could not read can be asked for again, unless it never can be."""
    for notice in reading.read.notices:
        if notice.kind is NoticeKind.GAP and notice.detail.startswith(CANNOT_DECODE):
            return dict.fromkeys(reading.spans, SpanPast())
        if notice.kind is not NoticeKind.LOST:  # what retention took is not there; the fold has begun above it
            return dict.fromkeys(reading.spans, SpanPast(problem=notice.detail))
    return dict(reading.read.fold.pasts())


@dataclass(slots=True)
class PastFold:
    """The pasts of spans of one partition, lowest first, from one walk; a fold as `read_ranges` wants it.

    A producer's last marker is not known where a later offset is missing: what is missing may have been a later one.
    """

    spans: tuple[SpanStart, ...]
    position: int
    end: int
    leader_epoch: int = -1
    _begin: int = field(init=False)
    _reached: int = 0
    _has_hole: bool = False
    _markers: dict[int, Marker | None] = field(default_factory=dict)  # None for one that compaction has emptied
    _found: dict[SpanStart, SpanPast] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begin = self.position

    @property
    def is_done(self) -> bool:
        """Whether the whole range has been walked."""
        return self.position >= self.end

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response.

        Raises:
            WireError: bytes that no broker writes.
        """
        producers = {span.producer_id for span in self.spans}
        for at, header in walk(buffer):
            for span in self._reached_by(header.base_offset):
                self._missing_up_to(span.start_offset)
                self._found[span] = self._past(span, _epoch_of(header, span))
            self._missing_up_to(min(header.base_offset, self.end))
            if header.base_offset >= self.end:
                self.position = self.end
                return
            if header.is_control and header.producer_id in producers:
                self._markers[header.producer_id] = marker_at(buffer, at, header)
            self.leader_epoch, self.position = header.leader_epoch, header.last_offset + 1

    def pasts(self) -> Iterator[tuple[SpanStart, SpanPast]]:
        """What was found, once the range is walked; of a span that does not begin with a batch no epoch."""
        for span in self.spans:
            yield span, self._found.get(span) or self._past(span, UNREAD)

    def _reached_by(self, offset: int) -> Iterator[SpanStart]:
        while self._reached < len(self.spans) and self.spans[self._reached].start_offset <= offset:
            yield self.spans[self._reached]
            self._reached += 1

    def _missing_up_to(self, offset: int) -> None:
        if offset > self.position:
            self._has_hole = True
            self._markers.clear()

    def _past(self, span: SpanStart, epoch: int) -> SpanPast:
        has_marker = span.producer_id in self._markers
        is_first = self._begin == 0 and not self._has_hole and not has_marker
        return SpanPast(epoch, self._markers.get(span.producer_id), is_first)


def _epoch_of(header: BatchHeader, span: SpanStart) -> int:
    is_its_own = header.base_offset == span.start_offset and header.producer_id == span.producer_id
    return int(header.producer_epoch) if is_its_own and not header.is_control else UNREAD
