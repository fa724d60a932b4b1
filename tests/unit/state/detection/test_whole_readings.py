"""After which barrier an open span began: never later than it really did, whatever could not be read meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from support.facts import ORDERS, PAYMENTS, BucketRun, a_marker, census, notice, seen
from txnwatch.state.detection.reading import Reading
from txnwatch.state.detection.span import extended
from txnwatch.state.model.facts import Fact, NoticeKind
from txnwatch.state.model.values import NO_BARRIER

BatchOf = tuple[list[Fact], dict[str, Any]]
AS_USUAL: BatchOf = ([], {})
BEGUN: BatchOf = ([], {"begun": {ORDERS}})
STALE: BatchOf = ([], {"stale_data": {ORDERS}})
LIMITED: BatchOf = ([], {"limited_data": {ORDERS}})
OTHERS_STALE: BatchOf = ([], {"stale_data": {PAYMENTS}, "limited_data": {PAYMENTS}})
GAP: BatchOf = ([notice(NoticeKind.GAP, 10, end=20)], {})
OTHERS_GAP: BatchOf = ([notice(NoticeKind.GAP, 10, partition=PAYMENTS, end=20)], {})
LEFT: BatchOf = ([notice(NoticeKind.LEFT, 10, end=20)], {})
READ_AFTER_ALL: BatchOf = ([seen(10, 20)], {"reread": {ORDERS: 10}})
READ_IN_PART: BatchOf = ([seen(15, 20)], {"reread": {ORDERS: 15}})
TRUNCATED: BatchOf = ([notice(NoticeKind.TRUNCATED, 10)], {})
TRUNCATED_AND_LIMITED: BatchOf = (TRUNCATED[0], LIMITED[1])
LOST: BatchOf = ([notice(NoticeKind.LOST, 5, end=20)], {})
CENSUS: BatchOf = (census(below=30), {})
DELETED: BatchOf = ([notice(NoticeKind.DELETED, 0)], {})

# The batches before the one that reads the data, the first of which has number 1; and the barrier that counts.
CASES: dict[str, tuple[list[BatchOf], int]] = {
    "the first batch of a watch": ([], NO_BARRIER),
    "every batch reads all": ([AS_USUAL, AS_USUAL, AS_USUAL], 3),
    "its reading began in the batch before": ([AS_USUAL, BEGUN], 2),
    "its reading began, and was limited": ([AS_USUAL, ([], BEGUN[1] | LIMITED[1])], NO_BARRIER),
    "the same, and is limited still": ([([], BEGUN[1] | LIMITED[1]), LIMITED, LIMITED], NO_BARRIER),
    "the same, and has caught up": ([([], BEGUN[1] | LIMITED[1]), LIMITED, AS_USUAL], 3),
    "it was not listed": ([AS_USUAL, AS_USUAL, STALE], 2),
    "it was not listed twice": ([AS_USUAL, AS_USUAL, STALE, STALE], 2),
    "it was not listed, and then it was": ([AS_USUAL, STALE, AS_USUAL], 3),
    "it was never listed": ([STALE, STALE], NO_BARRIER),
    "it was limited": ([AS_USUAL, LIMITED], 1),
    "it was limited, and then not listed": ([AS_USUAL, LIMITED, STALE, LIMITED], 1),
    "it was limited, and has caught up": ([AS_USUAL, LIMITED, LIMITED, AS_USUAL], 4),
    "another partition was not read": ([AS_USUAL, OTHERS_STALE, OTHERS_GAP], 3),
    "it has a gap": ([AS_USUAL, AS_USUAL, GAP], 2),
    "it has a gap since then": ([AS_USUAL, AS_USUAL, GAP, AS_USUAL, AS_USUAL], 2),
    "a part of the gap was read": ([AS_USUAL, AS_USUAL, GAP, AS_USUAL, READ_IN_PART], 2),
    "the gap was read": ([AS_USUAL, AS_USUAL, GAP, AS_USUAL, READ_AFTER_ALL], 5),
    "a range was left": ([AS_USUAL, AS_USUAL, LEFT], 2),
    "a range was left since then": ([AS_USUAL, AS_USUAL, LEFT, AS_USUAL, AS_USUAL], 2),
    "the range that was left was read": ([AS_USUAL, AS_USUAL, LEFT, AS_USUAL, READ_AFTER_ALL], 5),
    "it was truncated": ([AS_USUAL, AS_USUAL, TRUNCATED], NO_BARRIER),
    "it was truncated, and was not read to its end": ([AS_USUAL, AS_USUAL, TRUNCATED_AND_LIMITED], NO_BARRIER),
    "it was truncated, and is not read to its end since then": (
        [AS_USUAL, TRUNCATED_AND_LIMITED, LIMITED],
        NO_BARRIER,
    ),
    "it was truncated, and a census has shown what is open": ([AS_USUAL, TRUNCATED, CENSUS], 3),
    "a range is lost": ([AS_USUAL, AS_USUAL, LOST], NO_BARRIER),
    "a range is lost, and a census has shown what is open": ([AS_USUAL, LOST, CENSUS], 3),
    "its topic was deleted and created again": ([AS_USUAL, DELETED, BEGUN], 3),
}
NOW: dict[str, tuple[BatchOf, bool]] = {
    "as usual": (AS_USUAL, True),
    "while it is limited": (LIMITED, True),
    "with a gap behind it": (([notice(NoticeKind.GAP, 60, end=70)], {}), True),
    "with a rest that is left": (([notice(NoticeKind.LEFT, 60, end=70)], {}), True),
    "after a truncation": (TRUNCATED, False),
    "after a lost range": (LOST, False),
    "in the batch that begins to read it": (BEGUN, False),
    "in the batch that shows its topic deleted": (([notice(NoticeKind.DELETED, 0, topic_id="former")], {}), False),
}
DATA = seen(20, 60, data=50)


def began_after(run: BucketRun) -> int:
    return run.producer().spans[ORDERS].began_after


def run_of(batches: list[BatchOf]) -> BucketRun:
    run = BucketRun()
    for facts, exceptions in batches:
        run.batch(*facts, **exceptions)
    return run


@pytest.mark.parametrize(("before", "expected"), CASES.values(), ids=CASES.keys())
def test_a_span_began_after_the_last_barrier_at_which_its_partition_was_read_whole(
    before: list[BatchOf], expected: int
) -> None:
    run = run_of(before)
    run.batch(DATA)
    assert began_after(run) == expected


@pytest.mark.parametrize(("now", "counts"), NOW.values(), ids=NOW.keys())
def test_the_batch_that_shows_the_span_counts_no_barrier_if_its_reading_does_not_continue(
    now: BatchOf, *, counts: bool
) -> None:
    run = run_of([AS_USUAL, AS_USUAL])
    facts, exceptions = now
    run.batch(DATA, *facts, **exceptions)
    assert began_after(run) == (2 if counts else NO_BARRIER)


def test_the_state_keeps_a_number_only_for_a_partition_that_is_not_read_whole() -> None:
    run = run_of([AS_USUAL, ([], {"stale_data": {ORDERS, PAYMENTS}})])
    assert run.bucket.readings == {ORDERS: Reading(whole_at=1), PAYMENTS: Reading(whole_at=1)}
    run.batch(**STALE[1])
    assert run.bucket.readings == {ORDERS: Reading(whole_at=1)}
    run.batch()
    assert run.bucket.readings == {}


def test_later_data_of_a_span_does_not_change_when_it_began() -> None:
    run = run_of([AS_USUAL])
    run.batch(DATA)
    run.batch(seen(60, 70, data=65))
    assert (run.producer().spans[ORDERS].last_offset, began_after(run)) == (65, 1)


def test_what_was_read_before_the_known_beginning_is_older() -> None:
    """A gap is read later than what lies behind it."""
    run = run_of([AS_USUAL, AS_USUAL])
    run.batch(DATA, *GAP[0])
    assert began_after(run) == 2
    run.batch(seen(10, 60, data=15), reread={ORDERS: 10})
    assert (run.producer().spans[ORDERS].start_offset, began_after(run)) == (15, 2)


@pytest.mark.parametrize(("start", "expected"), [(5, NO_BARRIER), (10, 2), (15, 2)])
def test_a_range_is_read_again_from_where_it_was_unread_or_no_barrier_counts(start: int, expected: int) -> None:
    run = run_of([AS_USUAL, AS_USUAL, GAP, AS_USUAL])
    run.batch(seen(start, 60, data=50), reread={ORDERS: start})
    assert began_after(run) == expected


def test_a_range_that_is_read_again_without_a_reason_counts_no_barrier() -> None:
    run = run_of([AS_USUAL, AS_USUAL])
    run.batch(DATA, reread={ORDERS: 20})
    assert began_after(run) == NO_BARRIER


def test_the_next_span_begins_anew() -> None:
    run = run_of([AS_USUAL])
    run.batch(DATA)
    run.batch()
    run.batch(seen(60, 80, marker=a_marker(62), data_after=70))
    assert (run.producer().spans[ORDERS].start_offset, began_after(run)) == (70, 3)


def test_a_span_that_a_census_shows_has_no_barrier_until_the_log_shows_its_beginning() -> None:
    run = run_of([AS_USUAL, GAP, AS_USUAL])
    run.batch(*census(15, below=30))
    assert began_after(run) == NO_BARRIER
    run.batch(seen(10, 20, data=15), reread={ORDERS: 10})
    assert (run.producer().spans[ORDERS].start_offset, began_after(run)) == (15, 1)


def test_a_census_that_shows_another_start_removes_the_barrier() -> None:
    run = run_of([AS_USUAL])
    run.batch(DATA)
    run.batch(*census(40, below=60))
    span = run.producer().spans[ORDERS]
    assert (span.start_offset, span.began_after) == (40, NO_BARRIER)


@pytest.mark.parametrize(("read_since", "expected"), [(1, 1), (2, 2), (5, 2)])
def test_a_span_that_is_read_twice_began_after_the_earlier_of_two_barriers(read_since: int, expected: int) -> None:
    run = run_of([AS_USUAL, AS_USUAL])
    run.batch(DATA)
    assert extended(run.producer().spans[ORDERS], DATA, read_since).began_after == expected
