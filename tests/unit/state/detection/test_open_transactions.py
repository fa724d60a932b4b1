"""Which open transactions are listed one by one, and how many there are of each state."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from support.facts import NAME, ORDERS, PRODUCER, START_MS, BucketRun, Kept, a_marker, seen, transaction
from support.strategies import facts
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.detection.open_transactions import FOLLOWED, UNOWNED, LastOpenLists, must_emit, state_of
from txnwatch.state.model.facts import Fact
from txnwatch.state.model.findings import CensusRequest, OpenSpan, OpenTransaction, OpenTransactions
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import PartitionOffset
from txnwatch.state.model.verdicts import DetectionPolicy

AFTER_MS = DetectionPolicy().listed_after_ms


def figures(run: BucketRun) -> tuple[dict[str, int], int, int]:
    (count,) = run.counts
    return dict(count.states), count.oldest_open_ms, count.oldest_prepared_ms


def test_an_open_transaction_is_counted_at_once_and_listed_after_a_while() -> None:
    run = BucketRun()
    run.batch(transaction(1, S.ONGOING, ORDERS), seen(0, 10, data=5))
    assert figures(run) == ({"Ongoing": 1}, None, None)
    assert run.followed == []
    run.pass_time(AFTER_MS)
    run.batch()
    span = OpenSpan(ORDERS, 5, START_MS)
    assert run.followed == [OpenTransaction(PRODUCER, NAME, "Ongoing", START_MS, None, (span,), 60_000)]
    assert figures(run) == ({"Ongoing": 1}, START_MS, None)


def test_what_is_open_for_a_while_is_evaluated_once_more_for_the_list() -> None:
    run = Kept()
    run.batch(transaction(1, S.ONGOING, ORDERS, start_ms=START_MS + 500), seen(0, 10, data=5, listed_ms=START_MS + 500))
    counts = [(run.store.reads, run.store.writes)]
    for _ in range(8):
        run.batch()
        counts.append((run.store.reads, run.store.writes))
    assert run.bucket.followed.keys() == {PRODUCER}
    assert counts == [(1, 1)] * (AFTER_MS // run.step_ms) + [(2, 2)] * 5


def test_it_is_let_go_when_it_ends() -> None:
    run = BucketRun()
    run.batch(transaction(1, S.ONGOING, ORDERS), seen(0, 10, data=5))
    run.pass_time(AFTER_MS)
    run.batch()
    run.batch(seen(10, 20, marker=a_marker(12)), transaction(2, S.COMPLETE_COMMIT))
    assert run.followed == []
    assert figures(run) == ({"Ongoing": 0}, None, None)


def test_a_prepared_transaction_is_listed_at_once() -> None:
    run = BucketRun()
    run.batch(transaction(1, S.PREPARE_ABORT, ORDERS, record_timestamp_ms=START_MS + 300))
    assert figures(run) == ({"PrepareAbort": 1}, START_MS, START_MS + 300)


def test_an_empty_transaction_that_is_aborted_began_when_it_was() -> None:
    run = BucketRun()
    run.batch(transaction(1, S.PREPARE_ABORT, start_ms=None, record_timestamp_ms=START_MS + 300))
    assert figures(run) == ({"PrepareAbort": 1}, START_MS + 300, START_MS + 300)


def test_data_without_an_owner_is_listed_too() -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=5))
    run.pass_time(AFTER_MS)
    run.batch()
    (listed,) = run.followed
    assert (listed.state, listed.transactional_id) == (UNOWNED, None)


def test_each_bucket_lists_the_oldest() -> None:
    run = BucketRun()
    many = FOLLOWED + 10
    run.batch(
        *(
            transaction(number, S.ONGOING, ORDERS, producer_id=number, start_ms=START_MS - 100_000 - number)
            for number in range(many)
        )
    )
    run.pass_time(AFTER_MS)
    run.batch()
    assert {listed.producer_id for listed in run.followed} == set(range(10, many))
    assert figures(run)[0] == {"Ongoing": many}


def test_the_open_list_is_emitted_after_a_change_and_at_intervals_and_to_another_attempt() -> None:
    bucket, empty = BucketState(number=3), OpenTransactions(3, ())
    listed = OpenTransactions(3, (OpenTransaction(PRODUCER, NAME, "Ongoing", START_MS, None, ()),))
    emitted = [must_emit(bucket, empty, number) for number in (1, 2, 3)]
    assert emitted == [True, False, False], "a new process does not know what was listed"
    assert must_emit(bucket, listed, 4)
    assert not must_emit(bucket, listed, 5)
    assert must_emit(bucket, listed, 5), "the first attempt at this barrier may have been lost"
    assert [number for number in range(6, 60) if must_emit(bucket, listed, number)] == [17, 37, 57]
    assert must_emit(bucket, empty, 61), "the end of the last one is a change as well"
    assert must_emit(bucket, OpenTransactions(3, (), (PartitionOffset(ORDERS, 5),)), 62), "and so is a blocked offset"


def test_the_driver_remembers_what_each_bucket_has_emitted() -> None:
    one, other = (OpenTransaction(number, None, "Ongoing", START_MS, None, ()) for number in (1, 2))
    lag, remembered = CensusRequest(ORDERS), LastOpenLists()
    assert remembered.whole([OpenTransactions(1, (other,)), lag]) == [lag, OpenTransactions(1, (other,))]
    assert remembered.whole([OpenTransactions(0, (one,))]) == [
        OpenTransactions(0, (one,)),
        OpenTransactions(1, (other,)),
    ]
    assert remembered.whole([OpenTransactions(1, ())]) == [OpenTransactions(0, (one,)), OpenTransactions(1, ())]


@given(st.lists(st.lists(facts, max_size=4), max_size=5))
def test_the_counts_are_those_of_the_producers_that_are_kept(batches: list[list[Fact]]) -> None:
    run = BucketRun()
    for batch in batches:
        run.batch(*batch)
    kept = Counter(
        state
        for producer_id in run.store.rows
        if (producer := run.store.get(producer_id)) is not None and (state := state_of(producer)) is not None
    )
    bucket: BucketState = run.bucket
    assert {state: count for state, count in bucket.states.items() if count} == dict(kept)
    assert bucket.followed.keys() <= bucket.agenda.keys()
