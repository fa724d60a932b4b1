"""The order of the phases of a batch: what each may assume is so because of the phases before it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from unittest import mock

import pytest

from support.facts import NAME, ORDERS, OTHER, PRODUCER, BucketRun, census, gone, log_notice, notice, seen, transaction
from txnwatch.state.detection import bucket as buckets
from txnwatch.state.detection import open_transactions
from txnwatch.state.detection.bucket import PHASES
from txnwatch.state.model.facts import LastStable, NoticeKind
from txnwatch.state.model.findings import BucketCount, OpenTransactions, PartitionAlarm, SpanCandidate, StrayWrite
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.verdicts import DetectionPolicy

HOUR_MS = 3_600_000
GAP = notice(NoticeKind.GAP, 30)


def kinds(run: BucketRun) -> list[str]:
    return [finding.notice.kind for finding in run.everything if isinstance(finding, PartitionAlarm)]


def failing(run: BucketRun) -> None:
    """A range fails often enough, and the first failure is a second ago."""
    for _ in range(run.policy.unreadable_tries):
        run.batch(GAP, reread={ORDERS: 30})


def test_a_range_is_not_given_up_because_our_clock_was_set() -> None:
    run = BucketRun(step_ms=100)
    failing(run)
    run.pass_time(HOUR_MS)
    run.batch(GAP, reread={ORDERS: 30}, clock_set_by_ms=HOUR_MS)
    assert kinds(run) == ["gap"]


def test_a_range_that_is_given_up_counts_as_lost_for_its_producers() -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=5))
    run.batch(seen(10, 30, data=20))
    failing(run)
    run.pass_time(HOUR_MS)
    run.batch(GAP, reread={ORDERS: 30})
    assert kinds(run) == ["lost"]
    assert run.producer().spans[ORDERS].last_offset == 5


def test_what_a_truncated_log_has_now_is_read_after_the_truncation() -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=5))
    run.batch(notice(NoticeKind.TRUNCATED, 8), seen(5, 20, data=12))
    assert run.producer().spans[ORDERS].last_offset == 12


def test_the_owner_of_a_stray_write_may_be_in_a_later_record_of_the_batch() -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=5))
    findings = run.batch(seen(10, 20, data=12, epoch=3), transaction(1, TransactionState.ONGOING, ORDERS))
    (stray,) = (finding for finding in findings if isinstance(finding, StrayWrite))
    assert stray.view is not None
    assert stray.view.transactional_id == NAME


def test_a_census_is_later_than_the_log() -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=5), *census(below=10, stable=10))
    assert run.producer().spans[ORDERS].census_absent_at == 1, "the log has opened it, and the census does not show it"


def test_what_a_batch_emits_counts_everything_of_it() -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=5, producer_id=OTHER), transaction(1, TransactionState.ONGOING, ORDERS))
    (count,) = (finding for finding in run.everything if isinstance(finding, BucketCount))
    assert count.awaited == 2


def test_a_tombstone_is_the_last_record_of_an_id() -> None:
    run = BucketRun()
    run.batch(transaction(1, TransactionState.ONGOING, ORDERS))
    run.batch(gone(5), transaction(3, TransactionState.ONGOING, ORDERS))
    view = run.producer().view
    assert view is not None
    assert view.state is TransactionState.DEAD


def test_an_id_that_the_last_batch_of_a_new_reading_shows_is_not_gone() -> None:
    run = BucketRun()
    run.batch(transaction(5, TransactionState.ONGOING, ORDERS))
    run.batch(log_notice(NoticeKind.TRUNCATED, 3))
    run.batch(transaction(2, TransactionState.ONGOING, ORDERS), reread={log_notice(NoticeKind.GAP, 0).partition: 0})
    view = run.producer().view
    assert view is not None
    assert view.is_live


def test_an_offset_that_has_moved_is_not_blocked() -> None:
    run = BucketRun(step_ms=1_000)
    for offset in (10, 10, 10, 11):
        run.batch(LastStable(ORDERS, "orders-id", offset))
    (open_list,) = (finding for finding in run.everything if isinstance(finding, OpenTransactions))
    assert open_list.blocked == ()


def test_what_a_barrier_has_shown_is_kept_for_the_next_one() -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=5))
    assert [type(finding) for finding in run.batch()] == [SpanCandidate]


def test_a_place_of_the_open_list_that_gets_free_is_taken_and_shown_in_the_same_batch() -> None:
    with mock.patch.object(open_transactions, "FOLLOWED", 1), mock.patch.object(open_transactions, "HOLDING", 0):
        run = BucketRun(policy=DetectionPolicy(listed_after_ms=0))
        run.batch(transaction(1, TransactionState.ONGOING, ORDERS))
        run.batch(transaction(2, TransactionState.ONGOING, ORDERS, producer_id=OTHER, transactional_id="later"))
        assert run.bucket.followed.keys() == {PRODUCER}
        run.batch(transaction(3, TransactionState.COMPLETE_COMMIT))
    assert [shown.producer_id for shown in run.followed] == [OTHER]


TESTS: tuple[Callable[[], None], ...] = (
    test_a_range_is_not_given_up_because_our_clock_was_set,
    test_a_range_that_is_given_up_counts_as_lost_for_its_producers,
    test_what_a_truncated_log_has_now_is_read_after_the_truncation,
    test_the_owner_of_a_stray_write_may_be_in_a_later_record_of_the_batch,
    test_a_census_is_later_than_the_log,
    test_what_a_batch_emits_counts_everything_of_it,
    test_a_tombstone_is_the_last_record_of_an_id,
    test_an_id_that_the_last_batch_of_a_new_reading_shows_is_not_gone,
    test_an_offset_that_has_moved_is_not_blocked,
    test_what_a_barrier_has_shown_is_kept_for_the_next_one,
    test_a_place_of_the_open_list_that_gets_free_is_taken_and_shown_in_the_same_batch,
)
NAMES = [phase.__name__ for phase in PHASES]
# Two phases that follow each other and need not, because neither uses what the other one changes.
FREE = {
    ("end_ids", "end_readings"),
    ("end_readings", "take_census"),
    ("take_census", "take_clocks_and_settings"),
    ("report", "keep_changes"),
}


@pytest.mark.parametrize("pair", [pair for pair in pairwise(NAMES) if pair not in FREE], ids="-".join)
def test_a_planted_bug_in_the_order_is_found(pair: tuple[str, str]) -> None:
    at, order = NAMES.index(pair[0]), list(PHASES)
    order[at], order[at + 1] = order[at + 1], order[at]
    found = 0
    with mock.patch.object(buckets, "PHASES", tuple(order)):
        for test in TESTS:
            try:
                test()
            except (AssertionError, AttributeError, ValueError):
                found += 1
    assert found
