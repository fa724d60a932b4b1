"""By the log a live transaction holds the span, by its coordinator not: a hang that a stale view would cover."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.facts import BucketRun, seen, transaction
from support.ledger_world import HOUR_MS, LedgerWorld
from txnwatch.state.model.findings import CoverInDoubt
from txnwatch.state.model.ports import ListedTransaction, MarkerSpec
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.verdicts import TWO_PHASE_TIMEOUT_MS

NAME = "checkout-1"


@pytest.fixture
def world() -> LedgerWorld:
    return LedgerWorld()


def doubt(world: LedgerWorld, producer_id: int) -> CoverInDoubt:
    """The finding of the state for a span that, by the log, an old two-phase transaction holds."""
    at = world.admin.partitions[world.partition]
    start = at.producers[producer_id].txn_start_offset
    run = BucketRun()
    run.batch(
        seen(0, 10, data=start, producer_id=producer_id, partition=world.partition, topic_id=at.topic_id),
        transaction(
            1,
            S.ONGOING,
            world.partition,
            producer_id=producer_id,
            transactional_id=NAME,
            timeout_ms=TWO_PHASE_TIMEOUT_MS,
        ),
    )
    run.now_ms += 2 * HOUR_MS
    (finding,) = run.batch()
    assert isinstance(finding, CoverInDoubt)
    return finding


def test_an_outdated_view_does_not_hide_a_hang(world: LedgerWorld) -> None:
    owner = world.admin.begin(NAME, world.partition)
    world.admin.lose_markers(NAME, commit=False)
    world.batch(doubt(world, owner.producer_id))
    assert world.published() == [("hanging", 1, "opened")]
    (event,) = world.topic.published
    assert (event.reason, event.transactional_id, event.expected_outcome) == ("already_completed", NAME, "unknown")
    assert world.admin.asked[:11] == [
        "describe_transactions",
        *["read_partitions", "list_transactions", "describe_transactions", "read_partitions", "log_epochs"] * 2,
    ], "the whole proof by fresh answers: partition and coordinator, twice"


def test_it_is_published_once(world: LedgerWorld) -> None:
    owner = world.admin.begin(NAME, world.partition)
    world.admin.lose_markers(NAME, commit=False)
    finding = doubt(world, owner.producer_id)
    world.batch(finding)
    world.batch(finding)
    assert world.published() == [("hanging", 1, "opened")]


def test_an_old_transaction_that_its_coordinator_still_holds_causes_a_request_and_no_incident(
    world: LedgerWorld,
) -> None:
    owner = world.admin.begin(NAME, world.partition)
    world.batch(doubt(world, owner.producer_id))
    assert world.published() == []
    assert world.admin.asked == ["describe_transactions"]


HAPPENS: dict[str, Callable[[LedgerWorld], object]] = {
    "an administrator ends it": lambda world: world.admin.mark(MarkerSpec(world.partition, owner_of(world), 0, 0)),
    "the next transaction takes the partition in": lambda world: world.admin.begin(NAME, world.partition),
    "its partition does not answer": lambda world: world.admin.problems.update({world.partition: "no leader"}),
    "its coordinator does not answer": lambda world: world.admin.problems.update({NAME: "NOT_COORDINATOR"}),
}


def owner_of(world: LedgerWorld) -> int:
    return world.admin.transactions[NAME].producer_id


# Once both have answered twice the proof is whole: nobody is missed then, and what takes the data in absorbs a hang.
CASES = [
    (name, readings) for name in HAPPENS for readings in range(4 if "ends it" in name or "partition" in name else 3)
]
CASES.remove(("the next transaction takes the partition in", 3))


@pytest.mark.parametrize(("name", "readings"), CASES, ids=[f"{name} after {count}" for name, count in CASES])
def test_a_change_between_the_two_readings_is_detected(world: LedgerWorld, name: str, readings: int) -> None:
    owner = world.admin.begin(NAME, world.partition)
    world.admin.lose_markers(NAME, commit=False)
    for _ in range(readings):
        world.admin.before("read_partitions", lambda: None)
    world.admin.before("read_partitions", lambda: HAPPENS[name](world))
    world.batch(doubt(world, owner.producer_id))
    assert "read_partitions" in world.admin.asked
    assert world.published() == []


def two_coordinators(world: LedgerWorld, producer_id: int) -> None:
    del producer_id
    found = world.admin.transactions[NAME]
    world.admin.also_listed.append(ListedTransaction(NAME, found.producer_id, found.state, found.coordinator + 1))


def a_broker_that_does_not_answer(world: LedgerWorld, producer_id: int) -> None:
    del producer_id
    world.admin.silent.append("coordinator 2: timed out")


def a_coordinator_that_does_not_lead_its_log(world: LedgerWorld, producer_id: int) -> None:
    del producer_id
    world.admin.problems[NAME] = "broker 1 answered, but it does not lead __transaction_state-7"


DOUBTS = [two_coordinators, a_broker_that_does_not_answer, a_coordinator_that_does_not_lead_its_log]


@pytest.mark.parametrize("doubt", DOUBTS)
def test_the_watch_does_not_confirm_a_span_that_find_hanging_doubts(
    world: LedgerWorld, doubt: Callable[[LedgerWorld, int], None]
) -> None:
    candidate = world.hang(NAME)
    doubt(world, candidate.producer_id)
    world.batch(candidate)
    assert world.published() == []
    (why,) = world.reports
    assert "can be neither confirmed nor refuted now" in why
    world.admin.also_listed.clear()
    world.admin.silent.clear()
    world.admin.problems.clear()
    world.batch(candidate)
    assert world.published() == [("hanging", 1, "opened")]
