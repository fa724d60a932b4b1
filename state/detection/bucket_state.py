"""The state that a bucket's producers share between batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple, TypeVar

from txnwatch.state.detection.open_ages import HolderIndex, OpenAges, starts_of
from txnwatch.state.detection.reading import READ_WHOLE, Lack, Reading, Standing
from txnwatch.state.model.clocks import Clocks
from txnwatch.state.model.facts import PartitionNotice, TransactionalIdGone
from txnwatch.state.model.findings import OpenTransaction, OpenTransactions
from txnwatch.state.model.transaction import ProducerState, Span
from txnwatch.state.model.values import (
    TRANSACTION_STATE_TOPIC,
    BarrierNumber,
    BrokerId,
    DurationMs,
    ProducerId,
    TimestampMs,
    TopicPartition,
)

# An index of the awaited producers, for facts that name none: by transactional id, partition and log partition.
#
# An awaited producer has an open span or a live transaction. Law: a lookup costs as much as its result, however many
# producers are awaited and however many facts ask. The index is kept from batch to batch beside the agenda, and updated
# with every producer that a batch has changed. Within a batch it is as of the start of the batch. So it may return a
# producer that the fact no longer concerns, which changes nothing; and producers that the batch has already touched
# must be checked in addition.

_Key = TypeVar("_Key")


class Places(NamedTuple):
    """The index keys of a producer.

    Attributes:
        known_by_census: those of the partitions whose span is known only from a census, and that no scan will reach.
        id_in_log: its transactional id, and the number of the partition of the coordinators' log that has the id; None
            until that log has named it.
    """

    partitions: tuple[TopicPartition, ...]
    known_by_census: tuple[TopicPartition, ...]
    id_in_log: tuple[str, int] | None


def is_known_by_census(span: Span) -> bool:
    """Whether the partition of the span is not scanned: only a census shows whether it still exists."""
    return span.by_census and not span.is_ahead_of_scan


def places_of(producer: ProducerState) -> Places:
    """The index keys of a producer."""
    view = producer.view
    by_census = tuple(partition for partition, span in producer.spans.items() if is_known_by_census(span))
    return Places(
        tuple(producer.spans), by_census, (view.transactional_id, view.log_partition) if view is not None else None
    )


class Awaited:
    """The index of producer ids with an open span or a live transaction; every result is sorted."""

    __slots__ = ("_by_census", "_by_log", "_by_name", "_by_partition", "_places")

    def __init__(self) -> None:
        self._places: dict[ProducerId, Places] = {}
        self._by_partition: dict[TopicPartition, set[ProducerId]] = {}
        self._by_census: dict[TopicPartition, set[ProducerId]] = {}
        self._by_log: dict[int, set[ProducerId]] = {}
        self._by_name: dict[
            str, tuple[ProducerId, ...]
        ] = {}  # usually one: a set for each would use most of the memory

    def put(self, producer_id: ProducerId, places: Places) -> None:
        """Adds the producer, or moves it to its new keys."""
        before = self._places.get(producer_id)
        if before == places:
            return
        if before is not None:
            self._leave(producer_id, before)
        self._places[producer_id] = places
        for partition in places.partitions:
            self._by_partition.setdefault(partition, set()).add(producer_id)
        for partition in places.known_by_census:
            self._by_census.setdefault(partition, set()).add(producer_id)
        if places.id_in_log is not None:
            transactional_id, log_partition = places.id_in_log
            self._by_log.setdefault(log_partition, set()).add(producer_id)
            named = self._by_name.get(transactional_id, ())
            self._by_name[transactional_id] = (*named, producer_id)

    def drop(self, producer_id: ProducerId) -> None:
        """Removes a producer that has nothing open or live."""
        before = self._places.pop(producer_id, None)
        if before is not None:
            self._leave(producer_id, before)

    def _leave(self, producer_id: ProducerId, places: Places) -> None:
        for partition in places.partitions:
            _take_out(self._by_partition, partition, producer_id)
        for partition in places.known_by_census:
            _take_out(self._by_census, partition, producer_id)
        if places.id_in_log is not None:
            transactional_id, log_partition = places.id_in_log
            _take_out(self._by_log, log_partition, producer_id)
            others = tuple(one for one in self._by_name[transactional_id] if one != producer_id)
            if others:
                self._by_name[transactional_id] = others
            else:
                del self._by_name[transactional_id]

    @property
    def partitions(self) -> KeysView[TopicPartition]:
        """The data partitions with an open span."""
        return self._by_partition.keys()

    @property
    def known_by_census(self) -> KeysView[TopicPartition]:
        """The data partitions with an open span that is known only from a census."""
        return self._by_census.keys()

    def on(self, partitions: Iterable[TopicPartition]) -> list[ProducerId]:
        """Producers with an open span on one of the data partitions."""
        return sorted(set().union(*(self._by_partition.get(partition, ()) for partition in partitions)))

    def in_logs(self, log_partitions: Iterable[int]) -> list[ProducerId]:
        """Producers whose id is in one of these partitions of the coordinators' log."""
        return sorted(set().union(*(self._by_log.get(log_partition, ()) for log_partition in log_partitions)))

    def log_of(self, producer_id: ProducerId) -> int | None:
        """The partition of the coordinators' log that has the producer's id; None if it is not known or not awaited."""
        places = self._places.get(producer_id)
        return places.id_in_log[1] if places is not None and places.id_in_log is not None else None

    def concerned_by(self, fact: PartitionNotice | TransactionalIdGone) -> list[ProducerId]:
        """Producers that the fact may change."""
        if isinstance(fact, TransactionalIdGone):
            return sorted(self._by_name.get(fact.transactional_id, ()))
        if fact.partition.topic == TRANSACTION_STATE_TOPIC:
            return self.in_logs([fact.partition.partition])
        return self.on([fact.partition])


def _take_out(index: dict[_Key, set[ProducerId]], key: _Key, producer_id: ProducerId) -> None:
    index[key].discard(producer_id)
    if not index[key]:
        del index[key]


# The agenda: when each producer with something open is evaluated next.
#
# Law: the cost of finding the due producers depends on their number, not on the number of all. A heap has every (time,
# producer id) that was ever put. An entry that differs from the agenda is old, and is dropped when it reaches the top.
# The heap is built from the times alone, so it need not be stored.

_SPARE_LOOKS = 64  # old entries that the heap may have before it is rebuilt


class Agenda(Mapping[ProducerId, TimestampMs]):
    """Producer id -> our clock in ms; 0 is at every barrier.

    Attributes:
        changed: producer ids whose time has changed since `settle`, including those that were removed.
    """

    __slots__ = ("_heap", "_times", "changed")

    def __init__(self, times: Mapping[ProducerId, TimestampMs] | None = None) -> None:
        self._times: dict[ProducerId, TimestampMs] = dict(times or {})
        self._heap: list[tuple[TimestampMs, ProducerId]] = []
        self.changed: set[ProducerId] = set(self._times)
        self._sort()

    def __getitem__(self, producer_id: ProducerId) -> TimestampMs:
        return self._times[producer_id]

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self._times

    def __iter__(self) -> Iterator[ProducerId]:
        return iter(self._times)

    def __len__(self) -> int:
        return len(self._times)

    def __repr__(self) -> str:
        return f"Agenda({self._times})"

    def put(self, producer_id: ProducerId, when_ms: TimestampMs) -> None:
        """Sets when the producer is evaluated next."""
        if self._times.get(producer_id) != when_ms:
            self._times[producer_id] = when_ms
            self.changed.add(producer_id)
            heappush(self._heap, (when_ms, producer_id))
            if len(self._heap) > 2 * len(self._times) + _SPARE_LOOKS:
                self._sort()

    def drop(self, producer_id: ProducerId) -> None:
        """Removes a producer that has nothing open."""
        if self._times.pop(producer_id, None) is not None:
            self.changed.add(producer_id)

    def due(self, now_ms: TimestampMs) -> set[ProducerId]:
        """The producers that are due at `now_ms`."""
        found: dict[ProducerId, tuple[TimestampMs, ProducerId]] = {}
        while self._heap and self._heap[0][0] <= now_ms:
            entry = heappop(self._heap)
            if self._times.get(entry[1]) == entry[0]:
                found[entry[1]] = entry
        for entry in found.values():
            heappush(self._heap, entry)  # they stay due until `put` sets another time
        return set(found)

    def next_ms(self, default: TimestampMs) -> TimestampMs:
        """When the first producer is due; `default` if there is none."""
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else default

    def settle(self) -> None:
        """Clears `changed`."""
        self.changed.clear()

    def _sort(self) -> None:
        self._heap = [(when_ms, producer_id) for producer_id, when_ms in self._times.items()]
        heapify(self._heap)


@dataclass(slots=True)
class SharedState:
    """The part of a bucket's state that is stored field by field: each field that has changed, as a whole.

    Attributes:
        clocks: the brokers' clocks.
        assumed_ms: the highest lower bound of each broker's clock for which all due times are right
            (bucket_clocks.py).
        policy_digest: a digest of the policy of the last barrier, with the brokers' scan interval.
        states: how many awaited producer ids are in each state.
        open_list_digest, ends_digest: a digest of the last emitted open list, and of the last emitted offsets of
            partitions that only a census watches; None if they may not have arrived.
    """

    clocks: Clocks = field(default_factory=Clocks)
    assumed_ms: dict[BrokerId, DurationMs] = field(default_factory=dict)
    policy_digest: int | None = None
    states: dict[str, int] = field(default_factory=dict)
    open_list_digest: int | None = None
    ends_digest: int | None = None


@dataclass(slots=True)
class BucketState(SharedState):
    """The state that a bucket's producers share between batches.

    Attributes:
        agenda: producer ids with an open span or a live transaction -> when (our clock, ms) the next look is due.
        followed: the oldest open transactions, by producer id.
        holding: for each partition, the transaction with the lowest open start in this bucket; without those in
            `followed`, and the oldest of them.
        readings: what is known about the reading of a partition, of a topic or of the coordinators' log. A partition
            that is not here is read to its listed end.
        number: the number of this bucket.
        awaited: the index of the producers on the agenda; None until it is used.
        ages: the same producers by age; None while `followed` has a place for each, and until it is used.
        holders: those with the lowest open start of a partition by age; None as `ages`.
        shown: the open list of which `open_list_digest` is the digest, if it was made in this process.
        barrier: the last barrier evaluated in this process, None before the first; the same one again is another
            attempt.

    Of `agenda`, `followed`, `holding` and `readings` the entries that have changed are stored; the other six are never
    stored.
    """

    agenda: Agenda = field(default_factory=Agenda)
    followed: dict[ProducerId, OpenTransaction] = field(default_factory=dict)
    holding: dict[ProducerId, OpenTransaction] = field(default_factory=dict)
    readings: dict[TopicPartition, Reading] = field(default_factory=dict)
    number: int = 0
    awaited: Awaited | None = field(default=None, compare=False, repr=False)
    ages: OpenAges | None = field(default=None, compare=False, repr=False)
    holders: HolderIndex | None = field(default=None, compare=False, repr=False)
    shown: OpenTransactions | None = field(default=None, compare=False, repr=False)
    barrier: BarrierNumber | None = field(default=None, compare=False, repr=False)

    def forget_emitted(self) -> None:
        """What was emitted may not have arrived: there may be a new driver, which has none of it yet."""
        self.open_list_digest = self.ends_digest = None

    def is_another_attempt(self, barrier_number: BarrierNumber) -> bool:
        """Whether this process has evaluated the barrier before: then the output of that attempt may be lost."""
        return self.barrier is not None and barrier_number <= self.barrier

    def reading(self, partition: TopicPartition) -> Reading:
        """What is known about the reading of a partition."""
        return self.readings.get(partition, READ_WHOLE)

    def keep_reading(self, partition: TopicPartition, reading: Reading) -> None:
        """Sets what is known about the reading of a partition."""
        if reading == READ_WHOLE:
            self.readings.pop(partition, None)
        else:
            self.readings[partition] = reading

    def lacking(self, *lacks: Lack) -> list[TopicPartition]:
        """The partitions whose reading lacks one of these, in order."""
        wanted = set(lacks)
        return sorted(
            at for at, known in self.readings.items() if known.lacks and not known.lacks.keys().isdisjoint(wanted)
        )

    def standing(self) -> list[tuple[TopicPartition, Standing]]:
        """The last stable offsets below the ends of their partitions, in order."""
        return sorted((at, known.standing) for at, known in self.readings.items() if known.standing is not None)

    def index(self, producer: ProducerState) -> None:
        """Updates the indexes that are in use with a producer that has changed."""
        if not producer.is_awaited:
            self.unindex(producer.producer_id)
            return
        if self.awaited is not None:
            self.awaited.put(producer.producer_id, places_of(producer))
        if self.ages is not None:
            self.ages.put(producer.producer_id, starts_of(producer))

    def unindex(self, producer_id: ProducerId) -> None:
        """Removes a producer that has nothing open from the indexes."""
        if self.awaited is not None:
            self.awaited.drop(producer_id)
        if self.ages is not None:
            self.ages.drop(producer_id)
