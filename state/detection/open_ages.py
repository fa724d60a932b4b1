"""Indexes of the open producers of a bucket, for the places of the open list: by age, and by the lowest open data.

`OpenAges` has producers by age. `LowestData` has the producer with the lowest open start of each partition: if any
producer of this bucket holds the last stable offset of a partition, it is that one. `HolderIndex` has those by age.

Law: finding the next ones costs as much as the list and what the batch has changed, however many producers are open.
Only a bucket with more open producers than places has the indexes. They are derived from the stored producers alone, so
every process finds the same ones. A broker's clock may be ahead of ours by an amount that changes. So the starts that
one log partition has stamped have a heap of their own. A search merges the heaps.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from txnwatch.state.detection.proof import BarrierContext
from txnwatch.state.model.transaction import CoordinatorView, ProducerState
from txnwatch.state.model.values import NO_TIME, DurationMs, Offset, ProducerId, TimestampMs, TopicPartition

_SPARE = 64  # old entries that the heaps may have before they are rebuilt
_Heap = list[tuple[TimestampMs, ProducerId]]


class Start(NamedTuple):
    """When something open has begun: by the clock of the leader of a log partition, or by ours (None)."""

    log_partition: int | None
    at_ms: TimestampMs


class Age(NamedTuple):
    """Since when (our clock) a producer has something open; the order of the open list, oldest first."""

    since_ms: TimestampMs
    producer_id: ProducerId


def starts_of(producer: ProducerState) -> tuple[Start, ...]:
    """The start of the open data, and that of the live transaction; none if the producer is idle."""
    view = producer.view
    of_data = (Start(None, _data_start_ms(producer)),) if producer.spans else ()
    of_transaction = (Start(view.log_partition, _start_ms(view)),) if view is not None and view.is_live else ()
    return of_data + of_transaction


def age_of(producer: ProducerState, context: BarrierContext) -> Age:
    """The age of a producer that has something open, by its earlier start."""
    view = producer.view
    if view is None or not view.is_live:
        return Age(_data_start_ms(producer), producer.producer_id)
    begun_ms = _start_ms(view) - _ahead_ms(view.log_partition, context)
    return Age(min(begun_ms, _data_start_ms(producer)) if producer.spans else begun_ms, producer.producer_id)


def _data_start_ms(producer: ProducerState) -> TimestampMs:
    return min(span.first_seen_ms for span in producer.spans.values())


def _start_ms(view: CoordinatorView) -> TimestampMs:
    """The start of the transaction; an aborted transaction that was empty has none, and no data."""
    return view.record_timestamp_ms if view.start_ms is None else view.start_ms


class OpenAges:
    """The open producers by their starts.

    Entries of the heaps that differ from the known starts are old, and are dropped when they reach the top.
    """

    __slots__ = ("_entries", "_heaps", "_starts")

    def __init__(self) -> None:
        self._starts: dict[ProducerId, tuple[Start, ...]] = {}
        self._heaps: dict[int | None, _Heap] = {}
        self._entries = 0

    def __len__(self) -> int:
        """How many entries the heaps have, with the old ones."""
        return self._entries

    def put(self, producer_id: ProducerId, starts: tuple[Start, ...]) -> None:
        """Adds a producer with its starts, or changes them."""
        if self._starts.get(producer_id) == starts:
            return
        self._starts[producer_id] = starts
        for start in starts:
            heappush(self._heaps.setdefault(start.log_partition, []), (start.at_ms, producer_id))
        self._entries += len(starts)
        if self._entries > 4 * len(self._starts) + _SPARE:
            self._rebuild()

    def drop(self, producer_id: ProducerId) -> None:
        """Removes a producer that has nothing open."""
        self._starts.pop(producer_id, None)

    def oldest(
        self, count: int, context: BarrierContext, *, without: Container[ProducerId], before: Age | None = None
    ) -> list[Age]:
        """The `count` oldest producers that are not in `without` and are before `before`, oldest first."""
        found: dict[ProducerId, Age] = {}
        popped: set[tuple[Start, ProducerId]] = set()
        for age, start in self._pop_by_age(context):
            producer_id = age.producer_id
            entry = start, producer_id
            if start not in self._starts.get(producer_id, ()) or entry in popped:
                self._entries -= 1
                continue
            popped.add(entry)
            if before is not None and age >= before:
                break
            if producer_id not in without:
                found.setdefault(producer_id, age)
                if len(found) == count:
                    break
        for start, producer_id in popped:
            heappush(self._heaps[start.log_partition], (start.at_ms, producer_id))
        return list(found.values())

    def _pop_by_age(self, context: BarrierContext) -> Iterator[tuple[Age, Start]]:
        """Takes the entries out of the heaps, oldest first by our clock."""
        merged = [
            (heap[0][0] - ahead_ms, heap[0][1], number, ahead_ms, log_partition)
            for number, (log_partition, heap) in enumerate(self._heaps.items())
            if heap
            for ahead_ms in [_ahead_ms(log_partition, context)]
        ]
        heapify(merged)
        while merged:
            begun_ms, producer_id, number, ahead_ms, log_partition = merged[0]
            heap = self._heaps[log_partition]
            at_ms, _ = heappop(heap)
            if heap:
                heapreplace(merged, (heap[0][0] - ahead_ms, heap[0][1], number, ahead_ms, log_partition))
            else:
                heappop(merged)
            yield Age(begun_ms, producer_id), Start(log_partition, at_ms)

    def _rebuild(self) -> None:
        self._heaps = {}
        for producer_id, starts in self._starts.items():
            for start in starts:
                self._heaps.setdefault(start.log_partition, []).append((start.at_ms, producer_id))
        for heap in self._heaps.values():
            heapify(heap)
        self._entries = sum(len(heap) for heap in self._heaps.values())


def _ahead_ms(log_partition: int | None, context: BarrierContext) -> DurationMs:
    return NO_TIME if log_partition is None else context.clocks.ahead_ms(log_partition, context.now_ms)


_Places = tuple[tuple[TopicPartition, Offset], ...]


class LowestData:
    """The producer with the lowest open start of each partition.

    Each partition has a heap of its open starts. Entries that differ from the known places are old, and are dropped
    when they reach the top.
    """

    __slots__ = ("_entries", "_heaps", "_holds", "_lowest", "_open", "_places")

    def __init__(self) -> None:
        self._places: dict[ProducerId, _Places] = {}
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

    def put(self, producer_id: ProducerId, places: _Places) -> set[ProducerId]:
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
                at, entry = place[0], (place[1], producer_id)
                heappush(self._heaps.setdefault(at, []), entry)
                self._entries += 1
                if at not in self._lowest or entry < self._lowest[at]:
                    concerned.add(at)
        self._open += len(places) - len(before)
        moved = {one for at in concerned for one in self._find(at)}
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

    def put(self, producer: ProducerState, known: Callable[[ProducerId], ProducerState]) -> None:
        """Changes the places of a producer. `known` is asked for those that come after it, or before it, on them."""
        places = tuple((at, span.start_offset) for at, span in producer.spans.items())
        moved = self._lowest.put(producer.producer_id, places)
        if producer.producer_id in self._lowest:
            moved.add(producer.producer_id)
        for one in moved:
            if one in self._lowest:
                self._ages.put(one, starts_of(known(one)))
            else:
                self._ages.drop(one)

    def oldest(self, count: int, context: BarrierContext, *, without: Container[ProducerId]) -> list[Age]:
        """As in OpenAges."""
        return self._ages.oldest(count, context, without=without)
