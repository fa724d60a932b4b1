"""Open data that a fresh read cannot decide: it is told once that has lasted, with the reason, until it is decided."""

from __future__ import annotations

import pytest

from support.ledger_world import LedgerWorld

AWAY = "__transaction_state-3: has no leader: its ids cannot be listed until one of its replicas is back: broker 2"
_LASTING_MS = 30_000


@pytest.fixture
def world() -> LedgerWorld:
    return LedgerWorld()


def undecided(world: LedgerWorld) -> list[str]:
    return world.ledger.ledger.answers.undecided.lasting(world.now_ms)


def test_it_is_told_with_the_reason_once_it_has_lasted(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.admin.silent.append(AWAY)
    world.batch(candidate)
    assert undecided(world) == [], "a leader election is no reason to look"
    world.batch(candidate, after_ms=_LASTING_MS)
    assert undecided(world) == [f"{candidate.start}: {AWAY}"]


def test_an_answer_decides_it(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.admin.silent.append(AWAY)
    world.batch(candidate)
    world.batch(candidate, after_ms=_LASTING_MS)
    world.admin.silent.clear()
    world.batch(candidate)
    assert undecided(world) == []
    assert world.published() == [("hanging", 1, "opened")]


def test_its_end_decides_it(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.admin.silent.append(AWAY)
    world.batch(candidate)
    world.batch(candidate, after_ms=_LASTING_MS)
    world.batch(world.abort(candidate))
    assert undecided(world) == []


def test_it_is_forgotten_if_it_does_not_come_again(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.admin.silent.append(AWAY)
    world.batch(candidate)
    world.batch(after_ms=2 * 3_600_000)
    assert undecided(world) == []
