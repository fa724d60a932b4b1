"""Finds the partitions whose last stable offset stands, from two listings. Pure: no I/O, no clock.

A transaction that is open stops the readers of its partition at the last stable offset. What a last stable offset has
passed is over. So of a partition that is not read, two listings tell whether something stands there: if its last
stable offset is below its end, and is where it was at the look before, the leader is asked what is open (a census).
While it stands, it is asked again after growing pauses, because more can be open above it. Once it has moved, the
leader is asked one more time, so that the end of what it has shown is seen.

Law: a marker raises the end of a log. So where the end has not moved, the last stable offset has not either, and is not
requested. A partition in which nothing is written costs one answer a look.

Law: under one leader epoch a last stable offset does not go back, and no two transactions begin at one offset. So what
a census has shown to begin there is open for as long as the offset stands above the start of the log (`StandsAt`,
state/detection/proof.py).

Apart: the lister asks the leaders, and this is pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from txnwatch.state.model.facts import StandsAt
from txnwatch.state.model.pauses import doubled
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.values import BarrierNumber, LeaderEpoch, Offset, Problem, TopicPartition
from txnwatch.streaming.source.scan_budget import Extent

LONGEST_PAUSE: Final = 8  # looks; short, because a leader may not have answered, and more may hang above what stands


class StandingLook(NamedTuple):
    """Where a partition stood at the last look.

    Attributes:
        topic_id: of the partition's topic.
        since: the barrier of the first look at which the last stable offset was there.
        times: how often its leader was asked since then.
        due: the look from which on the leader is asked again.
    """

    topic_id: str
    end: Offset
    epoch: LeaderEpoch | None
    stable: Offset
    since: BarrierNumber
    times: int = 0
    due: int = 0

    @property
    def is_below_end(self) -> bool:
        """Whether readers of committed data do not reach the end."""
        return self.stable < self.end

    @property
    def place(self) -> tuple[str, LeaderEpoch | None, Offset]:
        """The last stable offset, of one log under one leader."""
        return self.topic_id, self.epoch, self.stable


class StandingLooks:
    """The last look at each partition. It lives in the driver, beside the lister; after a start it is empty.

    Attributes:
        due: the partitions whose leaders are to be asked what is open, after the last look.
    """

    def __init__(self) -> None:
        self.due: set[TopicPartition] = set()
        self._looks: dict[TopicPartition, StandingLook] = {}
        self._number = 0  # of the look; a barrier that is left out is a look, too

    @property
    def extents(self) -> dict[TopicPartition, Extent]:
        """From where to where each partition would be read, if its scan began at the last look."""
        return {at: Extent(look.stable, look.end) for at, look in self._looks.items()}

    def moved(self, ends: Mapping[TopicPartition, ListedOffset]) -> list[TopicPartition]:
        """The partitions whose last stable offset has to be requested, because their end is another one."""
        return [at for at, end in ends.items() if not self._is_same_end(self._looks.get(at), end)]

    def take(
        self,
        ends: Mapping[TopicPartition, ListedOffset],
        stable: Mapping[TopicPartition, ListedOffset | Problem],
        watched: Mapping[TopicPartition, str],
        barrier: BarrierNumber,
    ) -> dict[TopicPartition, StandsAt]:
        """Takes the look of a barrier; returns where it stands.

        Args:
            ends: the listed ends of the partitions that have answered.
            stable: the answers for those that `moved` has named, requested after `ends`.
            watched: all partitions that are looked at, with their topic ids; a look at another one is forgotten.
            barrier: the number of the barrier.
        """
        self._looks = {at: look for at, look in self._looks.items() if at in watched}
        self.due, standing = set(), {}
        self._number += 1
        for at, end in ends.items():
            before, answer = self._looks.get(at), stable.get(at)
            latest = answer if answer is not None else before
            if latest is None or isinstance(latest, Problem):
                continue  # the leader has not answered: the next look compares with the one before
            stands_at = latest.stable if isinstance(latest, StandingLook) else latest.offset
            now = StandingLook(watched[at], end.offset, end.leader_epoch, stands_at, barrier)
            if before is not None and before.is_below_end and before.place == now.place:
                now = self._standing(at, before, now)
                standing[at] = StandsAt(now.stable, now.epoch, now.since)
            elif before is not None and before.times:
                self.due.add(at)
            self._looks[at] = now
        return standing

    def _standing(self, at: TopicPartition, before: StandingLook, now: StandingLook) -> StandingLook:
        now = now._replace(since=before.since, times=before.times, due=before.due)
        if self._number < before.due:
            return now
        self.due.add(at)
        pause = doubled(1, LONGEST_PAUSE, before.times)
        return now._replace(times=before.times + 1, due=self._number + pause)

    @staticmethod
    def _is_same_end(before: StandingLook | None, end: ListedOffset) -> bool:
        return before is not None and (before.end, before.epoch) == (end.offset, end.leader_epoch)
