"""The open list has the oldest open transactions of a bucket at all times: a free place is filled in the same batch."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.facts import (
    START_MS,
    BucketRun,
    Kept,
    a_marker,
    census,
    decode_bucket,
    encode_bucket,
    gone,
    notice,
    seen,
    transaction,
)
from txnwatch.state.detection import bucket as buckets
from txnwatch.state.detection import open_transactions
from txnwatch.state.detection.bucket_indexes import OpenAges, starts_of
from txnwatch.state.detection.open_transactions import FOLLOWED, LastOpenLists
from txnwatch.state.model.clocks import Clock, Leader
from txnwatch.state.model.facts import Fact, LastStable, NoticeKind
from txnwatch.state.model.findings import BucketCount, CensusReason, OpenTransactions
from txnwatch.state.model.transaction import ProducerState
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition, log_numbered
from txnwatch.streaming.source.planner import census_of, requests_after

MANY = 200
FEW = 4  # places of the list in the random sequences
AHEAD_MS = 3_600_000  # the leader of log partition 1 is ahead of our clock


def partition_of(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


def opened(number: int) -> list[Fact]:
    held = partition_of(number)
    at_ms = START_MS - 10_000 + number
    return [
        transaction(
            number + 1,
            S.ONGOING,
            held,
            producer_id=number,
            transactional_id=f"app-{number}",
            timeout_ms=900_000,
            start_ms=at_ms,
            record_timestamp_ms=at_ms,
        ),
        seen(0, 10, data=5, producer_id=number, partition=held, listed_ms=at_ms),
    ]


def ended(*numbers: int) -> list[Fact]:
    """The ends of some transactions in the coordinators' log, and their markers."""
    facts: list[Fact] = []
    for number in numbers:
        name, held = f"app-{number}", partition_of(number)
        facts.append(transaction(MANY + number + 1, S.COMPLETE_COMMIT, producer_id=number, transactional_id=name))
        facts.append(seen(10, 20, producer_id=number, partition=held, marker=a_marker(12, commit=True)))
    return facts


def many_open() -> Kept:
    run = Kept()
    run.batch(*(fact for number in range(MANY) for fact in opened(number)))
    for _ in range(6):
        run.batch()
    return run


def test_other_open_producers_get_free_places_at_once() -> None:
    run = BucketRun()
    run.batch(*(fact for number in range(MANY) for fact in opened(number)))
    run.batch()
    assert run.bucket.followed.keys() == set(range(FOLLOWED))
    run.batch(*ended(*range(FOLLOWED)))
    assert sorted(run.bucket.followed) == list(range(FOLLOWED, MANY))
    assert run.counts[0].oldest_open_ms == START_MS - 10_000 + FOLLOWED


def oldest_open(run: Kept) -> set[int]:
    """The producers that have a right to a place, from the stored rows; no clock of a broker is known."""
    known = [run.store.get(producer_id) for producer_id in run.store.rows]
    ages = sorted(
        (min(start.at_ms for start in starts_of(one)), one.producer_id) for one in known if one and one.is_awaited
    )
    return {producer_id for _, producer_id in ages[:FOLLOWED]}


OF_FIRST: dict[str, Any] = {"producer_id": 0, "transactional_id": "app-0", "timeout_ms": 900_000}
MARKED = seen(10, 20, producer_id=0, partition=partition_of(0), marker=a_marker(12))
COMPLETE = transaction(900, S.COMPLETE_ABORT, **OF_FIRST)
WAYS_OUT: dict[str, tuple[list[Fact], ...]] = {
    "it is committed": (ended(0),),
    "its marker is read after its last record": ([COMPLETE], [MARKED]),
    "its coordinator aborts it": ([transaction(899, S.PREPARE_ABORT, partition_of(0), **OF_FIRST)], [COMPLETE, MARKED]),
    "its id expires and its topic is deleted": (
        [gone(900, "app-0"), notice(NoticeKind.DELETED, 0, partition=partition_of(0))],
    ),
    "its data is truncated": ([COMPLETE, notice(NoticeKind.TRUNCATED, 0, partition=partition_of(0))],),
    "the leader does not show it any more": (
        [COMPLETE],
        census(below=20, stable=20, partition=partition_of(0)),
        [],
    ),
    "a newer one begins": (
        [COMPLETE, MARKED, transaction(901, S.ONGOING, partition_of(0), start_ms=START_MS, **OF_FIRST)],
    ),
}


@pytest.mark.parametrize("is_kept", [True, False], ids=["kept in memory", "read anew"])
@pytest.mark.parametrize("batches", WAYS_OUT.values(), ids=WAYS_OUT.keys())
def test_the_place_of_a_transaction_is_free_however_it_ends(
    batches: tuple[list[Fact], ...],
    is_kept: bool,  # noqa: FBT001 - pytest calls it
) -> None:
    run = many_open()
    for facts in batches:
        assert run.bucket.followed.keys() == oldest_open(run) == set(range(FOLLOWED))
        if not is_kept:
            run.bucket = decode_bucket(encode_bucket(run.bucket))
        run.batch(*facts)
    assert run.bucket.followed.keys() == oldest_open(run) == set(range(1, FOLLOWED + 1))


def test_of_thousands_that_began_at_once_each_gets_a_place_in_turn() -> None:
    run, many, ending = Kept(), 2_000, 125
    begun: dict[str, Any] = {"timeout_ms": 900_000, "start_ms": START_MS - 10_000}
    run.batch(*(transaction(1, S.ONGOING, producer_id=number, **begun) for number in range(many)))
    for first in range(0, many, ending):
        assert run.bucket.followed.keys() == set(range(first, min(first + FOLLOWED, many)))
        run.batch(
            clocks={1: Clock(first, first + 5, START_MS)}, leaders={log_numbered(0): Leader(1, 0)}
        )  # evaluates all
        assert run.bucket.followed.keys() == oldest_open(run)
        run.batch(*(transaction(2, S.COMPLETE_ABORT, producer_id=one) for one in range(first, first + ending)))
    assert not run.bucket.followed


def test_no_census_is_wanted_for_an_offset_whose_owner_had_no_place_at_first() -> None:
    run = many_open()
    emitted = run.batch(*ended(*range(FOLLOWED)))
    driver = LastOpenLists()
    known = driver.whole(emitted)
    for _ in range(8):
        emitted = run.batch(*(LastStable(partition_of(number), "id", 5) for number in range(FOLLOWED, MANY)))
        known = driver.whole(emitted)
    assert any(isinstance(finding, OpenTransactions) and finding.blocked for finding in known)
    wanted = requests_after(known, {})
    assert wanted.isdisjoint(census_of(partition_of(number), CensusReason.STANDING) for number in range(MANY))


def test_a_place_that_gets_free_costs_no_evaluation() -> None:
    run = many_open()
    run.batch(*ended(0))  # the index by age is built
    reads, writes = run.store.reads, run.store.writes
    with mock.patch.object(buckets, "at_rest_until", wraps=buckets.at_rest_until) as evaluated:
        run.batch(*ended(1))
    assert FOLLOWED + 1 in run.bucket.followed
    assert evaluated.call_count == 1, "only the producer that ended"
    assert run.store.writes == writes + 1
    assert run.store.reads == reads + 2, "the producer that ended, and the one that gets its place"


def test_what_is_over_within_moments_is_in_no_index_of_places() -> None:
    run = many_open()
    for number in range(MANY, 2 * MANY):
        young: dict[str, Any] = {"producer_id": number, "transactional_id": f"app-{number}", "timeout_ms": 900_000}
        now_ms = START_MS + run.step_ms * run.number
        run.batch(transaction(10 * number, S.ONGOING, start_ms=now_ms, **young), *ended(number - MANY))
        assert run.bucket.ages is not None
        assert run.bucket.ages.producers == len(run.bucket.agenda) - 1
        run.batch(transaction(10 * number + 1, S.COMPLETE_COMMIT, **young))
        assert run.bucket.ages.producers == len(run.bucket.agenda)
    assert not run.bucket.agenda


def test_a_list_that_an_earlier_version_has_left_empty_is_filled() -> None:
    run = many_open()
    run.bucket.followed.clear()
    emitted = run.batch()
    assert run.bucket.followed.keys() == set(range(FOLLOWED))
    (count,) = (finding for finding in emitted if isinstance(finding, BucketCount))
    assert count.oldest_open_ms == START_MS - 10_000


def test_the_index_by_age_does_not_grow_with_what_has_ended() -> None:
    ages = OpenAges()
    for number in range(5_000):
        fact = transaction(number, S.ONGOING, start_ms=START_MS + number)
        ages.put(number % 10, starts_of(ProducerState(number % 10, view=fact.view)))
        assert len(ages) <= 4 * 10 + 64


Change = tuple[int, int | None]  # a producer id, and when it begins (a number of steps); None: it ends
changes: st.SearchStrategy[Change] = st.tuples(st.integers(0, 19), st.none() | st.integers(0, 9))


def fact_of(change: Change, offset: int) -> tuple[Fact, int | None]:
    """The record of one change, and when the transaction begins by our clock; producers have no equal start."""
    producer_id, step = change
    log_partition, name = producer_id % 2, f"app-{producer_id}"
    of_id: dict[str, Any] = {"producer_id": producer_id, "transactional_id": name, "log_partition": log_partition}
    if step is None:
        return transaction(offset, S.COMPLETE_COMMIT, **of_id), None
    begun_ms = START_MS - 100_000 + step * 10_000 + producer_id * 100
    stamp_ms = begun_ms + log_partition * AHEAD_MS
    at: dict[str, Any] = {"start_ms": stamp_ms, "record_timestamp_ms": stamp_ms, "timeout_ms": 900_000}
    return transaction(offset, S.ONGOING, **of_id, **at), begun_ms


@pytest.mark.parametrize("is_kept", [True, False], ids=["kept in memory", "read anew"])
@given(batches=st.lists(st.lists(changes, max_size=8, unique_by=lambda change: change[0]), max_size=12))
def test_the_list_always_has_the_oldest_open_ones(
    batches: list[list[Change]],
    is_kept: bool,  # noqa: FBT001 - pytest calls it
) -> None:
    run, began, offset = Kept(), dict[int, int](), 0
    known: dict[str, Any] = {
        "leaders": {log_numbered(0): Leader(1, 0), log_numbered(1): Leader(2, 0)},
        "clocks": {1: Clock(0, 5, START_MS), 2: Clock(AHEAD_MS, AHEAD_MS + 5, START_MS)},
    }
    with mock.patch.object(open_transactions, "FOLLOWED", FEW):
        for batch in batches:
            facts: list[Fact] = []
            for change in batch:
                offset += 1
                fact, begun_ms = fact_of(change, offset)
                facts.append(fact)
                began.pop(change[0], None)
                if begun_ms is not None:
                    began[change[0]] = begun_ms
            run.batch(*facts, **known)
            assert run.bucket.followed.keys() == set(sorted(began, key=lambda one: began[one])[:FEW])
            if not is_kept:
                run.bucket = decode_bucket(encode_bucket(run.bucket))
