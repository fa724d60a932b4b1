"""A group is clear only if what it reads is known, was read, and is held by nothing."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from support.fake_admin import FakeAdmin
from support.fake_groups import FakeGroups
from support.one_look import a_searcher
from txnwatch.cli import explain_names
from txnwatch.cli.compose import Question
from txnwatch.cli.explain_names import of_group
from txnwatch.cli.explain_topics import of_topic
from txnwatch.cli.explanation import ALL_CLEAR, Explanation
from txnwatch.owners.owner_table import owners_of
from txnwatch.state.evidence.screening import OwnerViews
from txnwatch.state.model.values import CONSUMER_OFFSETS_TOPIC, SpanStart, TopicPartition, log_numbered
from txnwatch.state.telling.commands import Origin
from txnwatch.streaming.admin.assignments import REBALANCES
from txnwatch.streaming.admin.groups import GroupPositions, KnownGroup

ORDERS, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
OFFSETS = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)
NAME = "billing"
TABLE = owners_of({"owner": [{"team": "shop", "name": "Shop", "contact": "#shop", "topics": ["orders"]}]}, "file")
MEMBER, EMPTY = (
    KnownGroup(NAME, 1, "Stable", "consumer", "classic"),
    KnownGroup(NAME, 1, "Empty", "consumer", "classic"),
)
SHARE = KnownGroup(NAME, 1, "Stable", "share", "share")


class World:
    """Two partitions, and what the group's coordinator answers about it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.admin, self.groups = FakeAdmin(), FakeGroups()
        self.admin.create_topic("orders", 2)
        self.positions = GroupPositions({}, ())
        answers = SimpleNamespace(offsets_of=lambda _: self.positions, waiting=self.groups.waiting)
        monkeypatch.setattr(explain_names, "ClusterGroups", lambda _: answers)
        self.hidden: dict[str, str] = {}
        monkeypatch.setattr(explain_names, "hidden_topics", lambda *_: self.hidden)
        self.admin.create_topic(OFFSETS.topic)
        topics = {
            name: SimpleNamespace(partitions=dict.fromkeys(range(count)), is_hidden=False)
            for name, count in (("orders", 2), (OFFSETS.topic, 1))
        }
        known = SimpleNamespace(topics=topics, info=lambda at: at if at in self.admin.partitions else None)
        cluster: Any = SimpleNamespace(known=known)
        views = OwnerViews(epochs={log_numbered(0): 0})
        searcher = a_searcher(self.admin, lambda: self.admin.now_ms, read_log=lambda _: views)
        self.question = Question(cluster, Origin("cluster", "a:1", owners=TABLE), searcher)

    def hang(self, partition: TopicPartition, name: str = "app") -> None:
        self.admin.begin(name, partition)
        self.admin.lose_markers(name, commit=False)

    def pend(self, name: str) -> None:
        """A hang on the partition with the offsets of the group, in which an offset is pending."""
        owner = self.admin.begin(name, OFFSETS)
        self.admin.lose_markers(name, commit=False)
        row = self.admin.read_partitions([OFFSETS])[OFFSETS].open_transaction(owner.producer_id)
        assert row is not None
        self.groups.pend(SpanStart(OFFSETS, owner.producer_id, row.start_offset), NAME, ORDERS)

    def explained(self, group: KnownGroup = MEMBER) -> Explanation:
        return of_group(self.question, group)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_member_on_a_partition_that_hangs_at_its_start_is_hurt_although_nothing_was_committed(world: World) -> None:
    world.hang(ORDERS)
    world.positions = GroupPositions({}, (), frozenset({ORDERS, OTHER}))
    found = world.explained()
    assert (found.state, found.affected_groups) == ("hanging", (NAME,))
    assert "Its members are assigned 2 partitions of which it has committed nothing." in found.text[0]
    assert "A member has it, and nothing was committed; read_committed stops at 0." in " ".join(found.text)


def test_a_group_beyond_the_hang_is_told_of_it_and_not_hurt(world: World) -> None:
    world.hang(ORDERS)
    world.positions = GroupPositions({ORDERS: 1}, ())
    found = world.explained()
    assert (found.state, found.affected_groups) == ("hanging", ())


def test_a_group_is_clear_if_all_that_it_reads_was_read(world: World) -> None:
    world.positions = GroupPositions({ORDERS: 0}, (), frozenset({OTHER}))
    found = world.explained()
    assert (found.state, world.question.missing) == (ALL_CLEAR, {})
    assert found.text[-1].startswith("All clear: ")


@pytest.mark.parametrize("problem", [REBALANCES, "offsets of consumer groups: DESCRIBE on the group is missing"])
def test_a_group_of_which_not_all_is_known_is_never_clear(world: World, problem: str) -> None:
    world.positions = GroupPositions({ORDERS: 0}, (problem,))
    found = world.explained()
    assert found.state == "unproven"
    assert "All clear" not in " ".join(found.text)
    assert world.question.missing == {f"consumer group {NAME!r}": problem}


def test_a_group_whose_partition_cannot_be_read_is_never_clear(world: World) -> None:
    world.positions = GroupPositions({ORDERS: 0}, ())
    world.admin.problems[ORDERS] = "NO_LEADER"
    assert (world.explained().state, world.question.missing) == ("unproven", {"orders-0": "NO_LEADER"})


def test_a_group_that_reads_a_hidden_topic_is_never_clear(world: World) -> None:
    world.positions = GroupPositions({ORDERS: 0, TopicPartition("secret", 0): 5}, ())
    world.hidden = {"secret": "TOPIC_AUTHORIZATION_FAILED"}
    assert world.explained().state == "unproven"
    assert world.question.missing == {"topic secret": "TOPIC_AUTHORIZATION_FAILED"}


def test_a_share_group_that_reads_uncommitted_is_stopped_by_nothing(world: World) -> None:
    world.positions = GroupPositions({}, (), is_never_stopped=True)
    found = world.explained(SHARE)
    assert (found.state, world.question.missing) == (ALL_CLEAR, {})
    assert "so no transaction stops it." in found.text[0]
    assert found.text[-1] == "All clear: no transaction stops it.", "it may read what is open"


def test_a_share_group_at_a_hang_is_told_of_it(world: World) -> None:
    world.hang(ORDERS)
    world.positions = GroupPositions({ORDERS: 0}, ())
    found = world.explained(SHARE)
    assert (found.state, found.affected_groups) == ("hanging", (NAME,))
    assert "It is at offset 0; read_committed stops at 0." in " ".join(found.text)


@pytest.mark.parametrize("group", [EMPTY, SHARE])
def test_a_group_of_which_nothing_shows_what_it_reads_is_never_clear(world: World, group: KnownGroup) -> None:
    found = world.explained(group)
    assert found.state == "unproven"
    assert found.text[-1].endswith("whether a transaction stops it is not known.")
    assert list(world.question.missing) == [f"which partitions group {NAME} reads"], "the exit code is not 0"


def a_group(world: World) -> Explanation:
    world.positions = GroupPositions({ORDERS: 0, OTHER: 0}, ())
    return world.explained()


def a_topic(world: World) -> Explanation:
    found = of_topic(world.question, "orders")
    assert found is not None
    return found


BOTH = pytest.mark.parametrize("ask", [a_group, a_topic])
AT_1 = "`txnwatch explain --topic orders --partition 1 --bootstrap-server a:1`."


@BOTH
def test_all_hangs_are_named_each_with_the_command_and_whom_to_call(
    world: World, ask: Callable[[World], Explanation]
) -> None:
    world.hang(ORDERS, "first")
    world.hang(OTHER, "second")
    world.hang(OTHER, "third")
    found = ask(world)
    text = "\n".join(found.text)
    assert (found.state, found.transactional_id) == ("hanging", "first")
    assert "\nHANGING: orders-0 from offset 0, transactional id 'first', producer id " in text
    for start, name in ((0, "second"), (1, "third")):
        line = next(one for one in found.text if f"'{name}'" in one)
        assert line.startswith(f"Also HANGING: orders-1 from offset {start}, transactional id '{name}', producer id ")
        assert line.endswith(f", call Shop (#shop): {AT_1}")


@BOTH
def test_the_worst_is_the_subject_wherever_it_is(world: World, ask: Callable[[World], Explanation]) -> None:
    world.admin.begin("healthy", ORDERS)
    world.hang(OTHER, "second")
    found = ask(world)
    assert (found.state, found.transactional_id) == ("hanging", "second")
    assert any(line.startswith("Also open: orders-0 from offset 0, transactional id 'healthy'") for line in found.text)


@BOTH
def test_the_answer_about_many_hangs_is_bounded(world: World, ask: Callable[[World], Explanation]) -> None:
    for number in range(40):
        world.hang(OTHER, f"app-{number}")
    found = ask(world)
    assert sum("HANGING" in line for line in found.text) == 1 + 5
    assert found.text[-1].startswith("And 34 more (34 of them hang): `txnwatch find-hanging ")


def test_all_transactions_with_pending_offsets_are_named(world: World) -> None:
    world.pend("first")
    world.pend("second")
    world.hang(OTHER, "third")
    found = a_group(world)
    assert (found.state, found.transactional_id, found.waiting_groups) == ("hanging", "first", (NAME,))
    also = [line for line in found.text if line.startswith("Also HANGING: ")]
    assert [("'second'" in one, "'third'" in one) for one in also] == [(True, False), (False, True)]
