"""An index of the open producers of a bucket by age, for the free places of the open list.

It has every awaited producer, and only a bucket with more of them than places has it. Law: finding the next ones costs
as much as the list and what the batch has changed, however many producers are open. The index is derived from the
stored producers alone, so every process finds the same ones. A broker's clock may be ahead of ours by an amount that
changes. So the starts that one log partition has stamped have a heap of their own. A search merges the heaps.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from txnwatch.state.detection.barrier_context import BarrierContext
from txnwatch.state.model.ids import ProducerId
from txnwatch.state.model.quantities import NO_TIME, DurationMs, TimestampMs
from txnwatch.state.model.transaction import CoordinatorView, ProducerState

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


def starts_of(producer: ProducerState) -> Iterator[Start]:
    """The start of the open data, and that of the live transaction; none if the producer is idle."""
    if producer.spans:
        yield Start(None, _data_start_ms(producer))
    view = producer.view
    if view is not None and view.is_live:
        yield Start(view.log_partition, _start_ms(view))


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

    def put(self, producer: ProducerState) -> None:
        """Adds the producer, or changes its starts."""
        starts = tuple(starts_of(producer))
        if self._starts.get(producer.producer_id) == starts:
            return
        self._starts[producer.producer_id] = starts
        for start in starts:
            heappush(self._heaps.setdefault(start.log_partition, []), (start.at_ms, producer.producer_id))
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
