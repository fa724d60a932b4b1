"""The file by which the job asks its source to read again: replaced as a whole, and never a reason to fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from txnwatch.state.detection.open_transactions import UNOWNED
from txnwatch.state.model.findings import (
    BlockedOffset,
    CensusReason,
    CensusRequest,
    Finding,
    OpenSpan,
    OpenTransaction,
    OpenTransactions,
    OutstandingGap,
    ReadLimitReached,
)
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, Remedy, TopicPartition
from txnwatch.streaming.source.driver_files import read_requests, write_requests
from txnwatch.streaming.source.granted_requests import RereadRequest, census_of, requests_after

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)
reasons = st.none() | st.sampled_from(CensusReason)
names = st.sampled_from(["orders", "orders-1", "-", "a.b-c_d", TRANSACTION_STATE_TOPIC])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rereads.json"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(
    rereads=st.sets(
        st.builds(RereadRequest, st.builds(TopicPartition, names, st.integers(0, 99)), st.integers(-1, 2**62), reasons),
        max_size=4,
    )
)
def test_requests_are_read_as_they_were_written(path: Path, rereads: set[RereadRequest]) -> None:
    write_requests(path, rereads)
    assert read_requests(path) == rereads


def test_requests_replace_those_before_and_leave_nothing_beside_them(path: Path) -> None:
    write_requests(path, {RereadRequest(ORDERS, 5), RereadRequest(TopicPartition("payments", 1), None)})
    write_requests(path, {RereadRequest(ORDERS, 7)})
    assert read_requests(path) == {RereadRequest(ORDERS, 7)}
    write_requests(path, ())
    assert read_requests(path) == set()
    assert list(path.parent.iterdir()) == [path]


def test_the_same_requests_leave_the_file_alone(path: Path) -> None:
    payments = TopicPartition("payments", 1)
    write_requests(path, [RereadRequest(ORDERS, 5), RereadRequest(payments, 6)])
    written = path.stat()
    write_requests(path, [RereadRequest(payments, 6), RereadRequest(ORDERS, 5)])
    assert path.stat().st_ino == written.st_ino, "a replaced file is another one"


def test_a_reader_holds_whole_requests_while_they_are_replaced(path: Path) -> None:
    write_requests(path, {RereadRequest(ORDERS, 5)})
    with path.open() as reading:
        write_requests(path, {RereadRequest(ORDERS, 2**60)})
        assert reading.read() == '[["orders-0", 5, ""]]'


def test_without_a_file_there_are_no_requests(path: Path) -> None:
    assert read_requests(None) == set()
    assert read_requests(path) == set()
    assert read_requests(path.parent) == set()


def open_since(partition: TopicPartition, offset: int, *, state: str = "Ongoing", bucket: int = 0) -> OpenTransactions:
    """What one bucket has open: one transaction."""
    span = OpenSpan(partition, offset, 0)
    return OpenTransactions(bucket, (OpenTransaction(1, None, state, 0, None, (span,)),))


DAMAGED = {
    "empty": b"",
    "cut": b'[["orders-0", ',
    "zeros after a power failure": bytes(16),
    "no text": b"\xff\xfe",
    "an object": b'{"orders-0": 5}',
    "no partition": b'[["orders", 5, ""]]',
    "a partition that is no number": b'[["orders-x", 5, ""]]',
    "no such reason": b'[["orders-0", -1, "because"]]',
    "a number": b"5",
    "no pairs": b"[5]",
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_file_has_no_requests_and_is_replaced_by_the_next(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert read_requests(path) == set()
    write_requests(path, {RereadRequest(ORDERS, 5)})
    assert read_requests(path) == {RereadRequest(ORDERS, 5)}


def test_a_partition_that_is_to_be_read_again_is_described_as_well_if_a_proof_waits_for_it() -> None:
    """Behind a re-read the second look of a census would wait for the next round, with every hang there."""
    unread = [ReadLimitReached(ORDERS, 7), OutstandingGap(ORDERS, 5)]
    at = RereadRequest(ORDERS, 5)
    proof = census_of(ORDERS, CensusReason.PROOF)
    assert requests_after([*unread, CensusRequest(ORDERS)], ()) == {at, proof}
    assert requests_after([CensusRequest(ORDERS), *unread], ()) == {at, proof}
    assert requests_after(unread, [ORDERS]) == {at, census_of(ORDERS, CensusReason.DOUBT)}
    lost = [OutstandingGap(ORDERS, Remedy.CENSUS), ReadLimitReached(ORDERS, 5)]
    assert requests_after(lost, ()) == {at, census_of(ORDERS, CensusReason.GAP)}


def test_of_several_places_to_read_again_from_the_lowest_counts() -> None:
    assert requests_after([ReadLimitReached(ORDERS, 5), OutstandingGap(ORDERS, 7)], ()) == {RereadRequest(ORDERS, 5)}


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
    blocked = OpenTransactions(0, (), (BlockedOffset(ORDERS, 10),))
    assert requests_after([blocked, *known], ()) == wanted
    assert requests_after([*known, blocked], ()) == wanted
    assert requests_after(known, ()) == set()
