"""Which requests of the job are due, and where they lead, as tables."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from txnwatch.state.model.findings import CensusReason
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.source.offsets import Position, SourceOffset
from txnwatch.streaming.source.planner import (
    LONGEST_PAUSE,
    GrantedRequests,
    RereadRequest,
    census_of,
    is_of_census,
    to_describe,
    to_read_again,
)

ORDERS, LOG = TopicPartition("orders", 0), TopicPartition(TRANSACTION_STATE_TOPIC, 3)
GAP, WHOLE_LOG = RereadRequest(ORDERS, 40), RereadRequest(LOG, None)
DESCRIBE = census_of(ORDERS, CensusReason.PROOF)


def at(barrier: int, **positions: Position) -> SourceOffset:
    return SourceOffset("", barrier, 0, 0, {TopicPartition(name, 0): place for name, place in positions.items()})


def granted_at(request: RereadRequest, barriers: int) -> list[int]:
    """The barriers at which a request is granted that is repeated at every barrier."""
    granted, found = GrantedRequests(), []
    for number in range(barriers):
        due = granted.due(at(number), {request})
        granted.count(at(number + 1), due, {request})
        found += [number] * len(due)
    return found


@pytest.mark.parametrize("request_", [GAP, WHOLE_LOG, DESCRIBE])
def test_a_repeated_request_is_granted_after_pauses_that_double_up_to_the_longest(request_: RereadRequest) -> None:
    found = granted_at(request_, 300)
    pauses = [later - earlier for earlier, later in itertools.pairwise(found)]
    assert found[0] == 0
    assert pauses[:8] == [1, 2, 4, 8, 16, 32, LONGEST_PAUSE, LONGEST_PAUSE]


def test_a_request_that_is_no_longer_repeated_begins_with_the_first_pause() -> None:
    granted = GrantedRequests()
    granted.count(at(1), {GAP}, {GAP})
    granted.count(at(2), {GAP}, {GAP})
    assert not granted.due(at(2), {GAP})
    granted.count(at(3), set(), set())
    assert len(granted) == 0
    assert granted.due(at(3), {GAP}) == {GAP}


def test_an_offset_that_stands_again_waits_at_most_for_the_longest_pause() -> None:
    granted, standing, found = GrantedRequests(), census_of(ORDERS, CensusReason.STANDING), list[int]()
    for number in range(2_000):
        requests = {standing} if number % 5 < 4 else set()
        due = granted.due(at(number), requests)
        granted.count(at(number + 1), due, requests)
        found += [number] * len(due)
    pauses = [later - earlier for earlier, later in itertools.pairwise(found)]
    assert max(pauses) == LONGEST_PAUSE + 1, "the offset moves at the barrier at which it is due"
    assert min(pauses[7:]) == LONGEST_PAUSE
    granted.count(at(2_000 + 2 * LONGEST_PAUSE), set(), set())
    assert len(granted) == 0


def test_a_request_stays_due_while_its_partition_does_not_answer() -> None:
    granted, place = GrantedRequests(), Position("id", 40, 0, 50, 1)
    stale = replace(place, is_stale=True)
    granted.count(at(1, orders=stale), {GAP}, {GAP})
    assert granted.due(at(1), {GAP}) == {GAP}
    granted.count(at(2, orders=place), {GAP}, {GAP})
    granted.count(at(3, orders=place), {GAP}, {GAP})
    assert not granted.due(at(3), {GAP})


def test_requests_lead_to_a_description_or_to_a_range() -> None:
    lower = RereadRequest(ORDERS, 30)
    assert [is_of_census(one) for one in (GAP, WHOLE_LOG, DESCRIBE)] == [False, False, True]
    assert to_read_again([GAP, lower, WHOLE_LOG, DESCRIBE]) == {ORDERS: 30, LOG: 0}
    assert to_describe([GAP, WHOLE_LOG], at(1)) == set()
    assert to_describe([DESCRIBE], at(1)) == {ORDERS}
    assert to_describe([DESCRIBE], at(1, orders=Position("id", 40, 0, 50, 1))) == set()
