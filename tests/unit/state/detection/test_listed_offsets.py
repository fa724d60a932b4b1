"""The offsets of partitions that only a census watches: of which, how many, when, and what the driver keeps."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from support.facts import ORDERS, PAYMENTS, START_MS, BucketRun, Kept, notice, seen, transaction
from support.facts import census as census_of
from txnwatch.state.detection.open_transactions import SHOWN_ENDS, LastOpenLists
from txnwatch.state.model.facts import CensusListing, CensusTaken, Fact, NoticeKind, OpenDescribed
from txnwatch.state.model.findings import CensusOffsets, Finding, ListedOffsets
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.job.bucket_step import FINDINGS

OWNER = transaction(1, S.ONGOING, ORDERS, start_ms=START_MS)
LISTED_MS = 2_000
BUCKETS = 16


def census(*open_at: int, below: int = 100, stable: int | None = None, is_round: bool = True) -> list[Fact]:
    """A census of ORDERS, which is not scanned."""
    return census_of(*open_at, below=below, stable=stable, scanned=False, is_round=is_round)


def ends(emitted: Iterable[Finding]) -> list[ListedOffsets]:
    return [finding for finding in emitted if isinstance(finding, ListedOffsets)]


def offsets(emitted: Iterable[Finding]) -> list[tuple[TopicPartition, int, int]]:
    return [(one.partition, one.last_stable, one.end) for finding in ends(emitted) for one in finding.offsets]


def held() -> Kept:
    """A bucket whose open list has a transaction on ORDERS, that began at 10; its first batch is long ago."""
    kept = Kept()
    kept.batch(OWNER, *census(10))
    kept.number += 2 * LISTED_MS // 500
    kept.batch()
    return kept


def test_the_offsets_of_a_partition_with_a_listed_transaction_are_emitted() -> None:
    assert ends(held().batch(*census(10, below=120))) == [
        ListedOffsets(0, (CensusOffsets(ORDERS, 10, 120),), is_round=True)
    ]


def test_nothing_is_emitted_where_nobody_is_listed() -> None:
    assert offsets(Kept().batch(OWNER, *census(10))) == [], "the transaction is too young for the list"
    assert offsets(held().batch(*census_of(scanned=False, partition=PAYMENTS, is_round=True))) == []


SCANNED: dict[str, list[Fact]] = {
    "scanned": census_of(10, scanned=True),
    "scanned, and behind": [CensusTaken({ORDERS: CensusListing("orders-id", 100, 10, False, False, True)})],
    "the leader has no last stable offset": [CensusTaken({ORDERS: CensusListing("orders-id", 100, None, False)})],
    "the log was truncated meanwhile": [*census(10), notice(NoticeKind.TRUNCATED, 3)],
}


@pytest.mark.parametrize("facts", SCANNED.values(), ids=SCANNED.keys())
def test_what_no_census_replaces_is_left_out(facts: list[Fact]) -> None:
    run = BucketRun()
    run.batch(seen(0, 50, data=10))
    run.pass_time(2 * LISTED_MS)
    run.batch(*facts)
    assert offsets(run.everything) == []


def test_what_has_no_owner_is_emitted_before_it_is_in_the_list() -> None:
    """It may be an incident before that."""
    kept = Kept()
    assert offsets(kept.batch(*census(10))) == [(ORDERS, 10, 100)]
    assert offsets(kept.batch(*census(10, below=105, is_round=False))) == [(ORDERS, 10, 105)]


def test_the_end_is_never_below_the_last_stable_offset() -> None:
    """It is listed first, so the last stable offset may be above it."""
    assert offsets(held().batch(*census(10, below=100, stable=130))) == [(ORDERS, 130, 130)]


def test_only_changes_are_emitted() -> None:
    kept = held()
    found = [bool(ends(kept.batch(*census(10, below=below)))) for below in (120, 120, 120, 121, 121)]
    assert found == [True, False, False, True, False]
    assert ends(kept.batch()) == [], "a barrier without a census"
    assert offsets(kept.batch(*census(10, below=121, is_round=False))) == [(ORDERS, 10, 121)]
    assert ends(kept.batch(*census(10, below=121))) == [ListedOffsets(0, (CensusOffsets(ORDERS, 10, 121),), True)]
    assert ends(kept.batch(CensusTaken({}, frozenset({ORDERS}), is_round=True))) == [ListedOffsets(0, (), True)]
    assert ends(kept.batch(CensusTaken({}, frozenset({ORDERS}), is_round=True))) == []
    assert offsets(kept.batch(*census(10, below=121))) == [(ORDERS, 10, 121)], "it is described again"


def test_what_may_not_have_arrived_is_emitted_again() -> None:
    kept = held()
    assert ends(kept.batch(*census(10)))
    kept.number -= 1
    assert ends(kept.batch(*census(10))), "another attempt at the same barrier"
    kept.number -= 1
    assert not ends(kept.batch()), "another attempt, without the census"
    assert ends(kept.batch(*census(10)))
    kept.bucket.forget_emitted()
    assert ends(kept.batch(*census(10))), "there may be a new driver"


def many(count: int, producers: int = 1) -> list[Fact]:
    """A round in which each of some producers has so many partitions, with a name of 20 bytes."""
    places = [
        (TopicPartition("payments.eu.settled1", 100 + number), 10**9 + number, one)
        for one in range(producers)
        for number in range(count)
    ]
    taken = {at: CensusListing("orders-id", start + 10**6, start, is_scanned=False) for at, start, _ in places}
    return [
        CensusTaken(taken, is_round=True),
        *(OpenDescribed(at, producer_id, 0, start, 1, 1) for at, start, producer_id in places),
    ]


def test_a_bucket_emits_no_more_than_its_share_of_512() -> None:
    assert SHOWN_ENDS * BUCKETS == 512
    run = BucketRun()
    run.batch(*many(SHOWN_ENDS + 8))
    run.pass_time(2 * LISTED_MS)
    run.batch(*many(SHOWN_ENDS + 8))
    (found,) = ends(run.everything)
    assert [one.partition.partition for one in found.offsets] == list(range(100, 100 + SHOWN_ENDS))
    assert len(FINDINGS.encode(found)) * BUCKETS < 20_000, "the bytes of all buckets in a batch"


def test_a_partition_of_two_transactions_is_emitted_once() -> None:
    run = BucketRun()
    run.batch(*many(1, producers=2))
    run.pass_time(2 * LISTED_MS)
    run.batch(*many(1, producers=2))
    assert len(offsets(run.everything)) == 1


def listed(bucket: int, *partitions: int, end: int = 9, is_round: bool = True) -> ListedOffsets:
    return ListedOffsets(
        bucket, tuple(CensusOffsets(TopicPartition("orders", one), 5, end) for one in partitions), is_round
    )


def test_the_driver_keeps_what_each_bucket_has_emitted() -> None:
    driver = LastOpenLists()
    assert driver.whole([listed(1, 0, 3)]) == [listed(1, 0, 3)]
    assert driver.whole([listed(0, 1)]) == [listed(0, 1), listed(1, 0, 3)]
    known = driver.whole([listed(1, 3, 7, end=10, is_round=False)])
    assert [(one.partition.partition, one.end) for one in ends(known)[1].offsets] == [(0, 9), (3, 10), (7, 10)]
    assert driver.whole([listed(1, 7)]) == [listed(0, 1), listed(1, 7)], "a round replaces all"
    assert driver.whole([]) == [listed(0, 1), listed(1, 7)]
