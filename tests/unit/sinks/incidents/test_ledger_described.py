"""How a hang would have ended is said only once its beginning, and what lies below it, was read from its partition."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from support.ledger_world import World
from txnwatch.state.model.findings import SpanCandidate


def as_it_is(said: SpanCandidate) -> SpanCandidate:
    return said


def only_described(said: SpanCandidate) -> SpanCandidate:
    return replace(said, span=replace(said.span, start_epoch=None))


@pytest.mark.parametrize("seen", [as_it_is, only_described])
@pytest.mark.parametrize(
    ("is_there", "outcome"), [(True, "abort"), (False, "unknown")], ids=["in the log", "taken by retention"]
)
def test_an_outcome_rests_on_the_first_batch(seen: object, is_there: bool, outcome: str) -> None:  # noqa: FBT001
    world = World()
    said = world.hang()
    if not is_there:
        world.admin.partitions[world.partition].starts.clear()
    assert callable(seen)
    world.batch(seen(said))
    assert world.topic.told[-1].expected_outcome == outcome


def test_the_outcome_of_one_span_is_not_published_for_another() -> None:
    """The leader has the data open from further below: who wrote that is not what the candidate is about."""
    world = World()
    said = world.hang()
    later = replace(said, span=replace(said.span, start_offset=said.span.start_offset + 5))
    world.batch(later)
    assert world.topic.told[-1].txn_start_offset == said.span.start_offset
    assert world.topic.told[-1].expected_outcome == "unknown"


def test_what_a_later_transaction_has_taken_in_has_two_owners() -> None:
    world = World()
    said = world.hang()
    world.batch(replace(said, span=replace(said.span, absorbed=True)))
    assert world.topic.told[-1].expected_outcome == "unknown"
