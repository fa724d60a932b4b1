"""A proof where nobody reads: what begins where a last stable offset stands is open for as long as it stands."""

from __future__ import annotations

from typing import Any

import pytest

from support.facts import ORDERS, BucketRun, census, transaction
from txnwatch.state.model.facts import CensusListing, CensusTaken, Fact, StandsAt
from txnwatch.state.model.findings import CensusRequest, Finding, SpanCandidate
from txnwatch.state.model.transaction import TransactionState as S

AT = 30


def stands(since: int, offset: int = AT) -> dict[str, Any]:
    return {"standing": {ORDERS: StandsAt(offset, 0, since)}}


def shown(*, stood: bool = True) -> list[Fact]:
    """A census that shows a transaction at AT, and whether the last stable offset was there before T."""
    taken, *opened = census(AT, scanned=False)
    assert isinstance(taken, CensusTaken)
    listing = taken.taken[ORDERS]._replace(stands_at=AT if stood else None)
    return [CensusTaken({ORDERS: CensusListing(*listing)}), *opened]


def candidates(emitted: list[Finding]) -> list[int]:
    return [finding.span.start_offset for finding in emitted if isinstance(finding, SpanCandidate)]


def test_a_hang_is_proven_at_the_barrier_after_the_census() -> None:
    run = BucketRun()
    run.batch()
    assert candidates(run.batch(*shown(), **stands(1))) == []
    emitted = run.batch(**stands(1))
    assert candidates(emitted) == [AT]
    assert CensusRequest(ORDERS) not in emitted


@pytest.mark.parametrize(
    "later",
    [{}, stands(3), stands(1, AT - 1), stands(1, AT + 1)],
    ids=["it does not stand", "it stands since later", "it stands below", "it stands above"],
)
def test_the_offset_proves_nothing_about_another_transaction(later: dict[str, Any]) -> None:
    run = BucketRun()
    run.batch()
    run.batch(*shown(), **stands(1))
    emitted = run.batch(**later)
    assert candidates(emitted) == []
    assert CensusRequest(ORDERS) in emitted


def test_a_transaction_that_may_have_begun_after_t_is_not_judged_by_that_t() -> None:
    run = BucketRun()
    run.batch()
    run.batch(*shown(stood=False), **stands(2))
    assert candidates(run.batch(**stands(2))) == [], "this is its first look without an owner"
    assert candidates(run.batch(**stands(2))) == [AT]


def test_a_healthy_transaction_that_stands_for_long_is_no_candidate() -> None:
    run = BucketRun()
    run.batch(transaction(1, S.ONGOING, ORDERS))
    run.batch(*shown(), **stands(1))
    for _ in range(5):
        assert candidates(run.batch(**stands(1))) == []
    assert candidates(run.batch(transaction(2, S.COMPLETE_ABORT), **stands(1))) == [], "its marker may be on its way"
    assert candidates(run.batch(**stands(1))) == [AT], "the marker was written before, so it is above this end"
