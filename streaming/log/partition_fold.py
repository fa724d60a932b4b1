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

from txnwatch.state.model.facts import Joined, ProducerSeen
from txnwatch.state.model.transaction import Marker
from txnwatch.state.model.values import (
    CoordinatorEpoch,
    DurationMs,
    LeaderEpoch,
    ModelValue,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from txnwatch.streaming.wire.primitives import encoded as as_encoded
from txnwatch.streaming.wire.primitives import present
from txnwatch.streaming.wire.record_batch import (
    CONTROL,
    DELETE_HORIZON,
    NO_PRODUCER,
    TRANSACTIONAL,
    BatchHeader,
    BatchWalker,
    MarkerType,
    header_at,
    leader_epoch_at,
    producer_of,
    read_marker,
)


@dataclass(slots=True)
class RangeProducer:
    """One producer's activity in the range so far.

    Attributes:
        encoded: its id and epoch as the batches have them while its transaction is open, else empty.
        opened_ms: the timestamp of the first batch of its open transaction; only where episodes are kept.
        leader_epoch: the leader epoch of the first batch of the transaction that was opened last.
    """

    epoch: ProducerEpoch
    encoded: bytes = NO_PRODUCER
    first_offset: Offset | None = None
    first_epoch: ProducerEpoch | None = None
    first_marker: Marker | None = None
    last_marker: Marker | None = None
    closed_offset: Offset | None = None
    open_offset: Offset | None = None
    open_epoch: ProducerEpoch | None = None
    last_offset: Offset | None = None
    opened_ms: TimestampMs | None = None
    last_timestamp_ms: TimestampMs | None = None
    joined: Joined | None = None
    leader_epoch: LeaderEpoch | None = None


class Episode(ModelValue, frozen=True):
    """One transaction on one partition, from its first batch to its marker; used to read history.

    Attributes:
        start_offset: offset of its first batch.
        last_offset: offset of its last batch.
        first_timestamp_ms: timestamp of its first batch; None if the batch has none.
        last_timestamp_ms: timestamp of its last batch; None if the batch has none.
        marker: the marker that ended it.
    """

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    start_offset: Offset
    last_offset: Offset
    first_timestamp_ms: TimestampMs | None
    last_timestamp_ms: TimestampMs | None
    marker: Marker

    @property
    def open_ms(self) -> DurationMs | None:
        """How long it was open, from its first batch to its marker; None without timestamps that tell it.

        The two timestamps may be of two clocks: that of the client, and that of the partition's leader.
        """
        first_ms, last_ms = self.first_timestamp_ms, present(self.marker.timestamp_ms)
        if first_ms is None or last_ms is None or last_ms < first_ms:
            return None
        return DurationMs(last_ms - first_ms)


def marker_at(buffer: memoryview | bytes, position: int, header: BatchHeader) -> Marker | None:
    """The marker in the control batch at `position`; None if compaction emptied it or it is not a marker."""
    end_marker = read_marker(buffer, position, header)
    if end_marker is None:
        return None
    return Marker(
        offset=header.base_offset,
        producer_epoch=header.producer_epoch,
        commit=end_marker.type is MarkerType.COMMIT,
        coordinator_epoch=CoordinatorEpoch(end_marker.coordinator_epoch),
        timestamp_ms=header.max_timestamp,
    )


class PartitionFold(BatchWalker):
    """Folds the batches of one partition from `start` up to `end` (exclusive).

    Attributes:
        episodes: every transaction that ended in the range; empty without `keep_episodes`.
        producers: what each producer did in the range.
    """

    reads_records = False

    def __init__(self, start: Offset, end: Offset, *, keep_episodes: bool = False) -> None:
        super().__init__(start, end)
        self.episodes: list[Episode] = []
        self._keep_episodes = keep_episodes
        self.producers: dict[ProducerId, RangeProducer] = {}
        # The producers with an open transaction, by the bytes of id and epoch: most runs need no integers.
        self._open: dict[bytes, RangeProducer] = {}

    def feed(self, buffer: memoryview | bytes) -> None:
        """Folds the `records` of one Fetch response; a batch that is cut off at the end is left for the next fetch.

        Raises:
            WireError: bytes that no broker writes; `position` is then the offset of their batch.
        """
        start, find_open = self.start, self._open.get
        for at, first, last, attributes, encoded, latest in self.runs(buffer):
            if attributes & TRANSACTIONAL and first >= start:
                if attributes & CONTROL:
                    self.apply_marker(buffer, at, header_at(buffer, at))
                elif (seen := find_open(encoded) or self.taken_up(encoded, first, buffer, at)) is not None:
                    seen.last_offset = last
                    seen.last_timestamp_ms = None if attributes & DELETE_HORIZON else latest
                    if self._keep_episodes and seen.open_offset == first:
                        seen.opened_ms = None if attributes & DELETE_HORIZON else header_at(buffer, at).max_timestamp

    def taken_up(self, encoded: bytes, base: Offset, buffer: memoryview | bytes, position: int) -> RangeProducer | None:
        """The producer of data that opens a transaction, or joins one under another epoch; None without an id.

        `position` is where the batch begins in the buffer.
        """
        producer_id, epoch = producer_of(encoded)
        if producer_id < 0:
            return None
        seen = self.producers.get(producer_id)
        if seen is None or seen.open_offset is None:
            seen = self.opened(producer_id, base, epoch)
            seen.leader_epoch = leader_epoch_at(buffer, position)
        elif epoch > seen.epoch and seen.joined is None:
            assert seen.open_offset is not None
            assert seen.open_epoch is not None
            seen.joined = Joined(seen.open_offset, seen.open_epoch, base, epoch)
        self._open.pop(seen.encoded, None)
        seen.epoch, seen.encoded = epoch, encoded
        self._open[encoded] = seen
        return seen

    def opened(self, producer_id: ProducerId, base: Offset, epoch: ProducerEpoch) -> RangeProducer:
        """The producer, with a transaction that begins at `base`."""
        seen = self.producers.setdefault(producer_id, RangeProducer(epoch))
        seen.open_offset, seen.open_epoch = base, epoch
        if seen.first_marker is None:
            seen.first_offset, seen.first_epoch = base, epoch
        return seen

    def apply_marker(self, buffer: memoryview | bytes, position: int, header: BatchHeader) -> None:
        """Closes what its producer has open; `position` is where the control batch begins in the buffer."""
        marker = marker_at(buffer, position, header) if header.producer_id >= 0 else None
        if marker is None:
            return
        producer = self.producers.setdefault(header.producer_id, RangeProducer(header.producer_epoch))
        if self._keep_episodes and producer.open_offset is not None:
            self.episodes.append(_episode(header.producer_id, producer, marker))
        if producer.joined is not None and producer.joined.start_offset == producer.open_offset:
            producer.joined = producer.joined._replace(marker=marker)
        producer.epoch = marker.producer_epoch
        producer.first_marker = producer.first_marker or marker
        producer.last_marker = marker
        producer.closed_offset, producer.open_offset = producer.open_offset, None
        self._open.pop(producer.encoded, None)

    def facts(
        self,
        partition: TopicPartition,
        topic_id: str,
        listed_ms: TimestampMs,
        youngest_epoch: LeaderEpoch | None = None,
    ) -> Iterator[ProducerSeen]:
        """The facts of the range: one for each producer with transactional batches or markers in it.

        `youngest_epoch` is as in RangeReading; None if no listing of the partition is known.
        """
        lowest = as_encoded(youngest_epoch)
        for producer_id, seen in self.producers.items():
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
                last_timestamp_ms=_time(seen.last_timestamp_ms),
                listed_ms=listed_ms,
                joined=seen.joined,
                closed_offset=seen.closed_offset,
                may_be_older=seen.open_offset is not None and as_encoded(seen.leader_epoch) < lowest,
            )


def _time(timestamp_ms: TimestampMs | None) -> TimestampMs | None:
    """The timestamp of a batch; a client may write none."""
    return None if timestamp_ms is None else present(timestamp_ms)


def _episode(producer_id: ProducerId, producer: RangeProducer, marker: Marker) -> Episode:
    assert producer.open_offset is not None
    assert producer.open_epoch is not None
    assert producer.last_offset is not None
    return Episode(
        producer_id=producer_id,
        producer_epoch=producer.open_epoch,
        start_offset=producer.open_offset,
        last_offset=producer.last_offset,
        first_timestamp_ms=_time(producer.opened_ms),
        last_timestamp_ms=_time(producer.last_timestamp_ms),
        marker=marker,
    )
