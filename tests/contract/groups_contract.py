"""What every ConsumerGroups answers: the suite that the fake and the real one pass alike."""

from __future__ import annotations

from typing import Protocol

from support.topics import unique
from support.waiting import eventually
from txnwatch.state.model.incident import WaitingGroup
from txnwatch.state.model.ports import ConsumerGroups, GroupOffset
from txnwatch.state.model.values import SpanStart, TopicPartition

_IN_TIME_S = 20.0


class GroupStage(Protocol):
    """Where groups commit."""

    groups: ConsumerGroups

    def topic(self, partitions: int) -> list[TopicPartition]:
        """A topic that is ready."""

    def commit(self, group_id: str, partition: TopicPartition, offset: int) -> None:
        """Commits without joining."""

    def join(self, group_id: str, partition: TopicPartition, offset: int) -> None:
        """Joins, commits, and stays."""

    def assign(self, group_id: str, partition: TopicPartition) -> None:
        """Joins, is assigned the partition, commits nothing, and stays."""

    def leave(self, group_id: str) -> None:
        """Who joined leaves."""

    def hang(self, group_id: str, partition: TopicPartition) -> SpanStart:
        """The group's offset of the partition is pending in a transaction that hangs."""

    def end(self, span: SpanStart) -> None:
        """A marker ends such a transaction."""


class GroupsContract:
    """The suite."""

    def test_committed_offsets_of_groups_are_returned_for_each_partition(self, stage: GroupStage) -> None:
        first, second, third = stage.topic(3)
        one, other = unique("one"), unique("other")
        stage.commit(one, first, 5)
        stage.commit(one, second, 6)
        stage.commit(other, first, 7)

        found = stage.groups.committed_offsets([first, second, third])

        assert found.problems == ()
        assert set(found.offsets) == {first, second, third}
        assert set(found.offsets[first]) == {GroupOffset(one, 5, False), GroupOffset(other, 7, False)}
        assert set(found.offsets[second]) == {GroupOffset(one, 6, False)}
        assert found.offsets[third] == ()

    def test_a_group_with_members_counts_as_such_until_they_are_gone(self, stage: GroupStage) -> None:
        (partition,) = stage.topic(1)
        name = unique("joined")
        stage.join(name, partition, 3)

        def has_members() -> bool | None:
            offsets = stage.groups.committed_offsets([partition]).offsets[partition]
            return next((one.has_members for one in offsets if one[:2] == (name, 3)), None)

        eventually(lambda: has_members() is True, _IN_TIME_S, "the group with its member")
        stage.leave(name)
        eventually(lambda: has_members() is False, _IN_TIME_S, "the group without")

    def test_a_group_that_is_assigned_a_partition_and_has_committed_nothing_is_returned_until_it_leaves(
        self, stage: GroupStage
    ) -> None:
        first, second = stage.topic(2)
        name = unique("new")
        stage.assign(name, first)

        def answered() -> tuple[GroupOffset, ...]:
            found = stage.groups.committed_offsets([first, second])
            assert found.problems == ()
            return tuple(one for at in (first, second) for one in found.offsets[at] if one.group_id == name)

        eventually(lambda: GroupOffset(name, None, True) in answered(), _IN_TIME_S, "the group with its partition")
        assert stage.groups.committed_offsets([first]).unassigned == ()
        stage.leave(name)
        eventually(lambda: answered() == (), _IN_TIME_S, "the group without")

    def test_the_last_commit_counts(self, stage: GroupStage) -> None:
        (partition,) = stage.topic(1)
        name = unique("twice")
        stage.commit(name, partition, 9)
        stage.commit(name, partition, 4)
        assert [one.committed_offset for one in stage.groups.committed_offsets([partition]).offsets[partition]] == [4]

    def test_a_group_waits_for_pending_offsets_until_the_marker_is_written(self, stage: GroupStage) -> None:
        (partition,) = stage.topic(1)
        name = unique("waits")
        stage.commit(name, partition, 3)
        span = stage.hang(name, partition)
        expected = (WaitingGroup(group_id=name, partitions=(str(partition),)),)
        assert stage.groups.waiting([span]) == ({span: expected}, ())
        stage.end(span)
        assert stage.groups.waiting([span]) == ({span: ()}, ())

    def test_no_group_waits_for_a_transaction_on_another_topic(self, stage: GroupStage) -> None:
        (partition,) = stage.topic(1)
        assert stage.groups.waiting([SpanStart(partition, 1, 0)]) == ({}, ())

    def test_nothing_asked_is_nothing_answered(self, stage: GroupStage) -> None:
        found = stage.groups.committed_offsets([])
        assert (dict(found.offsets), found.problems) == ({}, ())
