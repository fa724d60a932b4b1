"""An id that is idle or has expired is never clear while a write of it hangs where no log names it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from support.fake_admin import FakeAdmin
from support.one_look import a_searcher
from txnwatch.cli import open_anywhere
from txnwatch.cli.compose import Question
from txnwatch.cli.explanation import Explanation
from txnwatch.cli.open_anywhere import OpenAnywhere, with_strays
from txnwatch.state.evidence.screening import OwnerViews
from txnwatch.state.model.values import TopicPartition, log_numbered
from txnwatch.state.telling.commands import Origin

NAME = "checkout"
IDLE = Explanation(NAME, "idle", transactional_id=NAME, text=(f"{NAME}: Empty.",))
LATE = Explanation(NAME, "late", transactional_id=NAME, text=(f"{NAME}: Ongoing.",))


class World:
    """Three partitions, of which the id has never written to the last one within a transaction."""

    def __init__(self) -> None:
        self.admin = FakeAdmin()
        self.partitions = self.admin.create_topic("orders", 3)
        numbers: dict[int, None] = dict.fromkeys(range(3))
        topics = {
            "orders": SimpleNamespace(partitions=numbers),
            "__transaction_state": SimpleNamespace(partitions={0: None}),
        }
        cluster: Any = SimpleNamespace(known=SimpleNamespace(topics=topics))
        views = OwnerViews(epochs={log_numbered(0): 0})
        searcher = a_searcher(self.admin, lambda: self.admin.now_ms, read_log=lambda _: views)
        self.question = Question(cluster, Origin("cluster", "a:1"), searcher)
        self.owner = self.admin.init(NAME).producer_id

    def look(self) -> OpenAnywhere:
        return open_anywhere.open_anywhere(self.question, [self.owner])

    def explained(self, of: Explanation = IDLE) -> Explanation:
        return with_strays(self.question, of, self.look())


@pytest.fixture
def world() -> World:
    return World()


def test_an_id_that_has_nothing_open_says_where_it_looked(world: World) -> None:
    found = world.explained()
    assert (found.state, found.text[-1]) == ("idle", "Nothing of it is open on any of the 3 partitions that were read.")
    assert world.question.missing == {}


def test_a_write_that_no_log_names_is_found_and_is_the_subject(world: World) -> None:
    world.admin.write(world.partitions[2], world.owner)
    found = world.explained()
    assert (found.target, found.state, found.transactional_id) == (NAME, "hanging", NAME)
    assert found.text[:2] == (f"{NAME}: Empty.", "orders-2: HANGING.")
    assert found.next is not None


def test_what_hangs_too_is_named_with_the_command_that_explains_it(world: World) -> None:
    for partition in world.partitions:
        world.admin.write(partition, world.owner)
    found = world.explained()
    others = [line for line in found.text if line.startswith("Also HANGING")]
    assert [line.split()[2] for line in others] == ["orders-1", "orders-2"]
    assert "`txnwatch explain --topic orders --partition 2 --bootstrap-server a:1`" in others[1]


def test_a_partition_that_was_not_read_is_never_clear(world: World) -> None:
    for partition in world.partitions[1:]:
        world.admin.problems[partition] = "READ is missing"
    found = world.explained()
    assert found.state == "unproven"
    assert found.text[-1] == "2 more partitions were not read: it is not known whether it has open data there."
    assert world.question.missing == {"orders-1, orders-2": "READ is missing"}


def test_a_bounded_number_of_partitions_is_read_and_the_rest_is_said(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_anywhere, "MOST_PARTITIONS", 1)
    found = world.explained()
    assert (found.state, found.text[-2]) == ("unproven", "Nothing of it is open on the only partition that was read.")
    ((what, why),) = world.question.missing.items()
    assert what == "2 more partitions"
    assert "`txnwatch find-hanging` reads all" in why


def test_a_transaction_with_a_verdict_is_not_hidden_by_data_that_is_not_proven(world: World) -> None:
    world.admin.write(world.partitions[2], world.owner)
    world.admin.listing_problems.append("NOT_COORDINATOR")
    found = world.explained(LATE)
    assert found.state == "late"
    assert "orders-2: a transaction is open, and its owner is not known." in found.text
    assert "orders-2 producer id" in next(iter(world.question.missing))


def test_what_a_live_transaction_holds_is_no_stray(world: World) -> None:
    world.admin.begin(NAME, world.partitions[0])
    assert world.look().strays == ()
    assert world.explained(LATE) == LATE


def test_copies_of_another_cluster_are_not_searched(world: World) -> None:
    assert open_anywhere.data_partitions(world.question.cluster, "orders") == []
    assert TopicPartition("__transaction_state", 0) not in world.look().readings
