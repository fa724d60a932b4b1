"""How long a read waits for each of many ranges, and when the rest of a range becomes a gap.

A leader that serves our other ranges first, or throttles txnwatch, has not failed: the patience of a range ends only if
its leader sends nothing. If a leader reports a few times in a row that it cannot read its log, the rest is a gap at
once, because the other ranges of a task must not wait for it.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from txnwatch.state.model.ids import BrokerId, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.range_read import RangeRead

_MOST_FAILURES = 3


@dataclass(slots=True)
class FetchRound:
    """The result of one round of Fetch requests.

    Attributes:
        by_leader: the ranges that each leader was asked for.
        problems: errors that may pass.
        unreadable: partitions whose leader reports that it cannot read its log.
    """

    by_leader: dict[BrokerId, list[RangeRead]] = field(default_factory=dict)
    problems: dict[TopicPartition, str] = field(default_factory=dict)
    unreadable: set[TopicPartition] = field(default_factory=set)


class RangePatience:
    """How long each range has had no progress, and how often in a row its leader could not read it."""

    def __init__(self, reads: list[RangeRead], seconds: float) -> None:
        """The patience of a range begins when it is first asked for."""
        self._seconds = seconds
        self._since: dict[int, float] = {}
        self._places = {id(read): read.place for read in reads}
        self._failures: Counter[int] = Counter()

    def extend(self, seconds: float) -> None:
        """Extends every patience by a time in which we chose to ask for nothing."""
        for read in self._since:
            self._since[read] += seconds

    def take(self, cluster: Cluster, asked: list[RangeRead], done: FetchRound) -> None:
        """Evaluates a round; a range whose patience has ended becomes a gap from its position on."""
        now = time.monotonic()
        moved = {id(read) for read in asked if read.place != self._places[id(read)]}
        for leader, reads in done.by_leader.items():
            throttled_s = cluster.throttled_s(leader)
            is_busy = throttled_s > 0 or any(id(read) in moved for read in reads)
            for read in reads:
                if id(read) in moved or (is_busy and read.partition not in done.problems):
                    self._since[id(read)] = now + throttled_s
        for read in asked:
            self._places[id(read)] = read.place
            self._since.setdefault(id(read), now)
            self._failures[id(read)] = self._failures[id(read)] + 1 if read.partition in done.unreadable else 0
            is_over = now - self._since[id(read)] > self._seconds or self._failures[id(read)] >= _MOST_FAILURES
            if is_over and read.needs_fetch:
                read.gap(done.problems.get(read.partition, "the leader sent nothing"))
