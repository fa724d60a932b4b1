"""Chooses which partitions are scanned within a number of bytes per second. Pure: no I/O, no clock.

A scan reads every written byte once. What is written beyond the budget is not read, and is not read late: the
partitions that write most are looked at where they stand (standing_looks.py). A partition that is scanned again begins
at its last stable offset, because nothing that is open begins below it.

How much a partition needs follows from what is known anyway: how far its end has moved in some seconds, and what lies
between its end and the place from which it is read, times the bytes that an offset of its topic had when it was read.
So a backlog of a pause is read only if the budget allows it within `WINDOW_S`. DescribeLogDirs shows bytes, but needs a
right on the cluster.

Law: the partitions that are scanned need at most the budget. A partition whose rate is not known stays on its side.
Rates rise at once and fall slowly, and a partition is scanned again only if all then need at most `RETURN_SHARE` of the
budget. So rates that change by less than a tenth let no partition change its side twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from txnwatch.state.model.facts import DataRead, TopicVolume
from txnwatch.state.model.values import BarrierNumber, Offset, TopicPartition
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch.streaming.log.range_reading import Fold, RangeReading
from txnwatch.streaming.source.offsets import LookedAt, SourceOffset

WINDOW_S: Final = 10.0
RETURN_SHARE: Final = 0.7
_KEPT_RATE = 0.8  # of a rate, from one window to the next, if less is written
_KEPT_READ = 0.9  # the weight of what was read before, of one batch


class Extent(NamedTuple):
    """What there is to read of a partition: from `start`, where its reading begins or goes on, to its end."""

    start: Offset
    end: Offset


def beyond(
    budget: float,
    rates: Mapping[TopicPartition, float],
    looked: Iterable[TopicPartition],
    rank: Callable[[str], int] = lambda _: 0,
) -> set[TopicPartition]:
    """The partitions to look at: the others need at most `budget` bytes per second.

    Args:
        budget: bytes per second.
        rates: bytes per second that are to be read, of the partitions for which this is known.
        looked: the partitions that are looked at now.
        rank: of a topic; a lower rank is scanned first, whatever it writes.
    """
    before = set(looked)
    total, to_look_at = 0.0, before - rates.keys()
    for at in sorted(rates, key=lambda at: (rank(at.topic), at in before, rates[at], at)):
        limit = budget * RETURN_SHARE if at in before else budget
        if total + rates[at] <= limit:
            total += rates[at]
        else:
            to_look_at.add(at)
    return to_look_at


class ScanBudget:
    """The rates of the partitions, and the choice. It lives in the driver, beside the lister.

    After a start the rates are not known. What the last offset says is looked at stays so until they are.
    """

    def __init__(
        self, bytes_per_s: int | None, is_first: Callable[[str], bool], *, wants_backlog: bool = False
    ) -> None:
        """Nothing is beyond the budget if it is None.

        Args:
            bytes_per_s: the budget.
            is_first: tells which topics are scanned before the others.
            wants_backlog: whether somebody wants all of a backlog to be read, however long that takes.
        """
        self._bytes_per_s = bytes_per_s
        self._is_first = is_first
        self._read: dict[str, TopicVolume] = {}  # of the last batches, each with less weight than the next
        self._wants_backlog = wants_backlog
        self._extents: dict[TopicPartition, Extent] = {}
        self._offsets_per_s: dict[TopicPartition, float] = {}
        self._since_s: float | None = None
        self._is_known_anew = False

    def is_due(self, now_s: float) -> bool:
        """Whether `take` wants the extents."""
        return self._bytes_per_s is not None and (self._since_s is None or now_s >= self._since_s + WINDOW_S)

    def learn(self, volumes: Mapping[str, TopicVolume]) -> None:
        """Takes what was read of each topic."""
        for topic, volume in volumes.items():
            before = self._read.get(topic, TopicVolume(0, 0, has_transactions=False))
            kept = before._replace(offsets=int(_KEPT_READ * before.offsets), bytes=int(_KEPT_READ * before.bytes))
            self._read[topic] = volume.plus(kept)

    def take(self, extents: Mapping[TopicPartition, Extent], now_s: float) -> None:
        """Takes the extents of all partitions that may be scanned, once they are due."""
        if self._since_s is not None:
            passed_s = now_s - self._since_s
            self._offsets_per_s = {
                at: max((now.end - before.end) / passed_s, _KEPT_RATE * self._offsets_per_s.get(at, 0.0))
                for at, now in extents.items()
                if (before := self._extents.get(at)) is not None
            }
            self._is_known_anew = True
        self._extents, self._since_s = dict(extents), now_s

    def looked(self, previous: SourceOffset, listed: Mapping[TopicPartition, str]) -> dict[TopicPartition, LookedAt]:
        """The partitions that are not scanned at the barrier after `previous`.

        Args:
            previous: the last offset.
            listed: the partitions that may be scanned, with their topic ids.
        """
        if self._bytes_per_s is None:
            return {}
        looks = {at: look for at, look in previous.looked.items() if listed.get(at) == look.topic_id}
        if not self._is_known_anew:
            return looks
        self._is_known_anew = False
        sizes = {at: self._size(at, looks) for at in self._offsets_per_s.keys() & listed.keys()}
        rates = {at: size * self._to_read_per_s(at) for at, size in sizes.items() if size is not None}
        chosen = beyond(self._bytes_per_s, rates, looks, self._rank)
        barrier = BarrierNumber(previous.barrier + 1)
        return {
            at: looks[at] if at in looks else LookedAt(listed[at], round(sizes[at] or 0) or 1, barrier) for at in chosen
        }

    def _to_read_per_s(self, at: TopicPartition) -> float:
        """The offsets to read in the next window, as offsets per second: what is written, and what is not read yet."""
        backlog = 0 if self._wants_backlog else self._extents[at].end - self._extents[at].start
        return self._offsets_per_s[at] + backlog / WINDOW_S

    def _size(self, at: TopicPartition, looks: Mapping[TopicPartition, LookedAt]) -> float | None:
        read = self._read.get(at.topic)
        if read is not None and read.offsets > 0:
            return read.bytes / read.offsets
        return looks[at].bytes_per_offset if at in looks else None

    def _rank(self, topic: str) -> int:
        """Named topics first; topics in which no transaction was seen last."""
        is_without = topic in self._read and not self._read[topic].has_transactions
        return 0 if self._is_first(topic) else 1 + is_without


def data_read(reads: Iterable[RangeReading[Fold]]) -> Iterator[DataRead]:
    """What a task has read of each topic."""
    volumes: dict[str, TopicVolume] = {}
    for read in reads:
        folds = [fold for fold in (*read.earlier, read.fold) if isinstance(fold, PartitionFold)]
        offsets = sum(fold.position - fold.start for fold in folds)
        if offsets > 0:
            volume = TopicVolume(offsets, read.size, any(fold.producers for fold in folds))
            topic = read.partition.topic
            volumes[topic] = volume.plus(volumes[topic]) if topic in volumes else volume
    if volumes:
        yield DataRead(volumes)
