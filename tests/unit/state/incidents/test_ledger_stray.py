"""The ledger and stray writes: an incident of its own, unless the same span is known already, or comes to hang."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from support.facts import START_MS, a_marker
from support.ledger_world import LedgerWorld
from txnwatch.state.model.facts import Joined
from txnwatch.state.model.findings import SpanCandidate, SpanEnd, SpanEnded, StrayWrite
from txnwatch.state.model.transaction import Marker

OPENED, RESOLVED = ("stray_write", 1, "opened"), ("stray_write", 2, "resolved")


@pytest.fixture
def world() -> LedgerWorld:
    return LedgerWorld()


def a_stray(world: LedgerWorld, candidate: SpanCandidate, marker: Marker | None = None) -> StrayWrite:
    span = candidate.span
    joined = Joined(span.start_offset, 0, 9, 1, marker)
    return StrayWrite(candidate.producer_id, world.partition, span.topic_id, joined, candidate.view, START_MS, START_MS)


def test_it_is_published_and_ends_with_the_transaction_that_absorbed_it(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.batch(a_stray(world, candidate))
    assert world.published() == [OPENED]
    (event,) = world.topic.published
    assert (event.severity, event.transactional_id, event.txn_start_offset) == ("warning", "checkout-1", 0)
    assert (event.evidence.joined_at_offset, event.evidence.joined_by_epoch) == (9, 1)
    ended = SpanEnded(
        candidate.producer_id, world.partition, candidate.span, SpanEnd.ABSORBED, a_marker(12, epoch=1, commit=True)
    )
    world.batch(ended)
    assert world.published() == [OPENED, RESOLVED]
    resolution = world.topic.published[-1].resolution
    assert resolution is not None
    assert (resolution.how, resolution.marker_offset) == ("absorbed", 12)


def test_one_that_is_over_already_is_published_with_its_end(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.batch(a_stray(world, candidate, a_marker(12, epoch=1)))
    assert world.published() == [OPENED, RESOLVED]


@pytest.mark.parametrize("restarted", [False, True])
def test_it_is_published_once(world: LedgerWorld, *, restarted: bool) -> None:
    stray = a_stray(world, world.hang(), a_marker(12, epoch=1))
    world.batch(stray)
    if restarted:
        world.restart()
    world.batch(stray)
    assert world.published() == [OPENED, RESOLVED]


def test_a_hang_that_is_taken_in_stays_one_incident(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.batch(candidate)
    world.batch(a_stray(world, candidate))
    assert world.published() == [("hanging", 1, "opened")]


def test_one_that_comes_to_hang_is_updated_to_it(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.batch(a_stray(world, candidate))
    world.batch(candidate)
    assert world.published() == [OPENED, ("hanging", 2, "updated")]
    first, second = world.topic.published
    assert first.incident_id == second.incident_id
    assert (second.severity, second.reason) == ("critical", "already_completed")
    assert second.open_since_ms == first.open_since_ms
    world.batch(candidate)
    assert len(world.published()) == 2
    world.batch(world.abort(candidate))
    assert world.published()[-1] == ("hanging", 3, "resolved")


def test_a_refuted_candidate_puts_its_partition_in_doubt(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.batch(candidate)
    assert world.ledger.refuted == set()
    other = replace(candidate, producer_id=candidate.producer_id + 1)
    world.batch(other)
    assert world.ledger.refuted == {world.partition}
    world.batch()
    assert world.ledger.refuted == set()
