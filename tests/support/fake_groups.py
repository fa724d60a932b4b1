"""A ConsumerGroups in memory; it passes the same contract suite as the real one."""

from __future__ import annotations

from collections.abc import Iterable

from txnwatch.state.model.ports import GroupOffset, GroupOffsets
from txnwatch.state.model.values import TopicPartition


class FakeGroups:
    """Groups as a test lets them commit.

    Attributes:
        problems: what is in the way of a whole answer.
        hidden: groups whose offsets cannot be read; each is a problem.
        asked: how often it was asked.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.hidden: set[str] = set()
        self.asked = 0
        self._committed: dict[str, dict[TopicPartition, int]] = {}
        self._joined: set[str] = set()

    def commit(self, group_id: str, partition: TopicPartition, offset: int, *, joined: bool = True) -> None:
        """A group commits; one that has not joined does so from outside."""
        self._committed.setdefault(group_id, {})[partition] = offset
        (self._joined.add if joined else self._joined.discard)(group_id)

    def leave(self, group_id: str) -> None:
        """The last member goes."""
        self._joined.discard(group_id)

    def committed_offsets(self, partitions: Iterable[TopicPartition]) -> GroupOffsets:
        """See ConsumerGroups."""
        self.asked += 1
        seen = {name: offsets for name, offsets in self._committed.items() if name not in self.hidden}
        hidden = [f"group {name} is hidden" for name in sorted(self.hidden & self._committed.keys())]
        return GroupOffsets(
            {
                partition: tuple(
                    GroupOffset(name, offsets[partition], name in self._joined)
                    for name, offsets in seen.items()
                    if partition in offsets
                )
                for partition in partitions
            },
            (*self.problems, *hidden),
        )
