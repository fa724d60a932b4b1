"""What an input partition shows of a group that waits: also if the transaction itself cannot be read."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from support.fake_admin import FakeAdmin
from support.fake_groups import FakeGroups
from support.one_look import a_searcher
from txnwatch.cli import explain_names
from txnwatch.cli.compose import Question
from txnwatch.cli.explain_names import with_waiting_groups
from txnwatch.cli.explanation import ALL_CLEAR, Explanation, of_partition
from txnwatch.state.model.values import CONSUMER_OFFSETS_TOPIC, SpanStart, TopicPartition
from txnwatch.state.telling.commands import Origin
from txnwatch.streaming.admin.groups import UnstableGroups

ORDERS, OFFSETS = TopicPartition("orders", 0), TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)
ORIGIN = Origin("cluster", "a:1")


class World:
    """Two partitions, and the groups that their coordinators return no offset of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.admin, self.groups = FakeAdmin(), FakeGroups()
        for topic in (ORDERS.topic, OFFSETS.topic):
            self.admin.create_topic(topic)
        self.unstable = UnstableGroups((), ())
        answers = SimpleNamespace(unstable=lambda _: self.unstable, waiting=self.groups.waiting)
        monkeypatch.setattr(explain_names, "ClusterGroups", lambda _: answers)
        topics = {OFFSETS.topic: SimpleNamespace(partitions={0: None})}
        cluster: Any = SimpleNamespace(known=SimpleNamespace(topics=topics))
        self.question = Question(cluster, ORIGIN, a_searcher(self.admin, lambda: self.admin.now_ms))

    def hang(self, group: str) -> None:
        owner = self.admin.begin("app", OFFSETS)
        self.admin.lose_markers("app", commit=False)
        (row,) = self.admin.read_partitions([OFFSETS])[OFFSETS].producers
        self.groups.pend(SpanStart(OFFSETS, owner.producer_id, row.start_offset), group, ORDERS)

    def explained(self) -> Explanation:
        found = self.question.searcher.search([ORDERS])
        return with_waiting_groups(self.question, ORDERS, of_partition(ORIGIN, ORDERS, found, self.admin.now_ms))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_group_that_gets_its_offsets_changes_nothing(world: World) -> None:
    world.hang("billing")
    found = world.explained()
    assert (found.state, found.waiting_groups, len(found.text)) == (ALL_CLEAR, (), 1)


def test_a_group_that_waits_makes_the_hang_the_subject(world: World) -> None:
    world.hang("billing")
    world.unstable = UnstableGroups(("billing",), ())
    found = world.explained()
    assert (found.target, found.state, found.waiting_groups) == ("orders-0", "hanging", ("billing",))
    assert found.text[0].startswith("orders-0: all clear. No transaction is open")
    assert any(line.startswith("But consumer group 'billing' waits") for line in found.text)


def test_a_transaction_that_cannot_be_read_is_missing_and_not_absent(world: World) -> None:
    world.hang("billing")
    world.unstable = UnstableGroups(("billing",), ())
    world.admin.problems[OFFSETS] = "READ is missing"
    assert world.explained().state == ALL_CLEAR
    assert world.question.missing == {str(OFFSETS): "READ is missing"}


def test_groups_that_cannot_be_read_are_said_to_be_unknown(world: World) -> None:
    world.unstable = UnstableGroups((), ("DESCRIBE is missing",))
    found = world.explained()
    assert found.text[-1].endswith("wait for their committed offsets of it: DESCRIBE is missing.")
    assert replace(found, text=()).state == ALL_CLEAR
