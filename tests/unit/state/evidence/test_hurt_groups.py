"""Who stands still because of open data: by one look, at a bounded price, and nothing is left out without a word."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from support.fake_admin import FakeAdmin
from support.fake_groups import FakeGroups
from support.incidents import an_event
from support.one_look import a_searcher
from txnwatch.cli import explain_names
from txnwatch.cli.compose import Question
from txnwatch.cli.explain_names import with_groups_behind
from txnwatch.cli.explanation import OPEN, Explanation
from txnwatch.state.evidence import hurt_groups
from txnwatch.state.evidence.hurt_groups import GroupsAround, Hold, groups_of, holds_of, hurt_by
from txnwatch.state.model.incident import AffectedGroup, ConnectSetting, ConnectUse, GroupState, WaitingGroup
from txnwatch.state.model.values import CONSUMER_OFFSETS_TOPIC, SpanStart, TopicPartition
from txnwatch.state.telling.commands import Origin
from txnwatch.state.telling.hurt import affected_lines, held_text, waiting_lines

ORDERS, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
OFFSETS = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)
LATE = Explanation("app", "late", ends_by_itself="unknown", text=("app: Ongoing.",))


class World:
    """A transaction on two partitions and on the offsets' topic, and the groups around it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.admin, self.groups = FakeAdmin(), FakeGroups()
        self.admin.create_topic("orders", 2)
        self.admin.create_topic(OFFSETS.topic)
        self.owner = self.admin.begin("app", ORDERS, OTHER, OFFSETS)
        monkeypatch.setattr(explain_names, "ClusterGroups", lambda _: self.groups)
        cluster: Any = SimpleNamespace()
        self.question = Question(cluster, Origin("cluster", "a:1"), a_searcher(self.admin, lambda: self.admin.now_ms))

    @property
    def holds(self) -> list[Hold]:
        return holds_of(self.owner.producer_id, self.admin.read_partitions([ORDERS, OTHER, OFFSETS]).values())

    def look(self) -> GroupsAround:
        return groups_of(self.groups, self.holds, self.admin.now_ms)

    def explained(self, of: Explanation = LATE) -> Explanation:
        readings = self.admin.read_partitions([ORDERS, OTHER, OFFSETS]).values()
        return with_groups_behind(self.question, of, [self.owner.producer_id], readings)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_the_groups_behind_a_late_transaction_are_named_with_their_lag(world: World) -> None:
    world.groups.commit("billing", ORDERS, 0)
    span = next(hold.start for hold in world.holds if hold.start.partition == OFFSETS)
    world.groups.pend(span, "stream", OTHER)
    found = world.explained()
    assert (found.affected_groups, found.waiting_groups) == (("billing",), ("stream",))
    text = " ".join(found.text)
    end = world.admin.read_partitions([ORDERS])[ORDERS].high_watermark
    assert f"these groups stop here; they have reached this offset: 'billing' (at 0, lag {end})." in text
    assert "read_committed consumers of orders-0 stop at offset 0" in text
    assert "Consumer group 'stream' waits: its committed offsets of orders-1 are pending in this transaction." in text


def test_of_the_topics_of_connect_the_one_that_its_workers_read_first_is_named(world: World) -> None:
    for topic, setting in (("orders", ConnectSetting.CONFIGS), (OFFSETS.topic, ConnectSetting.STATUS)):
        world.groups.connect[topic] = ConnectUse(topic=topic, setting=setting)
    found = hurt_by(world.holds, world.look()).added_to(an_event())
    assert found.connect == world.groups.connect["orders"]


def test_a_transaction_that_ends_in_time_costs_no_request(world: World) -> None:
    world.groups.commit("billing", ORDERS, 0)
    usual = replace(LATE, state=OPEN, ends_by_itself="yes")
    assert world.explained(usual) == usual
    assert world.groups.asked == 0


def test_a_group_that_has_committed_nothing_is_named_if_it_is_assigned_the_partition(world: World) -> None:
    world.groups.join("first-deployment", ORDERS)
    found = world.explained()
    assert found.affected_groups == ("first-deployment",)
    assert (
        "If they read with read_committed, these groups stop here; their members are assigned this partition and have "
        "committed nothing of it: 'first-deployment'."
    ) in found.text


def test_a_group_that_rebalances_is_not_known(world: World) -> None:
    world.groups.unassigned.add("moving")
    assert world.look().problems == (
        "what the members of 'moving' are assigned is not known: `explain` of the group says why",
    )
    assert "No consumer group" not in world.explained().text[-1]


def test_nobody_is_an_answer_and_not_known_is_another(world: World) -> None:
    assert world.explained().text[-1] == "No consumer group with a committed offset stands still because of it."
    world.groups.problems.append("DESCRIBE on the group is missing")
    assert world.explained().text[-1] == "Not all groups are known: DESCRIBE on the group is missing."


def test_data_that_is_open_behind_another_transaction_stops_nobody_yet(world: World) -> None:
    world.groups.commit("billing", ORDERS, 0)
    second = world.admin.begin("second", ORDERS)
    readings = list(world.admin.read_partitions([ORDERS]).values())
    holds = {one.producer_id: holds_of(one.producer_id, readings) for one in (world.owner, second)}
    groups = groups_of(world.groups, [*holds[world.owner.producer_id], *holds[second.producer_id]], 0)
    assert hurt_by(holds[world.owner.producer_id], groups).affected_names == ("billing",)
    assert hurt_by(holds[second.producer_id], groups).affected_names == ()


def test_a_partition_that_cannot_be_read_holds_nobody(world: World) -> None:
    world.admin.problems[ORDERS] = "NO_LEADER"
    assert [hold.start.partition for hold in world.holds] == [OTHER, OFFSETS]


def test_nothing_open_costs_no_request() -> None:
    groups = FakeGroups()
    assert groups_of(groups, [], 0) == GroupsAround()
    assert groups.asked == 0


def test_the_groups_are_asked_for_once_whatever_is_open(world: World) -> None:
    world.look()
    assert world.groups.asked == 1


def test_the_partitions_that_hide_the_most_are_asked_for_and_the_rest_is_said(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.groups.commit("billing", ORDERS, 0)
    world.groups.commit("audit", OTHER, 0)
    monkeypatch.setattr(hurt_groups, "MOST_PARTITIONS", 1)
    holds = [
        Hold(SpanStart(one, 7, 0), replace(reading, last_stable_offset=0, high_watermark=hidden))
        for (one, reading), hidden in zip(world.admin.read_partitions([ORDERS, OTHER]).items(), (3, 9), strict=True)
    ]
    found = groups_of(world.groups, holds, 0)
    assert {at: [one.group_id for one in groups] for at, groups in found.affected.items()} == {OTHER: ["audit"]}
    assert found.problems == ("those of 1 more partition were not read: explain one of them",)


SECOND_OFFSETS = TopicPartition(CONSUMER_OFFSETS_TOPIC, 1)


def waits(name: str, *partitions: str) -> WaitingGroup:
    return WaitingGroup(group_id=name, partitions=partitions)


def at(name: str, offset: int) -> AffectedGroup:
    return AffectedGroup(group_id=name, state=GroupState.AT_RISK, committed_offset=offset, hidden_lag=9)


def test_only_the_readers_of_a_users_topic_are_said_to_stop() -> None:
    assert held_text(ORDERS, 5, 6, 1) == (
        "read_committed consumers of orders-0 stop at offset 5: 1 record up to 6 are hidden from them, and the log "
        "cleaner stops there too."
    )
    assert "read_committed consumers" not in held_text(SECOND_OFFSETS, 5, 7, 2)


def test_a_group_that_waits_is_named_with_its_partitions_and_what_the_application_shows() -> None:
    first, last = waiting_lines([waits("billing", "orders-0", "orders-1")])
    assert first == (
        "Consumer group 'billing' waits: its committed offsets of orders-0, orders-1 are pending in this transaction."
    )
    assert "UNSTABLE_OFFSET_COMMIT" in last


def test_five_groups_and_partitions_are_named_and_the_others_counted() -> None:
    partitions = [f"orders-{number}" for number in range(9)]
    *named, more, _ = waiting_lines([waits(f"group-{number}", *partitions) for number in range(7)])
    assert len(named) == 5
    assert "orders-4 and 4 more are pending" in named[0]
    assert more.startswith("2 more groups wait")


def test_nothing_is_said_without_a_group() -> None:
    assert list(waiting_lines([])) == []
    assert list(affected_lines([], 5)) == []


def test_the_groups_at_the_last_stable_offset_and_those_below_are_apart() -> None:
    reached, coming = affected_lines([at("audit", 5), at("billing", 3)], 5)
    assert reached.endswith("they have reached this offset: 'audit' (at 5, lag 9).")
    assert coming.endswith("they have not reached it yet: 'billing' (at 3, lag 9).")
