"""One partition with its replication: what a leader has, what is committed, and what a failover leaves of it.

Law: nothing below the high watermark is lost by a clean failover; an unclean one keeps a prefix. A leader answers
ListOffsets only once its high watermark has reached the offset its epoch began at, and Fetch compares the epoch
of what was read before with its own (KIP-320). The entries that retention has taken stay in memory, below `start`:
the leader's producer state outlives them.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from simulation.encoding import Body, Data, Mark, encode
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.wire.fetch_response import Divergence

OFFSET_OUT_OF_RANGE, UNKNOWN_SERVER_ERROR = 1, -1
NO_RECORDS: list[WorldBatch] = []
_end_of = attrgetter("next_offset")


class WorldBatch(NamedTuple):
    """One batch of a log."""

    offset: int
    next_offset: int
    leader_epoch: int
    body: Body

    def encoded(self) -> bytes:
        return encode(self.offset, self.leader_epoch, self.body)


class Fetched(NamedTuple):
    """What a leader answers to Fetch for one partition."""

    error_code: int = 0
    divergence: Divergence | None = None
    entries: list[WorldBatch] = NO_RECORDS


@dataclass(slots=True)
class PartitionLog:
    """The leader's log; `follower_*` is the copy of its one follower, and the high watermark that the follower has.

    `committed` is what the high watermark has reached, also where a new leader does not know it yet. `unreadable` are
    the offsets of batches that its disk, or remote storage, does not give; another leader has them. `former` is what
    the leader before an unclean election had: entries and epochs; `has_returned` is whether it led again with them.
    `reigns` counts the leaders; one that has lost its power, and its memory, is another one.
    """

    partition: TopicPartition
    topic_id: str
    entries: list[WorldBatch] = field(default_factory=list)
    start: int = 0
    end: int = 0
    high_watermark: int = 0
    committed: int = 0
    follower_end: int = 0
    follower_watermark: int = 0
    epoch: int = 0
    epoch_start: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    has_leader: bool = True
    cleaned_to: int = 0
    unreadable: set[int] = field(default_factory=set)
    former: tuple[list[WorldBatch], list[tuple[int, int]]] | None = None
    has_returned: bool = False
    reigns: int = 0

    @property
    def is_listable(self) -> bool:
        """Whether the leader's high watermark can be trusted: else it answers OFFSET_NOT_AVAILABLE."""
        return self.has_leader and self.high_watermark >= self.epoch_start

    def append(self, body: Body) -> int:
        offset = self.end
        self.end += body.count if isinstance(body, Data) else 1
        self.entries.append(WorldBatch(offset, self.end, self.epoch, body))
        return offset

    def replicate(self) -> None:
        """The follower catches up; it learns of the new high watermark one fetch later."""
        if self.has_leader:
            self.follower_watermark = self.high_watermark
            self.follower_end = self.high_watermark = self.committed = self.end

    def copy(self) -> None:
        """The follower has copied everything, but the leader has not seen that yet: nothing is committed."""
        if self.has_leader:
            self.follower_end = self.end

    def fail_over(self) -> None:
        """A clean election: the follower has everything that is committed, but may have an older high watermark."""
        self._lead(self.follower_end)
        self.high_watermark = min(self.follower_watermark, self.end)

    def fail_over_unclean(self, to: int) -> None:
        """A replica that was left behind leads, alone in sync: what it has is the log, and committed."""
        former = list(self.entries), list(self.epochs)
        self._lead(to)
        self.former = former
        self.high_watermark = self.follower_end = self.follower_watermark = self.committed = self.end

    def lose_power(self, to: int) -> None:
        """A power failure of all replicas up to Kafka 3.9: the tail is gone, and the leader leads on in its epoch."""
        self._cut(to)
        self.high_watermark = self.follower_end = self.follower_watermark = self.committed = self.end

    def return_with_own_log(self) -> None:
        """The leader before the last unclean election comes back, by another one, and brings the log that it had."""
        assert self.former is not None
        (self.entries, self.epochs), self.former = self.former, None
        self.has_returned = True
        self._lead(self.entries[-1].next_offset if self.entries else 0)
        self.high_watermark = self.follower_end = self.follower_watermark = self.committed = self.end

    def _lead(self, to: int) -> None:
        self.epoch += 1
        self._cut(to)

    def _cut(self, to: int) -> None:
        self.entries = [entry for entry in self.entries if entry.next_offset <= to]
        self.end = max(self.start, to)
        self.reigns += 1
        self.epoch_start = self.end
        self.epochs = [(epoch, start) for epoch, start in self.epochs if start < self.end]
        if not self.epochs or self.epochs[-1][0] != self.epoch:
            self.epochs.append((self.epoch, self.end))
        self.follower_end = min(self.follower_end, self.end)
        self.has_leader = True
        self.unreadable.clear()
        self.rebuild()

    def rebuild(self) -> None:
        """Rebuilds the leader's other state from its log."""

    def boundaries(self) -> list[int]:
        """Offsets at which an unclean failover could cut the log: behind a batch, as compaction keeps the last one.

        Never inside what is compacted: a replica that does not have the later record has not dropped the earlier.
        """
        begin = [0] if self.entries and self.entries[0].offset == 0 else []
        ends = (*begin, *(entry.next_offset for entry in self.entries[:-1]))
        return [end for end in ends if end >= max(self.start, self.cleaned_to)]

    def fetch(self, position: int, last_epoch: int | None, most: int) -> Fetched:
        """The leader's answer to a consumer, at most `most` batches; it has checked that there is a leader."""
        if last_epoch is not None:
            agreed = self._end_of_epoch(last_epoch)
            if agreed is None or position < self.start:
                return Fetched(OFFSET_OUT_OF_RANGE)
            if agreed[0] < last_epoch or agreed[1] < position:
                return Fetched(0, Divergence(*agreed))
        if not self.start <= position <= self.end:
            return Fetched(OFFSET_OUT_OF_RANGE)
        first, behind_last = (bisect_right(self.entries, to, key=_end_of) for to in (position, self.high_watermark))
        found = self.entries[first : min(behind_last, first + most)]
        readable = list(itertools.takewhile(lambda entry: entry.offset not in self.unreadable, found))
        return Fetched(entries=readable) if readable or not found else Fetched(UNKNOWN_SERVER_ERROR)

    def follower(self, *, is_uncut: bool) -> PartitionLog:
        """What a follower has; after an unclean election, one that `is_uncut` still has the log of the former leader.

        It knows a leader epoch only if it has a batch of it.
        """
        entries = [entry for entry in self.entries if entry.next_offset <= self.follower_end]
        epochs, high_watermark = self.epochs, self.follower_watermark
        if is_uncut and self.former is not None:
            entries, epochs = self.former
            high_watermark = entries[-1].next_offset if entries else 0
        end = entries[-1].next_offset if entries else self.start
        known = [(epoch, start) for epoch, start in epochs if start < end]
        replica = PartitionLog(self.partition, self.topic_id, entries, self.start, end, min(high_watermark, end))
        replica.epochs = known or [(-1, 0)]
        return replica

    def _end_of_epoch(self, asked: int) -> tuple[int, int] | None:
        """The largest epoch not above the asked one, and where it ends (`LeaderEpochFileCache.endOffsetFor`)."""
        if asked == self.epochs[-1][0]:
            return asked, self.end
        if asked > self.epochs[-1][0]:
            return None
        floor = [epoch for epoch, _ in self.epochs if epoch <= asked]
        above = next(start for epoch, start in self.epochs if epoch > asked)
        return (floor[-1] if floor else asked), above


@dataclass(slots=True)
class Producer:
    """A leader's entry for one producer id; `coordinator_epoch` is that of the last marker."""

    epoch: int
    open_start: int | None = None
    coordinator_epoch: int | None = None
    last_timestamp_ms: int | None = None


@dataclass(slots=True)
class DataPartition(PartitionLog):
    """A partition of user data: `producers` is the leader's producer state, markers above the watermark included.

    Which producers are open at any moment is what DescribeProducers answers: a census reads it from here. If it
    `has_offsets`, its batches have the base sequence 0, as those that a group coordinator writes.
    """

    producers: dict[int, Producer] = field(default_factory=dict)
    has_offsets: bool = False
    closing: dict[tuple[int, int], int] = field(default_factory=dict)
    _unstable: tuple[int, int, int] = (-1, -1, 0)  # leader epoch, high watermark, and the first offset not stable there

    def open_spans(self) -> Iterator[tuple[int, int]]:
        """(producer id, start) of everything open, also where the marker is not committed yet."""
        for producer_id, producer in self.producers.items():
            if producer.open_start is not None:
                yield producer_id, producer.open_start
        if self.closing:
            self.closing = {span: at for span, at in self.closing.items() if at >= self.committed}
            yield from self.closing

    def produce(self, body: Data) -> bool:
        """A transactional batch; refused only where a newer epoch has been seen."""
        known = self.producers.get(body.producer_id)
        if not self.has_leader or (known is not None and body.producer_epoch < known.epoch):
            return False
        self._apply(self.append(body), body)
        return True

    def write_much(self, batches: int) -> None:
        """Batches that are of no transaction."""
        for _ in range(batches if self.has_leader else 0):
            self.append(Data(-1, -1))

    def mark(self, body: Mark, *, is_version_2: bool) -> bool:
        """A marker from a coordinator; refused for an old epoch of the producer or of the coordinator."""
        known = self.producers.get(body.producer_id)
        if known is not None:
            strict = is_version_2 and known.open_start is not None
            if body.producer_epoch < known.epoch or (strict and body.producer_epoch == known.epoch):
                return False
            if known.coordinator_epoch is not None and body.coordinator_epoch < known.coordinator_epoch:
                return False
        self._apply(self.append(body), body)
        return True

    def rebuild(self) -> None:
        self.producers, self.closing = {}, {}
        for entry in self.entries:
            self._apply(entry.offset, entry.body)

    def _apply(self, offset: int, body: Body) -> None:
        if body.producer_id < 0:
            return
        if isinstance(body, Data):
            known = self.producers.setdefault(body.producer_id, Producer(body.producer_epoch))
            known.epoch, known.last_timestamp_ms = body.producer_epoch, body.timestamp_ms
            known.open_start = offset if known.open_start is None else known.open_start
        elif isinstance(body, Mark):
            known = self.producers.setdefault(body.producer_id, Producer(body.producer_epoch))
            if known.open_start is not None:
                self.closing[body.producer_id, known.open_start] = offset
            known.epoch, known.open_start = body.producer_epoch, None
            known.coordinator_epoch = body.coordinator_epoch

    def last_written(self, producer_id: int, until_ms: int) -> int:
        """The offset of a producer's last batch with a timestamp up to a time; -1 if there is none."""
        own = (entry for entry in self.entries if entry.body.producer_id == producer_id)  # type: ignore[union-attr]
        written = [one.offset for one in own if isinstance(one.body, Data) and one.body.timestamp_ms <= until_ms]
        return max(written, default=-1)

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed consumers stop: a transaction is stable once its marker is committed."""
        if self._unstable[:2] != (self.epoch, self.high_watermark):  # below the watermark an epoch changes nothing
            self._unstable = (self.epoch, self.high_watermark, self._first_unstable())
        return min(max(self.start, self._unstable[-1]), self.high_watermark)

    def _first_unstable(self) -> int:
        unstable: dict[int, int] = {}
        for entry in self.entries:
            body = entry.body
            if entry.offset >= self.high_watermark:
                break
            if isinstance(body, Mark):
                unstable.pop(body.producer_id, None)
            elif isinstance(body, Data) and body.producer_id >= 0:
                unstable.setdefault(body.producer_id, entry.offset)
        return min([*unstable.values(), self.high_watermark])


def elect(log: PartitionLog) -> set[tuple[int, int]]:
    """A clean election; the spans, as (producer id, start), whose markers were not replicated and are lost."""
    before = _open_on_leader(log)
    log.fail_over()
    return _open_on_leader(log) - before


def _open_on_leader(log: PartitionLog) -> set[tuple[int, int]]:
    producers = log.producers.items() if isinstance(log, DataPartition) else ()
    return {(producer_id, known.open_start) for producer_id, known in producers if known.open_start is not None}
