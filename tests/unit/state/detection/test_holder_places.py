"""The second kind of place in the open list: for each partition, the transaction with the lowest open start."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.facts import START_MS, BucketRun, Kept, a_marker, decode_bucket, encode_bucket, seen, transaction
from txnwatch.state.detection import bucket as buckets
from txnwatch.state.detection import open_transactions
from txnwatch.state.detection.bucket_indexes import LowestData
from txnwatch.state.detection.open_transactions import FOLLOWED, HOLDING
from txnwatch.state.model.clocks import Clock, Leader
from txnwatch.state.model.facts import Fact
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import PartitionOffset, TopicPartition, log_numbered
from txnwatch.state.model.verdicts import DetectionPolicy

OLD = 10_000 // 16  # those of one bucket, of ten thousand
PAYMENTS = TopicPartition("payments", 0)
ELSEWHERE = [TopicPartition("orders", number) for number in range(4)]
AHEAD_MS = 3_600_000  # the leader of log partition 1 is ahead of our clock
FIRST, SECOND, THIRD = OLD + 1, OLD + 2, OLD + 3


def begins(producer_id: int, partition: TopicPartition, start: int, age_ms: int) -> list[Fact]:
    """A transaction that began before START_MS, with open data from an offset."""
    at_ms = START_MS - age_ms
    times: dict[str, Any] = {"timeout_ms": 900_000, "start_ms": at_ms, "record_timestamp_ms": at_ms}
    of_id: dict[str, Any] = {"producer_id": producer_id, "transactional_id": f"app-{producer_id}"}
    data = seen(0, start + 10, data=start, producer_id=producer_id, partition=partition, listed_ms=at_ms)
    return [transaction(producer_id + 1, S.ONGOING, partition, **of_id, **times), data]


def ends(producer_id: int, partition: TopicPartition, at: int) -> list[Fact]:
    """The end in the coordinators' log, and the marker."""
    of_id: dict[str, Any] = {"producer_id": producer_id, "transactional_id": f"app-{producer_id}"}
    marker = seen(at, at + 10, producer_id=producer_id, partition=partition, marker=a_marker(at + 2, commit=True))
    return [transaction(50_000 + producer_id, S.COMPLETE_COMMIT, **of_id), marker]


def old_ones() -> list[Fact]:
    return [
        fact
        for number in range(OLD)
        for fact in begins(number, ELSEWHERE[number % len(ELSEWHERE)], number, age_ms=600_000 - number)
    ]


def with_old_ones() -> Kept:
    """Thousands of older transactions elsewhere, and three young ones on one partition."""
    run = Kept()
    young = [(FIRST, 100, 5_000), (SECOND, 200, 9_000), (THIRD, 300, 8_000)]
    run.batch(*old_ones(), *(fact for one, start, age_ms in young for fact in begins(one, PAYMENTS, start, age_ms)))
    return run


def test_the_holder_of_a_partition_has_a_place_though_thousands_elsewhere_are_older() -> None:
    run = BucketRun()
    run.batch(*old_ones(), *begins(FIRST, PAYMENTS, 100, 5_000), *begins(SECOND, PAYMENTS, 200, 9_000))
    shown = {one.producer_id: one for one in run.followed}
    assert shown.keys() == {*range(FOLLOWED), FIRST}, "and the older one behind it has none"
    assert [(span.partition, span.start_offset) for span in shown[FIRST].spans] == [(PAYMENTS, 100)]


def test_a_holder_is_listed_after_the_same_while_as_the_oldest() -> None:
    run = BucketRun()
    run.batch(*old_ones(), *begins(FIRST, PAYMENTS, 100, 0))
    assert FIRST not in {one.producer_id for one in run.followed}
    run.pass_time(DetectionPolicy().listed_after_ms)
    run.batch()
    assert FIRST in {one.producer_id for one in run.followed}


def test_the_next_holder_gets_the_place_in_the_same_batch_and_is_not_evaluated() -> None:
    run = with_old_ones()
    assert run.bucket.holding.keys() == {FIRST}
    reads, writes = run.store.reads, run.store.writes
    with mock.patch.object(buckets, "at_rest_until", wraps=buckets.at_rest_until) as evaluated:
        run.batch(*ends(FIRST, PAYMENTS, 400))
    assert run.bucket.holding.keys() == {SECOND}
    assert evaluated.call_count == 1, "only the producer that ended"
    assert run.store.writes == writes + 1
    assert run.store.reads == reads + 2, "the producer that ended, and the one that gets its place"


def test_a_batch_without_changes_reads_no_producer() -> None:
    run = with_old_ones()
    reads = run.store.reads
    run.batch()
    assert run.store.reads == reads
    assert run.bucket.holding.keys() == {FIRST}


def test_one_transaction_that_holds_many_partitions_has_one_place() -> None:
    run, places = with_old_ones(), [TopicPartition("payments", 1 + number) for number in range(HOLDING)]
    facts = [seen(0, 10, data=1, producer_id=THIRD, partition=at, listed_ms=START_MS - 4_000) for at in places]
    run.batch(transaction(60_000, S.ONGOING, *places, producer_id=THIRD, transactional_id=f"app-{THIRD}"), *facts)
    assert run.bucket.holding.keys() == {FIRST, THIRD}


def test_a_holder_that_becomes_one_of_the_oldest_has_one_place() -> None:
    run = with_old_ones()
    run.batch(*(fact for number in range(OLD) for fact in ends(number, ELSEWHERE[number % len(ELSEWHERE)], 5_000)))
    assert run.bucket.followed.keys() == {FIRST, SECOND, THIRD}
    assert run.bucket.holding == {}
    assert run.bucket.holders is None


def test_a_bucket_lists_no_more_than_the_places_of_both_kinds() -> None:
    run = BucketRun()
    places = [TopicPartition("payments", number) for number in range(3 * HOLDING)]
    holders = [fact for number, at in enumerate(places) for fact in begins(OLD + number, at, 5, 9_000 - number)]
    run.batch(*old_ones(), *holders)
    assert {one.producer_id for one in run.followed} == {*range(FOLLOWED), *range(OLD, OLD + HOLDING)}


def test_the_index_of_lowest_data_does_not_grow_with_what_has_ended() -> None:
    """The holder stays, so nothing above it reaches the top of the heap."""
    lowest = LowestData()
    lowest.put(0, (PartitionOffset(PAYMENTS, 0),))
    for number in range(1, 5_000):
        assert not lowest.put(number, (PartitionOffset(PAYMENTS, number),))
        lowest.put(number - 1 if number > 1 else number, ())
        assert len(lowest) <= 2 * 2 + 64


Place = tuple[int, int]  # the number of a partition, and a start
starts = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=3, unique_by=lambda place: place[0])


@given(st.lists(st.tuples(st.integers(0, 5), starts), max_size=30))
def test_the_lowest_data_is_that_of_a_plain_search(changes: list[tuple[int, list[Place]]]) -> None:
    index, known = LowestData(), dict[int, list[Place]]()
    for producer_id, places in changes:
        index.put(
            producer_id, tuple(PartitionOffset(TopicPartition("orders", number), start) for number, start in places)
        )
        known[producer_id] = places
        by_partition: dict[int, list[Place]] = {}
        for one, held in known.items():
            for number, start in held:
                by_partition.setdefault(number, []).append((start, one))
        assert {one for one in range(6) if one in index} == {min(held)[1] for held in by_partition.values()}


Change = tuple[int, tuple[int, int] | None]  # a producer id; its partition and age step, None: it ends
changes: st.SearchStrategy[Change] = st.tuples(
    st.integers(0, 19), st.none() | st.tuples(st.integers(0, 5), st.integers(0, 9))
)


@pytest.mark.parametrize("is_kept", [True, False], ids=["kept in memory", "read anew"])
@given(batches=st.lists(st.lists(changes, max_size=8, unique_by=lambda change: change[0]), max_size=12))
def test_the_places_are_those_of_a_plain_search(
    batches: list[list[Change]],
    is_kept: bool,  # noqa: FBT001 - pytest calls it
) -> None:
    few_oldest, few_holders = 3, 2
    run, offset = Kept(), 0
    is_open: dict[int, tuple[int, int, int]] = {}  # producer id -> its partition, its start, since when
    known: dict[str, Any] = {
        "leaders": {log_numbered(0): Leader(1, 0), log_numbered(1): Leader(2, 0)},
        "clocks": {1: Clock(0, 5, START_MS), 2: Clock(AHEAD_MS, AHEAD_MS + 5, START_MS)},
    }
    with (
        mock.patch.object(open_transactions, "FOLLOWED", few_oldest),
        mock.patch.object(open_transactions, "HOLDING", few_holders),
    ):
        for batch in batches:
            facts: list[Fact] = []
            for producer_id, begun in batch:
                offset += 100
                facts += change_of(producer_id, begun, offset, is_open)
            run.batch(*facts, **known)
            oldest = sorted(is_open, key=lambda one: is_open[one][2])
            lowest = {
                min((start, one) for one, (at, start, _) in is_open.items() if at == number)[1]
                for number in {at for at, _, _ in is_open.values()}
            }
            assert run.bucket.followed.keys() == set(oldest[:few_oldest])
            holders = [one for one in oldest[few_oldest:] if one in lowest]
            assert run.bucket.holding.keys() == set(holders[:few_holders])
            if not is_kept:
                run.bucket = decode_bucket(encode_bucket(run.bucket))


def change_of(
    producer_id: int, begun: tuple[int, int] | None, offset: int, is_open: dict[int, tuple[int, int, int]]
) -> list[Fact]:
    """The records of one change; producers have no equal start. What was open before ends with the same batch."""
    log_partition = producer_id % 2
    of_id: dict[str, Any] = {"producer_id": producer_id, "transactional_id": f"app-{producer_id}"}
    of_id["log_partition"] = log_partition
    facts: list[Fact] = []
    if producer_id in is_open:
        at = TopicPartition("orders", is_open.pop(producer_id)[0])
        facts.append(transaction(offset, S.COMPLETE_COMMIT, **of_id))
        facts.append(seen(offset, offset + 10, producer_id=producer_id, partition=at, marker=a_marker(offset + 2)))
    if begun is not None:
        number, step = begun
        begun_ms = START_MS - 100_000 + step * 10_000 + producer_id * 100
        stamp_ms, at, start = begun_ms + log_partition * AHEAD_MS, TopicPartition("orders", number), offset + 30
        times: dict[str, Any] = {"start_ms": stamp_ms, "record_timestamp_ms": stamp_ms, "timeout_ms": 900_000}
        facts.append(transaction(offset + 1, S.ONGOING, at, **of_id, **times))
        facts.append(seen(start - 5, start + 10, data=start, producer_id=producer_id, partition=at, listed_ms=START_MS))
        is_open[producer_id] = (number, start, begun_ms)
    return facts
