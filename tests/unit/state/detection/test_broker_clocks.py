"""What records show about the brokers' clocks: bounds, how they are combined, and what makes them invalid."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from support.facts import ORDERS, START_MS, TIMEOUT_MS, BucketRun, census, seen, transaction
from txnwatch.state.detection.broker_clocks import Clocks, Leadership, learned
from txnwatch.state.model.clocks import Clock, Leader, both
from txnwatch.state.model.facts import Barrier
from txnwatch.state.model.transaction import CoordinatorView
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition, log_numbered

NOW_MS = START_MS + 10_000_000
WIDE, NARROW = Clock(-5_000, 5_000, NOW_MS), Clock(-100, 400, NOW_MS)

LEARNED = {
    "the first": (None, NARROW, NARROW),
    "narrower": (WIDE, NARROW, NARROW),
    "wider": (NARROW, WIDE, NARROW),
    "hardly narrower: nothing is written": (WIDE, Clock(-4_500, 4_500, NOW_MS), WIDE),
    "an upper bound where there was none": (
        Clock(-100, None, NOW_MS),
        Clock(-200, 700, NOW_MS),
        Clock(-100, 700, NOW_MS),
    ),
    "no upper bound takes none away": (NARROW, Clock(-9_000, None, NOW_MS), NARROW),
    "it was set back": (NARROW, Clock(-61_000, -60_000, NOW_MS), Clock(-61_000, -60_000, NOW_MS, NOW_MS)),
    "it was set forward": (NARROW, Clock(59_000, None, NOW_MS), Clock(59_000, None, NOW_MS, NOW_MS)),
}


@pytest.mark.parametrize(("known", "reported", "expected"), LEARNED.values(), ids=LEARNED.keys())
def test_a_batch_gives_the_expected_bounds_of_a_clock(known: Clock | None, reported: Clock, expected: Clock) -> None:
    assert learned(known, reported) == expected


def test_two_records_of_one_clock_prove_more_than_one() -> None:
    assert both(WIDE, NARROW) == NARROW
    assert both(None, WIDE) == WIDE
    assert not both(Clock(50, None, 1), Clock(-9, 40, 1)).is_possible


def test_a_clock_may_drift_while_it_stamps_nothing() -> None:
    assert NARROW.now(NOW_MS + 1_000_000) == Clock(-1_100, 1_400, NOW_MS + 1_000_000)
    assert NARROW.now(NOW_MS - 1_000_000) == NARROW


@pytest.mark.parametrize(
    ("clock", "shown_ms"),
    [
        (NARROW, 0),
        (Clock(300, 900, 1), 300),
        (Clock(-900, -300, 1), -300),
        (Clock(-90, None, 1), 0),
        (Clock(7, None, 1), 7),
    ],
    ids=["right, as far as is known", "ahead", "behind", "at most right", "ahead, who knows how far"],
)
def test_the_shown_clock_difference_is_the_smallest_possible_one(clock: Clock, shown_ms: int) -> None:
    assert clock.presumed_ms == shown_ms


def a_barrier(leaders: dict[TopicPartition, Leader], clocks: dict[int, Clock], now_ms: int) -> Barrier:
    """A barrier for each millisecond."""
    return Barrier(now_ms - NOW_MS + 1, now_ms, now_ms, leaders=leaders, clocks=clocks)


def test_an_inverted_interval_proves_nothing() -> None:
    clocks = Clocks()
    assert not clocks.take(a_barrier({}, {1: Clock(50, 40, NOW_MS)}, NOW_MS))
    assert clocks.brokers == {}


def test_a_broker_that_takes_over_may_be_another_machine() -> None:
    clocks = Clocks()
    assert clocks.take(a_barrier({log_numbered(0): Leader(1, 5), log_numbered(1): Leader(1, 7)}, {1: NARROW}, NOW_MS))
    assert not clocks.take(a_barrier({log_numbered(0): Leader(1, 5)}, {}, NOW_MS + 1))
    assert clocks.take(a_barrier({log_numbered(0): Leader(1, 6)}, {}, NOW_MS + 2))
    assert (clocks.brokers, clocks.reigns) == (
        {},
        {
            log_numbered(0): Leadership(Leader(1, 6), NOW_MS + 2, 3),
            log_numbered(1): Leadership(Leader(1, 7), NOW_MS, 1),
        },
    )


def test_a_broker_that_leads_nothing_any_more_is_forgotten() -> None:
    clocks = Clocks()
    clocks.take(a_barrier({log_numbered(0): Leader(1, 5)}, {1: NARROW}, NOW_MS))
    clocks.take(a_barrier({log_numbered(0): Leader(2, 6)}, {}, NOW_MS + 1))
    assert clocks.brokers == {}


LOG, KEPT = log_numbered(0), Leader(1, 5, "a")
NEXT_LISTING = {
    "the same connection": ({LOG: KEPT}, {1: NARROW}),
    "another connection: the leader may have restarted": ({LOG: Leader(1, 5, "b")}, {}),
    "another leader": ({LOG: Leader(2, 6, "a")}, {}),
    "no answer": ({}, {}),
}


@pytest.mark.parametrize(("leaders", "expected"), NEXT_LISTING.values(), ids=NEXT_LISTING.keys())
def test_bounds_of_a_leader_that_may_keep_its_epoch_count_from_the_next_listing(
    leaders: dict[TopicPartition, Leader], expected: dict[int, Clock]
) -> None:
    clocks = Clocks()
    clocks.take(a_barrier({LOG: KEPT}, {1: NARROW}, NOW_MS))
    assert clocks.brokers == {}
    without_answer = {LOG} - leaders.keys()
    clocks.take(replace(a_barrier(leaders, {}, NOW_MS + 1), stale_coordinator=frozenset(without_answer)))
    clocks.take(a_barrier({LOG: KEPT}, {}, NOW_MS + 2))
    assert clocks.brokers == expected


def test_bounds_that_are_contradicted_are_dropped_at_once_although_the_new_ones_wait() -> None:
    clocks, later = Clocks(), NOW_MS + 2
    clocks.take(a_barrier({LOG: KEPT}, {1: NARROW}, NOW_MS))
    clocks.take(a_barrier({LOG: KEPT}, {}, NOW_MS + 1))
    clocks.take(a_barrier({LOG: KEPT}, {1: Clock(-61_000, -60_000, later)}, later))
    assert clocks.brokers == {}
    assert clocks.reigns[LOG].set_ms == later
    clocks.take(a_barrier({LOG: KEPT}, {}, NOW_MS + 3))
    assert clocks.brokers == {1: Clock(-61_000, -60_000, later)}


def test_bounds_that_show_nothing_new_are_not_held() -> None:
    clocks = Clocks()
    clocks.take(a_barrier({LOG: KEPT}, {1: NARROW}, NOW_MS))
    clocks.take(a_barrier({LOG: KEPT}, {1: WIDE}, NOW_MS))
    assert (clocks.brokers, clocks.held) == ({1: NARROW}, {})


def a_view(state: S, *, seen_ms: int, **changes: object) -> CoordinatorView:
    return transaction(1, state, ORDERS, coordinator_epoch=5, since_ms=seen_ms, **changes).view


REIGN, HOUR_AHEAD = Leadership(Leader(1, 5), START_MS, 1), Clock(3_600_000, 3_600_500, NOW_MS)
LONG_AGO = NOW_MS - START_MS
AGES = {
    "seen since it was prepared": (a_view(S.PREPARE_COMMIT, seen_ms=START_MS), None, None, LONG_AGO),
    "prepared before we looked, no clock known": (a_view(S.PREPARE_COMMIT, seen_ms=NOW_MS), None, None, 0),
    "prepared before we looked, by its own clock": (
        a_view(S.PREPARE_COMMIT, seen_ms=NOW_MS, record_timestamp_ms=START_MS + 3_600_000),
        REIGN,
        HOUR_AHEAD,
        LONG_AGO,
    ),
    "prepared under an earlier leader": (
        a_view(S.PREPARE_COMMIT, seen_ms=NOW_MS - 7),
        REIGN._replace(leader=Leader(1, 6)),
        HOUR_AHEAD,
        7,
    ),
    "prepared before the clock was set": (
        a_view(S.PREPARE_COMMIT, seen_ms=NOW_MS - 7),
        REIGN,
        HOUR_AHEAD._replace(set_ms=NOW_MS - 5),
        7,
    ),
    "begun before we looked, as its coordinator sees it": (
        a_view(S.ONGOING, seen_ms=NOW_MS),
        REIGN,
        HOUR_AHEAD,
        LONG_AGO + 3_600_000,
    ),
    "its coordinator has just taken over": (
        a_view(S.ONGOING, seen_ms=NOW_MS),
        REIGN._replace(leader=Leader(1, 6), since_ms=NOW_MS - 9_000),
        HOUR_AHEAD,
        TIMEOUT_MS + 9_000,
    ),
    "its coordinator is behind, and we have seen it for long": (
        a_view(S.ONGOING, seen_ms=START_MS),
        REIGN,
        Clock(-3_600_000, None, NOW_MS),
        LONG_AGO,
    ),
}


@pytest.mark.parametrize(("view", "reign", "clock", "age_ms"), AGES.values(), ids=AGES.keys())
def test_a_transaction_has_the_expected_minimum_age(
    view: CoordinatorView, reign: Leadership | None, clock: Clock | None, age_ms: int
) -> None:
    clocks = Clocks({1: clock} if clock is not None else {}, {log_numbered(0): reign} if reign is not None else {})
    assert clocks.age_ms(view, NOW_MS) == age_ms


def test_a_record_that_came_after_the_listing_counts_from_the_next_that_can_show_it() -> None:
    """The log was cut below the end that was listed, and written again under a later epoch, before it was read."""
    run = BucketRun()
    run.batch(transaction(6, S.PREPARE_COMMIT, ORDERS, coordinator_epoch=2), leaders={log_numbered(0): Leader(1, 1)})
    run.pass_time(60_000)
    run.batch(stale_coordinator=frozenset({log_numbered(0)}))
    run.batch(leaders={log_numbered(0): Leader(2, 3)})
    view, listed_ms = run.producer().view, run.now_ms
    assert view is not None
    assert view.since_ms == listed_ms
    run.batch(leaders={log_numbered(0): Leader(2, 3)})
    view = run.producer().view
    assert view is not None
    assert view.since_ms == listed_ms, "the first listing counts"


def test_a_record_of_the_epoch_that_was_listed_counts_from_that_listing() -> None:
    run = BucketRun()
    run.batch(transaction(6, S.PREPARE_COMMIT, ORDERS, coordinator_epoch=1), leaders={log_numbered(0): Leader(1, 1)})
    view = run.producer().view
    assert view is not None
    assert view.since_ms == run.now_ms


def test_where_a_leader_may_keep_its_epoch_a_record_counts_from_the_next_listing() -> None:
    """The leader may have lost its tail after the listing, and have appended the record before it was read."""
    run = BucketRun()
    leaders = {log_numbered(0): Leader(1, 1, "0 0")}
    run.batch(transaction(6, S.PREPARE_COMMIT, ORDERS, coordinator_epoch=1), leaders=leaders)
    view = run.producer().view
    assert view is not None
    assert view.since_ms is None
    run.batch(seen(0, 4, data=2), *census(2), leaders=leaders)
    view, listed_ms = run.producer().view, run.now_ms
    assert view is not None
    assert view.since_ms == listed_ms, "neither data of the producer nor a census puts it off"
