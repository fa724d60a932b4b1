"""When each producer with something open is to be looked at next, by producer id.

Law: finding who is due costs the number of those who are, not of all. A heap has every (time, producer id) that was
ever put; an entry that the agenda contradicts is old and is dropped when it comes to the top. The heap is made from
the times alone, so nobody has to keep it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush

_SPARE = 64  # old entries in the heap that are not worth a new one


class Agenda(Mapping[int, int]):
    """Producer id -> our clock in ms; 0 is at every barrier.

    Attributes:
        changed: producer ids whose time is another since `settle`, those that left included.
    """

    __slots__ = ("_heap", "_times", "changed")

    def __init__(self, times: Mapping[int, int] | None = None) -> None:
        self._times: dict[int, int] = dict(times or {})
        self._heap: list[tuple[int, int]] = []
        self.changed: set[int] = set(self._times)
        self._sort()

    def __getitem__(self, producer_id: int) -> int:
        return self._times[producer_id]

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self._times

    def __iter__(self) -> Iterator[int]:
        return iter(self._times)

    def __len__(self) -> int:
        return len(self._times)

    def __repr__(self) -> str:
        return f"Agenda({self._times})"

    def put(self, producer_id: int, when_ms: int) -> None:
        """The producer is to be looked at then, and not before."""
        if self._times.get(producer_id) != when_ms:
            self._times[producer_id] = when_ms
            self.changed.add(producer_id)
            heappush(self._heap, (when_ms, producer_id))
            if len(self._heap) > 2 * len(self._times) + _SPARE:
                self._sort()

    def drop(self, producer_id: int) -> None:
        """The producer has nothing open."""
        if self._times.pop(producer_id, None) is not None:
            self.changed.add(producer_id)

    def due(self, now_ms: int) -> set[int]:
        """Who is to be looked at by now."""
        found: dict[int, tuple[int, int]] = {}
        while self._heap and self._heap[0][0] <= now_ms:
            entry = heappop(self._heap)
            if self._times.get(entry[1]) == entry[0]:
                found[entry[1]] = entry
        for entry in found.values():
            heappush(self._heap, entry)  # until they are put again, they stay due
        return set(found)

    def next_ms(self, default: int) -> int:
        """When the first producer is to be looked at."""
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else default

    def settle(self) -> None:
        """From now on `changed` tells what is otherwise than it is now."""
        self.changed.clear()

    def _sort(self) -> None:
        self._heap = [(when_ms, producer_id) for producer_id, when_ms in self._times.items()]
        heapify(self._heap)
