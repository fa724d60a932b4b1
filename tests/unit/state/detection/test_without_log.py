"""Detection without the coordinators' log: by questions to the coordinators, or only by the logs of the partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.facts import BucketRun, a_marker, seen
from support.ledger_world import ORIGIN, LedgerWorld
from txnwatch.state.model.values import CoordinatorAccess
from txnwatch.state.model.verdicts import DetectionPolicy

NAME = "checkout-1"
API, NONE = CoordinatorAccess.API, CoordinatorAccess.NONE
TIMEOUT_MS = 60_000


class Scene:
    """A bucket and a ledger without the coordinators' log; a transaction of one id is open on one partition."""

    def __init__(self, access: CoordinatorAccess, **policy: Any) -> None:
        self.world = LedgerWorld(origin=replace(ORIGIN, coordinator_view=access))
        self.run = BucketRun(policy=DetectionPolicy(coordinator_access=access, **policy))
        self.owner = self.world.admin.begin(NAME, self.world.partition)
        self.is_read = False

    def go(self, batches: int = 16, *facts: Any) -> list[tuple[str, int, str]]:
        """Some batches of half a second, each given to the ledger; returns what was published."""
        first = (*facts, *(() if self.is_read else (self.data,)))
        self.is_read = True
        for number in range(batches):
            self.run.batch(*(first if number == 0 else ()), has_coordinator_log=False)
            self.world.batch(*self.run.everything)
        return self.world.published()

    @property
    def data(self) -> Any:
        at = self.world.admin.partitions[self.world.partition]
        start = at.producers[self.owner.producer_id].txn_start_offset
        return seen(0, 10, data=start, producer_id=self.owner.producer_id, partition=self.world.partition,
                    topic_id=at.topic_id)  # fmt: skip

    @property
    def end(self) -> Any:
        at = self.world.admin.partitions[self.world.partition]
        return seen(10, 99, marker=a_marker(50), producer_id=self.owner.producer_id,
                    partition=self.world.partition, topic_id=at.topic_id)  # fmt: skip


@pytest.fixture
def api() -> Scene:
    return Scene(API)


@pytest.fixture
def none() -> Scene:
    return Scene(NONE, longest_timeout_ms=TIMEOUT_MS)


def test_a_healthy_transaction_is_asked_about_at_the_pace_of_a_census_and_left_alone(api: Scene) -> None:
    assert api.go(120) == []
    rounds = sum(method == "list_transactions" for method in api.world.admin.asked)
    assert 10 <= rounds <= 13, "60 s, one round every 5 s"
    assert api.world.ledger.refuted == set(), "a live transaction is no reason for a census"
    assert "read_partitions" not in api.world.admin.asked


def test_young_data_is_not_asked_about(api: Scene) -> None:
    api.go(3)
    assert api.world.admin.asked == []


LOST: dict[str, Callable[[Scene], object]] = {
    "already_completed": lambda scene: scene.world.admin.lose_markers(NAME, commit=True),
    "no_transactional_id": lambda scene: scene.world.admin.forget(NAME),
}


@pytest.mark.parametrize("reason", LOST)
def test_a_hang_is_proven_by_questions_alone(api: Scene, reason: str) -> None:
    LOST[reason](api)
    assert api.go() == [("hanging", 1, "opened")]
    (event,) = api.world.topic.published
    assert (event.reason, event.expected_outcome) == (reason, "unknown")
    assert event.evidence.coordinator_view == "api"


def test_a_listing_that_is_not_whole_proves_nothing_and_says_so(api: Scene) -> None:
    api.world.admin.forget(NAME)
    api.world.admin.listing_problems.append("__transaction_state-3: has no leader: its ids cannot be listed")
    assert api.go(60) == []
    assert any("neither confirmed nor refuted" in line for line in api.world.reports)
    api.world.admin.listing_problems.clear()
    assert api.go() == [("hanging", 1, "opened")]


def test_without_rights_on_the_owner_nothing_is_proven(api: Scene) -> None:
    api.world.admin.lose_markers(NAME, commit=True)
    api.world.admin.problems[NAME] = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    assert api.go(60) == []


@pytest.mark.parametrize("method", ["list_transactions", "describe_transactions", "read_partitions"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_transaction_that_ends_while_it_is_asked_about_never_hangs(api: Scene, method: str, nth: int) -> None:
    for _ in range(nth - 1):
        api.world.admin.before(method, lambda: None)
    api.world.admin.before(method, lambda: api.world.admin.end(NAME, commit=True))
    assert api.go(60) == []


def test_the_next_transaction_that_takes_the_partition_covers_the_data(api: Scene) -> None:
    """What a later transaction has absorbed gets its marker. That the write was a stray one is not seen here."""
    api.world.admin.lose_markers(NAME, commit=True)
    api.world.admin.begin(NAME, api.world.partition)
    assert api.go(60) == []


def test_the_end_of_a_hang_is_emitted(api: Scene) -> None:
    api.world.admin.lose_markers(NAME, commit=True)
    api.go()
    assert api.go(1, api.end)[-1] == ("hanging", 2, "resolved")


def test_without_coordinators_data_is_late_once_it_is_older_than_any_transaction_may_be(none: Scene) -> None:
    assert none.go(2 * (60 + 10 + 5 + 10) - 2) == [], "timeout, scan interval, buffer, and the time of a census"
    assert none.world.admin.asked == []
    assert none.go(4) == [("late", 1, "opened")]
    (event,) = none.world.topic.published
    assert (event.producer_id, event.transactional_id, event.reason) == (none.owner.producer_id, None, None)
    assert (event.topic, event.evidence.coordinator_view) == (none.world.partition.topic, "none")
    assert event.suggested_command is not None
    assert event.suggested_command.startswith("txnwatch explain")
    assert none.world.ledger.ledger.book.proven() == [], "nothing may end it"
    assert not {"list_transactions", "describe_transactions"} & set(none.world.admin.asked)


def test_a_transaction_that_ended_in_the_meantime_is_not_late(none: Scene) -> None:
    none.go(2)
    none.world.admin.end(NAME, commit=True)
    assert none.go(200) == [], "the leader shows that it is closed, although its marker was not read"


def test_a_younger_transaction_of_the_same_producer_is_not_late(none: Scene) -> None:
    none.go(2)
    none.world.admin.end(NAME, commit=True)
    none.world.admin.begin(NAME, none.world.partition)
    assert none.go(200) == []


def test_the_end_of_a_late_transaction_has_no_known_writer(none: Scene) -> None:
    """Up to transaction.version 1 the coordinator commits with the epoch of the data, as an administrator would."""
    none.go(180)
    assert none.go(1, none.end)[-1] == ("late", 2, "resolved")
    resolution = none.world.topic.published[-1].resolution
    assert resolution is not None
    assert resolution.by == "unknown"


@pytest.mark.parametrize("access", [API, NONE])
def test_without_a_known_limit_nothing_is_late(access: CoordinatorAccess) -> None:
    scene = Scene(access)
    assert scene.go(1_000) == []
    assert not [event for event in scene.world.topic.published if event.verdict == "late"]
