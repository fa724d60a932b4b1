"""A hang whose transactional id has expired: published at once, and named as soon as the coordinators' log is read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import pytest

from support.ledger_world import LedgerWorld
from txnwatch.state.model.ports import FormerOwnersRead

NAME = "expired-1"


@dataclass
class FakeLog:
    """A FormerOwners whose answers are given, one for each call; then it knows nothing."""

    answers: list[FormerOwnersRead] = field(default_factory=list)
    asked: list[set[int]] = field(default_factory=list)

    def read(self, producer_ids: Collection[int]) -> FormerOwnersRead:
        self.asked.append(set(producer_ids))
        return self.answers.pop(0) if self.answers else FormerOwnersRead(dict.fromkeys(producer_ids))


@pytest.fixture
def log() -> FakeLog:
    return FakeLog()


@pytest.fixture
def world(log: FakeLog) -> LedgerWorld:
    return LedgerWorld(former_owners=log)


def a_nameless_hang(world: LedgerWorld) -> int:
    """A hang whose id has expired; the state has never seen the id."""
    producer_id = world.hang(NAME).producer_id
    world.admin.forget(NAME)
    return producer_id


def names(world: LedgerWorld) -> list[tuple[str, str | None]]:
    return [(event.status, event.transactional_id) for event in world.topic.published]


def test_the_name_follows_in_an_update(world: LedgerWorld, log: FakeLog) -> None:
    producer_id = a_nameless_hang(world)
    log.answers = [FormerOwnersRead({producer_id: NAME})]
    world.batch(world.candidate(producer_id))
    world.batch(world.candidate(producer_id), after_ms=120_000)
    assert names(world) == [("opened", None), ("updated", NAME)]
    assert log.asked == [{producer_id}]


def test_a_log_that_names_nobody_is_read_once(world: LedgerWorld, log: FakeLog) -> None:
    producer_id = a_nameless_hang(world)
    for _ in range(5):
        world.batch(world.candidate(producer_id), after_ms=120_000)
    assert names(world) == [("opened", None)]
    assert log.asked == [{producer_id}]


def test_a_read_that_is_not_finished_continues_in_the_next_batch(world: LedgerWorld, log: FakeLog) -> None:
    producer_id = a_nameless_hang(world)
    log.answers = [FormerOwnersRead({}), FormerOwnersRead({}), FormerOwnersRead({producer_id: NAME})]
    world.batch(world.candidate(producer_id))
    world.batch()
    assert names(world) == [("opened", None)]
    world.batch()
    assert names(world) == [("opened", None), ("updated", NAME)]


def test_a_log_that_cannot_be_read_is_read_again_after_a_pause(world: LedgerWorld, log: FakeLog) -> None:
    producer_id = a_nameless_hang(world)
    log.answers = [FormerOwnersRead({}, "no leader"), FormerOwnersRead({producer_id: NAME})]
    world.batch(world.candidate(producer_id))
    world.batch(after_ms=100)
    assert len(log.asked) == 1
    world.batch(after_ms=2_000)
    assert names(world) == [("opened", None), ("updated", NAME)]


def test_an_owner_that_is_known_is_not_searched_for(world: LedgerWorld, log: FakeLog) -> None:
    world.batch(world.hang(NAME))
    world.batch()
    assert names(world) == [("opened", NAME)]
    assert log.asked == []


def test_what_only_an_event_says_is_not_searched_for(world: LedgerWorld, log: FakeLog) -> None:
    producer_id = a_nameless_hang(world)
    world.batch(world.candidate(producer_id))
    log.asked.clear()
    world.restart()
    world.batch()
    assert log.asked == []


def test_the_resolved_event_has_the_name(world: LedgerWorld, log: FakeLog) -> None:
    producer_id = a_nameless_hang(world)
    log.answers = [FormerOwnersRead({producer_id: NAME})]
    candidate = world.candidate(producer_id)
    world.batch(candidate)
    world.batch(world.abort(candidate))
    assert names(world)[-1] == ("resolved", NAME)
    resolution = world.topic.published[-1].resolution
    assert resolution is not None
    assert resolution.by == "administrator"
