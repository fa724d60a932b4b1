"""A span that only a census has shown: how it began is read before anything is said of its outcome."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.ledger_world import World
from txnwatch.state.transaction import UNREAD


@pytest.mark.parametrize(
    ("is_there", "outcome"), [(True, "abort"), (False, "unknown")], ids=["in the log", "taken by retention"]
)
def test_an_outcome_rests_on_the_first_batch(is_there: bool, outcome: str) -> None:  # noqa: FBT001
    world = World()
    said = world.hang()
    if not is_there:
        world.admin.partitions[world.partition].starts.clear()
    world.batch(replace(said, span=replace(said.span, start_epoch=UNREAD)))
    assert world.topic.told[-1].expected_outcome == outcome


def test_a_marker_that_the_state_has_let_go_is_looked_for() -> None:
    """Its leader says that there was one: without it nobody knows whether it was the transaction's own."""
    world = World()
    world.admin.begin("checkout-1", world.partition)
    world.admin.end("checkout-1", commit=False)
    world.admin.init("checkout-1")  # and on with the next epoch
    said = world.hang()
    at = world.admin.partitions[world.partition]
    assert (said.last_marker, at.markers[said.producer_id].producer_epoch) == (None, 0)
    world.batch(said)
    assert "read_past" in world.admin.asked


def test_what_the_log_has_shown_is_not_read_again() -> None:
    world = World()
    world.batch(world.hang())
    assert world.topic.told[-1].expected_outcome == "abort"
    assert "read_past" not in world.admin.asked
