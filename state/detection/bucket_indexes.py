"""The indexes of a bucket's producers: whom a fact concerns, who is due, and who has been open for longest.

Law: a lookup costs as much as its result and what the batch has changed, however many producers are open. The indexes
are derived from the stored producers alone, so every process has the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, KeysView, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple, TypeVar

from txnwatch.state.detection.proof import BarrierContext
from txnwatch.state.model.facts import PartitionNotice, TransactionalIdGone
from txnwatch.state.model.transaction import CoordinatorView, ProducerState, Span
from txnwatch.state.model.values import (
    NO_TIME,
    DurationMs,
    Offset,
    PartitionOffset,
    ProducerId,
    TimestampMs,
    TopicPartition,
)

# An index of the awaited producers, for facts that name none: by transactional id and by partition.
#
# An awaited producer has an open span or a live transaction. A lookup costs as much as its result, however many
# producers are awaited and however many facts ask. The index is kept from batch to batch beside the agenda, and updated
# with every producer that a batch has changed. Within a batch it is as of the start of the batch. So it may return a
# producer that the fact no longer concerns, which changes nothing; and producers that the batch has already touched
# must be checked in addition.

_Key = TypeVar("_Key")


class Places(NamedTuple):
    """The index keys of a producer.

    Attributes:
        partitions: those with an open span.
        known_by_census: those of them whose span is known only from a census, and that no scan will reach.
        id_in_log: its transactional id, and the partition of the coordinators' log that has the id; None until that log
            has named it.
    """

    partitions: tuple[TopicPartition, ...]
    known_by_census: tuple[TopicPartition, ...]
    id_in_log: tuple[str, TopicPartition] | None


def is_known_by_census(span: Span) -> bool:
    """Whether the partition of the span is not scanned: only a census shows whether it still exists."""
    return span.by_census and not span.is_ahead_of_scan


def places_of(producer: ProducerState) -> Places:
    """The index keys of a producer."""
    view = producer.view
    by_census = tuple(partition for partition, span in producer.spans.items() if is_known_by_census(span))
    return Places(tuple(producer.spans), by_census, (view.transactional_id, view.log) if view is not None else None)


class Awaited:
    """The index of producer ids with an open span or a live transaction; every result is sorted."""

    __slots__ = ("_by_census", "_by_name", "_by_partition", "_places")

    def __init__(self) -> None:
        self._places: dict[ProducerId, Places] = {}
        self._by_partition: dict[TopicPartition, set[ProducerId]] = {}
        self._by_census: dict[TopicPartition, set[ProducerId]] = {}
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
            transactional_id, log = places.id_in_log
            self._by_partition.setdefault(log, set()).add(producer_id)
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
            transactional_id, log = places.id_in_log
            _take_out(self._by_partition, log, producer_id)
            others = tuple(other for other in self._by_name[transactional_id] if other != producer_id)
            if others:
                self._by_name[transactional_id] = others
            else:
                del self._by_name[transactional_id]

    @property
    def partitions(self) -> KeysView[TopicPartition]:
        """The partitions with an open span, and those of the coordinators' log that have an id."""
        return self._by_partition.keys()

    @property
    def known_by_census(self) -> KeysView[TopicPartition]:
        """The data partitions with an open span that is known only from a census."""
        return self._by_census.keys()

    def on(self, partitions: Iterable[TopicPartition]) -> list[ProducerId]:
        """Producers with an open span on one of the partitions, or with their id in one of the coordinators' log."""
        return sorted(set().union(*(self._by_partition.get(partition, ()) for partition in partitions)))

    def log_of(self, producer_id: ProducerId) -> TopicPartition | None:
        """The partition of the coordinators' log that has the producer's id; None if it is not known or not awaited."""
        places = self._places.get(producer_id)
        return places.id_in_log[1] if places is not None and places.id_in_log is not None else None

    def concerned_by(self, fact: PartitionNotice | TransactionalIdGone) -> list[ProducerId]:
        """Producers that the fact may change."""
        if isinstance(fact, TransactionalIdGone):
            return sorted(self._by_name.get(fact.transactional_id, ()))
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
        due: dict[ProducerId, tuple[TimestampMs, ProducerId]] = {}
        while self._heap and self._heap[0][0] <= now_ms:
            entry = heappop(self._heap)
            if self._times.get(entry[1]) == entry[0]:
                due[entry[1]] = entry
        for entry in due.values():
            heappush(self._heap, entry)  # they stay due until `put` sets another time
        return set(due)

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


# Indexes of the open producers, for the places of the open list: by age, and by the lowest open data.
#
# `OpenAges` has producers by age. `LowestData` has the producer with the lowest open start of each partition: if any
# listable producer of this bucket holds the last stable offset of a partition, it is that one. `HolderIndex` has those
# by age. They have listable producers only; and the last two are only in a bucket with more of these than places.
#
# A broker's clock may be ahead of ours by an amount that changes. So the starts that one log partition has stamped have
# a heap of their own. A search merges the heaps.

_SPARE = 64  # old entries that the heaps may have before they are rebuilt
_Heap = list[tuple[TimestampMs, ProducerId]]


class Start(NamedTuple):
    """When something open has begun: by the clock of the leader of a log partition, or by ours (None)."""

    log: TopicPartition | None
    at_ms: TimestampMs


class Age(NamedTuple):
    """Since when (our clock) a producer has something open; the order of the open list, oldest first."""

    since_ms: TimestampMs
    producer_id: ProducerId


def starts_of(producer: ProducerState) -> tuple[Start, ...]:
    """The start of the open data, and that of the live transaction; none if the producer is idle."""
    view = producer.view
    of_data = (Start(None, _data_start_ms(producer)),) if producer.spans else ()
    of_transaction = (Start(view.log, _start_ms(view)),) if view is not None and view.is_live else ()
    return of_data + of_transaction


def age_of(producer: ProducerState, context: BarrierContext) -> Age:
    """The age of a producer that has something open, by its earlier start."""
    view = producer.view
    if view is None or not view.is_live:
        return Age(_data_start_ms(producer), producer.producer_id)
    begun_ms = _start_ms(view) - context.ahead_ms(view)
    return Age(min(begun_ms, _data_start_ms(producer)) if producer.spans else begun_ms, producer.producer_id)


def _data_start_ms(producer: ProducerState) -> TimestampMs:
    return min(span.first_seen_ms for span in producer.spans.values())


def _start_ms(view: CoordinatorView) -> TimestampMs:
    """The start of the transaction; an aborted transaction that was empty has none, and no data."""
    return view.record_timestamp_ms if view.start_ms is None else view.start_ms


class OpenAges:
    """The listable producers by their starts.

    Entries of the heaps that differ from the known starts are old, and are dropped when they reach the top.
    """

    __slots__ = ("_entries", "_heaps", "_starts")

    def __init__(self) -> None:
        self._starts: dict[ProducerId, tuple[Start, ...]] = {}
        self._heaps: dict[TopicPartition | None, _Heap] = {}
        self._entries = 0

    def __len__(self) -> int:
        """How many entries the heaps have, with the old ones."""
        return self._entries

    @property
    def producers(self) -> int:
        """How many producers it has."""
        return len(self._starts)

    def take(self, producer: ProducerState) -> None:
        """Adds a producer, changes its starts, or removes it if it is not listable."""
        if producer.is_listable:
            self.put(producer.producer_id, starts_of(producer))
        else:
            self.drop(producer.producer_id)

    def put(self, producer_id: ProducerId, starts: tuple[Start, ...]) -> None:
        """Adds a producer with its starts, or changes them."""
        if self._starts.get(producer_id) == starts:
            return
        self._starts[producer_id] = starts
        for start in starts:
            heappush(self._heaps.setdefault(start.log, []), (start.at_ms, producer_id))
        self._entries += len(starts)
        if self._entries > 4 * len(self._starts) + _SPARE:
            self._rebuild()

    def drop(self, producer_id: ProducerId) -> None:
        """Removes a producer that is not listable."""
        self._starts.pop(producer_id, None)

    def oldest(self, count: int, context: BarrierContext, *, without: Container[ProducerId]) -> list[Age]:
        """The `count` oldest producers that are not in `without`, oldest first."""
        oldest: dict[ProducerId, Age] = {}
        popped: set[tuple[Start, ProducerId]] = set()
        for age, start in self._pop_by_age(context):
            producer_id = age.producer_id
            entry = start, producer_id
            if start not in self._starts.get(producer_id, ()) or entry in popped:
                self._entries -= 1
                continue
            popped.add(entry)
            if producer_id not in without:
                oldest.setdefault(producer_id, age)
                if len(oldest) == count:
                    break
        for start, producer_id in popped:
            heappush(self._heaps[start.log], (start.at_ms, producer_id))
        return list(oldest.values())

    def _pop_by_age(self, context: BarrierContext) -> Iterator[tuple[Age, Start]]:
        """Takes the entries out of the heaps, oldest first by our clock."""
        merged = [
            (heap[0][0] - ahead_ms, heap[0][1], number, ahead_ms, log)
            for number, (log, heap) in enumerate(self._heaps.items())
            if heap
            for ahead_ms in [_ahead_ms(log, context)]
        ]
        heapify(merged)
        while merged:
            begun_ms, producer_id, number, ahead_ms, log = merged[0]
            heap = self._heaps[log]
            at_ms, _ = heappop(heap)
            if heap:
                heapreplace(merged, (heap[0][0] - ahead_ms, heap[0][1], number, ahead_ms, log))
            else:
                heappop(merged)
            yield Age(begun_ms, producer_id), Start(log, at_ms)

    def _rebuild(self) -> None:
        self._heaps = {}
        for producer_id, starts in self._starts.items():
            for start in starts:
                self._heaps.setdefault(start.log, []).append((start.at_ms, producer_id))
        for heap in self._heaps.values():
            heapify(heap)
        self._entries = sum(len(heap) for heap in self._heaps.values())


def _ahead_ms(log: TopicPartition | None, context: BarrierContext) -> DurationMs:
    return NO_TIME if log is None else context.clocks.ahead_ms(log, context.now_ms)


class LowestData:
    """The producer with the lowest open start of each partition.

    Each partition has a heap of its open starts. Entries that differ from the known places are old, and are dropped
    when they reach the top.
    """

    __slots__ = ("_entries", "_heaps", "_holds", "_lowest", "_open", "_places")

    def __init__(self) -> None:
        self._places: dict[ProducerId, tuple[PartitionOffset, ...]] = {}
        self._heaps: dict[TopicPartition, list[tuple[Offset, ProducerId]]] = {}
        self._lowest: dict[TopicPartition, tuple[Offset, ProducerId]] = {}
        self._holds: dict[ProducerId, int] = {}
        self._entries = self._open = 0

    def __len__(self) -> int:
        """How many entries the heaps have, with the old ones."""
        return self._entries

    def __contains__(self, producer_id: object) -> bool:
        """Whether the producer has the lowest open start of a partition."""
        return producer_id in self._holds

    def put(self, producer_id: ProducerId, places: tuple[PartitionOffset, ...]) -> set[ProducerId]:
        """Sets where a producer has open data; returns those that had the lowest start there, or have it now."""
        before = self._places.get(producer_id, ())
        if before == places:
            return set()
        if places:
            self._places[producer_id] = places
        else:
            del self._places[producer_id]
        concerned = {at for at, _ in before if self._lowest[at][1] == producer_id}
        for place in places:
            if place not in before:
                at, entry = place.partition, (place.offset, producer_id)
                heappush(self._heaps.setdefault(at, []), entry)
                self._entries += 1
                if at not in self._lowest or entry < self._lowest[at]:
                    concerned.add(at)
        self._open += len(places) - len(before)
        moved = {holder for at in concerned for holder in self._find(at)}
        if self._entries > 2 * self._open + _SPARE:
            self._rebuild()
        return moved

    def _find(self, at: TopicPartition) -> Iterator[ProducerId]:
        """Finds the lowest start of a partition; yields the producer that had it, and the one that has it."""
        heap = self._heaps[at]
        while heap and (at, heap[0][0]) not in self._places.get(heap[0][1], ()):
            heappop(heap)
            self._entries -= 1
        before = self._lowest.pop(at, None)
        if heap:
            self._lowest[at] = heap[0]
            self._holds[heap[0][1]] = self._holds.get(heap[0][1], 0) + 1
            yield heap[0][1]
        else:
            del self._heaps[at]
        if before is not None:
            self._holds[before[1]] -= 1
            if not self._holds[before[1]]:
                del self._holds[before[1]]
            yield before[1]

    def _rebuild(self) -> None:
        self._heaps = {}
        for producer_id, places in self._places.items():
            for partition, start in places:
                self._heaps.setdefault(partition, []).append((start, producer_id))
        for heap in self._heaps.values():
            heapify(heap)
        self._entries = self._open


class HolderIndex:
    """The producers with the lowest open start of a partition, by age."""

    __slots__ = ("_ages", "_lowest")

    def __init__(self) -> None:
        self._ages = OpenAges()
        self._lowest = LowestData()

    def put(self, producer: ProducerState, producer_of: Callable[[ProducerId], ProducerState]) -> None:
        """Changes the places of a producer. `producer_of` is asked for those that come after or before it on them."""
        open_at = producer.spans.items() if producer.is_listable else ()
        places = tuple(PartitionOffset(at, span.start_offset) for at, span in open_at)
        moved = self._lowest.put(producer.producer_id, places)
        if producer.producer_id in self._lowest:
            moved.add(producer.producer_id)
        for producer_id in moved:
            if producer_id in self._lowest:
                self._ages.put(producer_id, starts_of(producer_of(producer_id)))
            else:
                self._ages.drop(producer_id)

    def oldest(self, count: int, context: BarrierContext, *, without: Container[ProducerId]) -> list[Age]:
        """As in OpenAges."""
        return self._ages.oldest(count, context, without=without)
