"""Folds thousands of batches of one partition into a few facts: what each producer did, and what it left open.

Law: folding a range gives the same result as folding its parts in order and joining the facts in the state
(tests/property proves it), so it does not matter where a range is cut. A batch belongs to the range that holds its base
offset, so neighbouring ranges neither overlap nor leave out a batch.

The rules are those of the partition leader (`ProducerStateManager`, `ProducerAppendInfo`):
  * a transactional data batch opens a transaction at its base offset, or joins the one that is open;
  * a newer epoch in data closes nothing and keeps the first offset;
  * a marker closes, whatever its epoch: the leader compared epochs before it appended the marker, and a broker that
    reads the log again (a follower, a recovery) accepts every marker too; a control batch that compaction has emptied
    has no effect;
  * a producer id below 0 has no state, whatever the attributes are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from txnwatch.state.model.facts import Joined, ProducerSeen
from txnwatch.state.model.ids import ProducerEpoch, ProducerId, TopicPartition
from txnwatch.state.model.record import Record
from txnwatch.state.model.transaction import Marker
from txnwatch.streaming.wire.control_record import MarkerType, read_marker
from txnwatch.streaming.wire.record_batch import (
    CONTROL,
    CURRENT_MAGIC,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    TRANSACTIONAL,
    BatchHeader,
    check_entry,
    end_of_old_entry,
)

_SMALLEST_LENGTH = HEADER_SIZE - LENGTH_OVERHEAD


_NO_EPOCH: Final = ProducerEpoch(-1)  # nothing was read whose epoch it would be


@dataclass(slots=True)
class _Producer:
    """One producer's activity in the range so far."""

    epoch: ProducerEpoch
    first_offset: int | None = None
    first_epoch: ProducerEpoch = _NO_EPOCH
    first_marker: Marker | None = None
    last_marker: Marker | None = None
    open_offset: int | None = None
    open_epoch: ProducerEpoch = _NO_EPOCH
    last_offset: int = -1
    last_timestamp_ms: int = -1
    joined: Joined | None = None


class Episode(Record, frozen=True):
    """One transaction on one partition, from its first batch to its marker; used to read history."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    start_offset: int
    last_offset: int
    last_timestamp_ms: int
    marker: Marker


def marker_at(buffer: memoryview | bytes, position: int, header: BatchHeader) -> Marker | None:
    """The marker in the control batch at `position`; None if compaction emptied it or it is not a marker."""
    found = read_marker(buffer, position, header)
    if found is None:
        return None
    return Marker(
        offset=header.base_offset,
        producer_epoch=header.producer_epoch,
        commit=found.type is MarkerType.COMMIT,
        coordinator_epoch=found.coordinator_epoch,
        timestamp_ms=header.max_timestamp,
    )


class PartitionFold:
    """Folds the batches of one partition from `start` up to `end` (exclusive).

    Attributes:
        position: the next offset to fetch; the range is done when it reaches `end`.
        leader_epoch: leader epoch of the last batch seen, -1 before the first.
        batches, size: number of batches and bytes walked.
        episodes: every transaction that ended in the range; empty without `keep_episodes`.
    """

    def __init__(self, start: int, end: int, *, keep_episodes: bool = False) -> None:
        self.start = start
        self.end = end
        self.position = start
        self.leader_epoch = -1
        self.batches = 0
        self.size = 0
        self.episodes: list[Episode] = []
        self._keep_episodes = keep_episodes
        self._producers: dict[ProducerId, _Producer] = {}

    @property
    def is_done(self) -> bool:
        """Whether every offset of the range has been walked."""
        return self.position >= self.end

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response; a batch that is cut off at the end is left for the next fetch.

        Raises:
            WireError: bytes that no broker writes; `position` is then the offset of their batch.
        """
        # The hot loop of the project: one unpack per batch, only local variables. Rare cases are calls.
        at, size, start, end = 0, len(buffer), self.start, self.end
        producers, unpack = self._producers, HEADER.unpack_from
        position, leader_epoch, batches = self.position, self.leader_epoch, 0
        try:
            while at + HEADER_SIZE <= size:
                header = unpack(buffer, at)
                base, length, epoch_of_leader, magic, _, attributes, last_delta, _, latest, producer_id, epoch, _, _ = (
                    header
                )
                if magic != CURRENT_MAGIC or length < _SMALLEST_LENGTH:
                    check_entry(buffer, at)
                    last_delta = 0  # a magic 0 or 1 entry carries the offset of its last record
                elif at + LENGTH_OVERHEAD + length > size:
                    break
                elif base >= end:
                    position = end
                    break
                elif attributes & TRANSACTIONAL and producer_id >= 0 and base >= start:
                    if attributes & CONTROL:
                        self._marker(buffer, at, BatchHeader._make(header))
                    else:
                        seen = producers.get(producer_id)
                        if seen is None or seen.open_offset is None:
                            seen = self._opened(producer_id, base, epoch)
                        elif epoch > seen.epoch and seen.joined is None:
                            seen.joined = Joined(seen.open_offset, seen.open_epoch, base, epoch)
                        seen.epoch = epoch
                        seen.last_offset = base + last_delta
                        seen.last_timestamp_ms = -1 if attributes & DELETE_HORIZON else latest
                position = base + last_delta + 1
                leader_epoch = epoch_of_leader
                at += LENGTH_OVERHEAD + length
                batches += 1
            while position < end and (following := end_of_old_entry(buffer, at)) is not None:
                position = int.from_bytes(buffer[at : at + 8], "big") + 1
                at = following
        finally:
            self.position, self.leader_epoch = position, leader_epoch
            self.batches += batches
            self.size += at

    def _opened(self, producer_id: ProducerId, base: int, epoch: ProducerEpoch) -> _Producer:
        seen = self._producers.setdefault(producer_id, _Producer(epoch))
        seen.open_offset, seen.open_epoch = base, epoch
        if seen.first_marker is None:
            seen.first_offset, seen.first_epoch = base, epoch
        return seen

    def _marker(self, buffer: memoryview | bytes, offset: int, header: BatchHeader) -> None:
        marker = marker_at(buffer, offset, header)
        if marker is None:
            return
        producer = self._producers.setdefault(header.producer_id, _Producer(header.producer_epoch))
        if self._keep_episodes and producer.open_offset is not None:
            self.episodes.append(_episode(header.producer_id, producer, marker))
        if producer.joined is not None and producer.joined.start_offset == producer.open_offset:
            producer.joined = producer.joined._replace(marker=marker)
        producer.epoch = marker.producer_epoch
        producer.first_marker = producer.first_marker or marker
        producer.last_marker = marker
        producer.open_offset = None

    def facts(self, partition: TopicPartition, topic_id: str, listed_ms: int) -> Iterator[ProducerSeen]:
        """The facts of the range: one for each producer with transactional batches or markers in it."""
        for producer_id, seen in self._producers.items():
            yield ProducerSeen(
                partition=partition,
                topic_id=topic_id,
                producer_id=producer_id,
                range_start=self.start,
                range_end=self.position,
                first_offset=seen.first_offset,
                first_epoch=seen.first_epoch,
                first_marker=seen.first_marker,
                last_marker=seen.last_marker,
                open_offset=seen.open_offset,
                open_epoch=seen.open_epoch,
                epoch=seen.epoch,
                last_offset=seen.last_offset,
                last_timestamp_ms=seen.last_timestamp_ms,
                listed_ms=listed_ms,
                joined=seen.joined,
            )


def _episode(producer_id: ProducerId, producer: _Producer, marker: Marker) -> Episode:
    assert producer.open_offset is not None
    return Episode(
        producer_id=producer_id,
        producer_epoch=producer.open_epoch,
        start_offset=producer.open_offset,
        last_offset=producer.last_offset,
        last_timestamp_ms=producer.last_timestamp_ms,
        marker=marker,
    )
