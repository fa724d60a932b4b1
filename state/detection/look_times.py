"""The agenda: when each producer with something open is evaluated next.

Law: the cost of finding the due producers depends on their number, not on the number of all. A heap has every (time,
producer id) that was ever put. An entry that differs from the agenda is old, and is dropped when it reaches the top.
The heap is built from the times alone, so it need not be stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush

from txnwatch.state.model.ids import ProducerId
from txnwatch.state.model.quantities import TimestampMs

_SPARE = 64  # old entries that the heap may have before it is rebuilt


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
            if len(self._heap) > 2 * len(self._times) + _SPARE:
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
