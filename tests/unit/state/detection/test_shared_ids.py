"""Two transactional ids with one producer id: the state hides no hang, and ends no transaction of the other id."""

from __future__ import annotations

import pytest

from support.facts import (
    NAME,
    ORDERS,
    PAYMENTS,
    PRODUCER,
    START_MS,
    TIMEOUT_MS,
    BucketRun,
    gone,
    log_notice,
    seen,
    transaction,
)
from txnwatch.state.evidence.confirmation import names_in_log
from txnwatch.state.model.facts import NoticeKind, TransactionSeen
from txnwatch.state.model.findings import SpanCandidate, StrayWrite, TransactionCandidate, TransactionMoved
from txnwatch.state.model.transaction import CoordinatorView, EpochUse
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition, log_numbered
from txnwatch.state.model.verdicts import Verdict

SECOND = "restored-1"


def of_second(offset: int, state: S, *held: object, log_partition: int = 0, **changes: object) -> TransactionSeen:
    return transaction(offset, state, *held, transactional_id=SECOND, log_partition=log_partition, **changes)  # type: ignore[arg-type]


def view_after(*facts: TransactionSeen) -> CoordinatorView:
    run = BucketRun()
    for fact in facts:
        run.batch(fact)
    view = run.producer().view
    assert view is not None
    return view


@pytest.mark.parametrize("log_partition", [0, 1])
def test_an_idle_id_never_replaces_a_live_transaction(log_partition: int) -> None:
    view = view_after(transaction(1, S.ONGOING, ORDERS), of_second(2, S.EMPTY, log_partition=log_partition))
    assert (view.transactional_id, view.state, view.also_used_by) == (NAME, S.ONGOING, SECOND)
    assert view.holds(ORDERS)


def test_a_live_transaction_replaces_an_idle_id() -> None:
    view = view_after(transaction(5, S.COMPLETE_COMMIT), of_second(2, S.ONGOING, ORDERS))
    assert (view.transactional_id, view.state, view.also_used_by) == (SECOND, S.ONGOING, NAME)


def test_of_two_idle_ids_the_newer_record_stays() -> None:
    first, second = transaction(1, S.COMPLETE_COMMIT), of_second(2, S.EMPTY)
    assert view_after(first, second).transactional_id == SECOND
    assert view_after(second, first).transactional_id == SECOND


def test_the_other_name_stays_and_nothing_is_inherited() -> None:
    first = transaction(1, S.COMPLETE_COMMIT, ORDERS, producer_epoch=1, data_epoch=0, epoch_use=EpochUse.RAISED)
    begun = of_second(2, S.ONGOING, PAYMENTS, producer_epoch=1, data_epoch=1)
    view = view_after(first, begun, of_second(3, S.COMPLETE_ABORT, producer_epoch=2))
    assert (view.also_used_by, view.epoch_use, view.participants) == (NAME, EpochUse.SHARED, frozenset({PAYMENTS}))


def test_a_hang_is_a_candidate_that_names_both_ids() -> None:
    run = BucketRun()
    run.batch(
        seen(0, 10, data=5),
        transaction(1, S.ONGOING, ORDERS),
        transaction(3, S.COMPLETE_COMMIT),
        of_second(2, S.EMPTY),
    )
    (candidate,) = run.batch()
    assert isinstance(candidate, SpanCandidate)
    assert names_in_log(candidate) == {NAME, SECOND}


def test_a_tombstone_of_one_id_does_not_end_the_other() -> None:
    run = BucketRun()
    run.batch(transaction(1, S.ONGOING, ORDERS), of_second(2, S.EMPTY))
    run.batch(gone(3, SECOND))
    view = run.producer().view
    assert view is not None
    assert view.holds(ORDERS)


def test_a_verdict_about_a_transaction_does_not_end_with_a_record_of_the_other_id() -> None:
    run = BucketRun()
    run.batch(transaction(1, S.ONGOING, ORDERS))
    run.pass_time(TIMEOUT_MS + 60_000)
    late = [one for one in run.batch() if isinstance(one, TransactionCandidate)]
    assert [one.verdict for one in late] == [Verdict.LATE]
    emitted = run.batch(of_second(2, S.COMPLETE_COMMIT, start_ms=START_MS + 7))
    assert not [one for one in emitted if isinstance(one, TransactionMoved)]
    emitted = run.batch(transaction(3, S.PREPARE_ABORT, ORDERS))
    assert [one.verdict for one in emitted if isinstance(one, TransactionMoved)] == [Verdict.LATE]


def test_data_of_two_ids_is_no_stray_write() -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=5), transaction(1, S.ONGOING, ORDERS), of_second(2, S.ONGOING, ORDERS, producer_epoch=1))
    emitted = run.batch(seen(10, 20, data=12, epoch=1))
    assert not [one for one in emitted if isinstance(one, StrayWrite)]


def test_a_span_that_the_other_id_may_have_held_is_no_stray_write() -> None:
    run = BucketRun()
    run.batch(transaction(1, S.ONGOING, PAYMENTS), of_second(2, S.ONGOING, ORDERS), seen(0, 10, data=5))
    emitted = run.batch(transaction(3, S.COMPLETE_COMMIT), of_second(4, S.ONGOING, ORDERS, PAYMENTS))
    assert not [one for one in emitted if isinstance(one, StrayWrite)]
    assert run.producer().spans[ORDERS].uncovered_at is None


@pytest.mark.parametrize("never_read", [frozenset(), frozenset({log_numbered(9)})], ids=["read", "never read"])
@pytest.mark.parametrize("stale", [frozenset(), frozenset({log_numbered(9)})], ids=["has a leader", "has none"])
def test_open_data_is_a_stray_write_only_if_each_part_of_the_log_was_read_once(
    stale: frozenset[TopicPartition], never_read: frozenset[TopicPartition]
) -> None:
    """Another id with the producer id may have held the data, in a partition of the log that was never read."""
    run = BucketRun()
    run.batch(
        seen(0, 10, data=5),
        transaction(1, S.COMPLETE_COMMIT),
        first_readings=frozenset({log_numbered(9)}),
        stale_coordinator=never_read,
    )
    emitted = run.batch(transaction(2, S.ONGOING, ORDERS), stale_coordinator=stale | never_read)
    assert bool([one for one in emitted if isinstance(one, StrayWrite)]) is not bool(never_read)


AWAY = frozenset({log_numbered(9)})
FIRST_READINGS = {
    "read to its end at once": ([{"first_readings": AWAY}], True),
    "it has no leader since the start": ([{"first_readings": AWAY, "stale_coordinator": AWAY}], False),
    "not read to its end yet": (
        [{"first_readings": AWAY, "stale_coordinator": AWAY}, {"stale_coordinator": AWAY}],
        False,
    ),
    "read to its end later": ([{"first_readings": AWAY, "stale_coordinator": AWAY}, {}], True),
    "read once, and without a leader since": ([{"first_readings": AWAY}, {"stale_coordinator": AWAY}], True),
}


@pytest.mark.parametrize(("barriers", "expected"), FIRST_READINGS.values(), ids=FIRST_READINGS.keys())
def test_the_log_is_read_once_each_part_was_read_to_a_listed_end(
    barriers: list[dict[str, frozenset[TopicPartition]]], *, expected: bool
) -> None:
    run = BucketRun()
    for barrier in barriers:
        run.batch(**barrier)
    last = {name: value for name, value in barriers[-1].items() if name == "stale_coordinator"}
    run.batch(seen(0, 10, data=5), transaction(1, S.COMPLETE_COMMIT), **last)
    (candidate,) = run.batch(**last)
    assert isinstance(candidate, SpanCandidate)
    assert candidate.is_log_read is expected


def test_a_range_that_cannot_be_read_is_no_first_reading() -> None:
    """The leader may go away between the listing and the reading; the partition was read before."""
    run = BucketRun()
    run.batch(first_readings=AWAY)
    run.batch(seen(0, 10, data=5), transaction(1, S.COMPLETE_COMMIT), log_notice(NoticeKind.GAP, 6, 9))
    (candidate,) = [one for one in run.batch(stale_coordinator=AWAY) if isinstance(one, SpanCandidate)]
    assert candidate.is_log_read


def test_the_time_of_an_end_is_not_measured_from_a_record_of_the_other_id() -> None:
    run = BucketRun()
    run.batch(transaction(1, S.PREPARE_COMMIT, ORDERS))
    run.batch(of_second(2, S.COMPLETE_COMMIT))
    assert run.ended == []
    assert PRODUCER in run.store.rows


def test_a_tombstone_ends_the_id_on_its_own_part_of_the_log_only() -> None:
    """Partitions were added to the log: an id has old records on another one, and they expire there (KAFKA-7771)."""
    run = BucketRun()
    run.batch(transaction(1, S.ONGOING, ORDERS, log_partition=5))
    run.batch(gone(9, log_partition=1))
    assert run.producer().view == view_after(transaction(1, S.ONGOING, ORDERS, log_partition=5))
    run.batch(gone(9, log_partition=5))
    view = run.producer().view
    assert view is not None
    assert view.state is S.DEAD
