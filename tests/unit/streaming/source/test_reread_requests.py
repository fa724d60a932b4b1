"""The file by which the job asks its source to read again: replaced as a whole, and never a reason to fail."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from txnwatch.state.detection.open_transactions import UNOWNED
from txnwatch.state.model.findings import (
    CensusReason,
    CensusRequest,
    Finding,
    OpenSpan,
    OpenTransaction,
    OpenTransactions,
    OutstandingGap,
    ReadLimitReached,
)
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, PartitionOffset, Remedy, TopicPartition
from txnwatch.streaming.source.planner import RereadRequest, census_of, requests_after

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)
reasons = st.none() | st.sampled_from(CensusReason)
names = st.sampled_from(["orders", "orders-1", "-", "a.b-c_d", TRANSACTION_STATE_TOPIC])


def open_since(partition: TopicPartition, offset: int, *, state: str = "Ongoing", bucket: int = 0) -> OpenTransactions:
    """What one bucket has open: one transaction."""
    span = OpenSpan(partition, offset, 0)
    return OpenTransactions(bucket, (OpenTransaction(1, None, state, 0, None, (span,)),))


def test_a_partition_that_is_to_be_read_again_is_described_as_well_if_a_proof_waits_for_it() -> None:
    """Behind a re-read the second look of a census would wait for the next round, with every hang there."""
    unread = [ReadLimitReached(ORDERS, 7), OutstandingGap(ORDERS, 5)]
    at = RereadRequest(ORDERS, 5)
    proof = census_of(ORDERS, CensusReason.PROOF)
    assert requests_after([*unread, CensusRequest(ORDERS)], {}) == {at, proof}
    assert requests_after([CensusRequest(ORDERS), *unread], {}) == {at, proof}
    assert requests_after(unread, {CensusReason.DOUBT: [ORDERS]}) == {at, census_of(ORDERS, CensusReason.DOUBT)}
    lost = [OutstandingGap(ORDERS, Remedy.CENSUS), ReadLimitReached(ORDERS, 5)]
    assert requests_after(lost, {}) == {at, census_of(ORDERS, CensusReason.GAP)}


def test_of_several_places_to_read_again_from_the_lowest_counts() -> None:
    assert requests_after([ReadLimitReached(ORDERS, 5), OutstandingGap(ORDERS, 7)], {}) == {RereadRequest(ORDERS, 5)}


HOLDERS = {
    "nobody known": ([], True),
    "its owner": ([open_since(ORDERS, 10)], False),
    "its owner, in Prepare*": ([open_since(ORDERS, 10, state="PrepareAbort")], False),
    "data without an owner": ([open_since(ORDERS, 10, state=UNOWNED)], True),
    "somebody above it": ([open_since(ORDERS, 11)], True),
    "somebody below it, whose marker we have not read": ([open_since(ORDERS, 9)], True),
    "somebody on another partition": ([open_since(PAYMENTS, 10)], True),
    "its owner, emitted by another bucket": ([open_since(PAYMENTS, 3), open_since(ORDERS, 10, bucket=7)], False),
}


@pytest.mark.parametrize(("known", "is_asked"), HOLDERS.values(), ids=HOLDERS.keys())
def test_a_last_stable_offset_is_asked_about_where_nothing_known_holds_it(
    known: list[Finding], *, is_asked: bool
) -> None:
    wanted = {census_of(ORDERS, CensusReason.STANDING)} if is_asked else set()
    blocked = OpenTransactions(0, (), (PartitionOffset(ORDERS, 10),))
    assert requests_after([blocked, *known], {}) == wanted
    assert requests_after([*known, blocked], {}) == wanted
    assert requests_after(known, {}) == set()
