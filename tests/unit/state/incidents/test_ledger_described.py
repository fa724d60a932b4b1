"""The outcome of a hang is published only after its beginning, and what lies below it, was read from its partition."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from support.ledger_world import LedgerWorld
from txnwatch.state.model.findings import SpanCandidate


def as_it_is(candidate: SpanCandidate) -> SpanCandidate:
    return candidate


def only_described(candidate: SpanCandidate) -> SpanCandidate:
    return replace(candidate, span=replace(candidate.span, start_epoch=None))


@pytest.mark.parametrize("seen", [as_it_is, only_described])
@pytest.mark.parametrize(
    ("is_there", "outcome"), [(True, "abort"), (False, "unknown")], ids=["in the log", "taken by retention"]
)
def test_an_outcome_rests_on_the_first_batch(seen: object, is_there: bool, outcome: str) -> None:  # noqa: FBT001
    world = LedgerWorld()
    candidate = world.hang()
    if not is_there:
        world.admin.partitions[world.partition].starts.clear()
    assert callable(seen)
    world.batch(seen(candidate))
    assert world.topic.published[-1].expected_outcome == outcome


def test_the_outcome_of_one_span_is_not_published_for_another() -> None:
    """The leader has the data open from further below: who wrote that is not what the candidate is about."""
    world = LedgerWorld()
    candidate = world.hang()
    later = replace(candidate, span=replace(candidate.span, start_offset=candidate.span.start_offset + 5))
    world.batch(later)
    assert world.topic.published[-1].txn_start_offset == candidate.span.start_offset
    assert world.topic.published[-1].expected_outcome == "unknown"


def test_absorbed_data_has_two_owners() -> None:
    world = LedgerWorld()
    candidate = world.hang()
    world.batch(replace(candidate, span=replace(candidate.span, absorbed=True)))
    assert world.topic.published[-1].expected_outcome == "unknown"
