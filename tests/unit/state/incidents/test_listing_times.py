"""An event has the times of both looks of its proof, if one process has made both."""

from __future__ import annotations

import pytest

from support.ledger_world import LedgerWorld
from support.page_world import a_count
from txnwatch.state.incidents.event_builder import MOST_LISTED, NOT_LISTED, LookTimes
from txnwatch.state.model.values import BarrierNumber


def test_the_times_of_the_last_barriers_are_known() -> None:
    looks = LookTimes()
    for number in range(MOST_LISTED + 10):
        looks.take([a_count({"Ongoing": 1}, number)])
    last = looks.of(BarrierNumber(MOST_LISTED + 9))
    assert last.data_ms is not None
    assert last.log_ms == last.data_ms + 40
    assert looks.of(BarrierNumber(9)) == NOT_LISTED
    assert looks.of(BarrierNumber(10)) != NOT_LISTED
    assert looks.of(None) == NOT_LISTED


@pytest.mark.parametrize("is_known", [True, False])
def test_an_event_has_the_times_of_the_first_look(*, is_known: bool) -> None:
    world = LedgerWorld()
    candidate = world.hang()
    count = a_count({"Ongoing": 1}, candidate.first_barrier if is_known else candidate.first_barrier + 1_000)
    world.batch(count)
    world.batch(candidate)
    evidence = world.topic.published[0].evidence
    expected = (count.data_listed_ms, count.data_listed_ms + 40) if is_known else (None, None)
    assert (evidence.first_data_listed_ms, evidence.first_coordinator_listed_ms) == expected
    assert evidence.data_listed_ms == candidate.data_listed_ms
