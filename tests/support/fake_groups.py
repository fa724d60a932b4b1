"""A ConsumerGroups in memory; it passes the same contract suite as the real one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from txnwatch.state.model.incident import ConnectUse, WaitingGroup
from txnwatch.state.model.ports import GroupOffset, GroupOffsets, WaitingGroups
from txnwatch.state.model.values import CONSUMER_OFFSETS_TOPIC, SpanStart, TopicPartition


class FakeGroups:
    """Groups as a test lets them commit.

    Attributes:
        problems: what is in the way of a whole answer.
        hidden: groups whose offsets cannot be read; each is a problem.
        asked: how often it was asked.
        unassigned: groups of which it is not known what their members are assigned.
        connect: by topic, what Connect keeps in it.
        unread: spans whose records cannot be read; each is a problem.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.hidden: set[str] = set()
        self.asked = 0
        self._committed: dict[str, dict[TopicPartition, int]] = {}
        self.unread: set[SpanStart] = set()
        self._joined: set[str] = set()
        self._assigned: dict[str, set[TopicPartition]] = {}
        self.unassigned: set[str] = set()
        self.connect: dict[str, ConnectUse] = {}
        self._pending: dict[SpanStart, dict[str, set[TopicPartition]]] = {}

    def commit(self, group_id: str, partition: TopicPartition, offset: int, *, joined: bool = True) -> None:
        """A group commits; one that has not joined does so from outside."""
        self._committed.setdefault(group_id, {})[partition] = offset
        (self._joined.add if joined else self._joined.discard)(group_id)

    def join(self, group_id: str, partition: TopicPartition) -> None:
        """A member of a group is assigned a partition, and commits nothing."""
        self._joined.add(group_id)
        self._assigned.setdefault(group_id, set()).add(partition)

    def leave(self, group_id: str) -> None:
        """The last member goes."""
        self._joined.discard(group_id)
        self._assigned.pop(group_id, None)

    def _new(self, partition: TopicPartition) -> Iterator[GroupOffset]:
        for name, partitions in self._assigned.items():
            is_shown = name not in self.hidden | self.unassigned
            if is_shown and partition in partitions and partition not in self._committed.get(name, {}):
                yield GroupOffset(name, None, has_members=True)

    def committed_offsets(self, partitions: Iterable[TopicPartition]) -> GroupOffsets:
        """See ConsumerGroups."""
        self.asked += 1
        seen = {name: offsets for name, offsets in self._committed.items() if name not in self.hidden}
        hidden = [f"group {name} is hidden" for name in sorted(self.hidden & self._committed.keys())]
        return GroupOffsets(
            {
                partition: (
                    *(
                        GroupOffset(name, offsets[partition], name in self._joined)
                        for name, offsets in seen.items()
                        if partition in offsets
                    ),
                    *self._new(partition),
                )
                for partition in partitions
            },
            (*self.problems, *hidden),
            tuple(sorted(self.unassigned)),
            self.connect,
        )

    def pend(self, span: SpanStart, group_id: str, partition: TopicPartition) -> None:
        """A group's offset of a partition is pending in an open span on `__consumer_offsets`."""
        self._pending.setdefault(span, {}).setdefault(group_id, set()).add(partition)

    def end(self, span: SpanStart) -> None:
        """A marker ends the span."""
        self._pending.pop(span, None)

    def waiting(self, spans: Iterable[SpanStart]) -> WaitingGroups:
        """See ConsumerGroups."""
        wanted = [span for span in spans if span.partition.topic == CONSUMER_OFFSETS_TOPIC]
        return WaitingGroups(
            {
                span: tuple(
                    WaitingGroup(group_id=name, partitions=tuple(map(str, sorted(partitions))))
                    for name, partitions in sorted(self._pending.get(span, {}).items())
                )
                for span in wanted
                if span not in self.unread
            },
            tuple(f"{span.partition} was not read" for span in wanted if span in self.unread),
        )
