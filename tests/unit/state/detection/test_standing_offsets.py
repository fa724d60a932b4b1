"""Last stable offsets that do not move: when they are blocked and when forgotten; a repeated report is no change."""

from __future__ import annotations

from support.facts import ORDERS, PAYMENTS, BucketRun
from txnwatch.state.detection.reading import Standing
from txnwatch.state.model.facts import LastStable
from txnwatch.state.model.findings import OpenTransactions
from txnwatch.state.model.values import PartitionOffset

STANDS, MOVED = LastStable(ORDERS, "orders-id", 10), LastStable(ORDERS, "orders-id", 11)


def blocked(run: BucketRun) -> tuple[PartitionOffset, ...]:
    (open_list,) = (finding for finding in run.everything if isinstance(finding, OpenTransactions))
    return open_list.blocked


def test_a_last_stable_offset_that_does_not_move_is_emitted() -> None:
    run, found = BucketRun(step_ms=1_000), list[tuple[PartitionOffset, ...]]()
    for fact in (STANDS, STANDS, STANDS, MOVED):
        run.batch(fact)
        found.append(blocked(run))
    assert found == [(), (), (PartitionOffset(ORDERS, 10),), ()]


def test_a_last_stable_offset_that_is_no_longer_reported_is_forgotten() -> None:
    run = BucketRun(step_ms=1_000)
    run.batch(STANDS)
    run.batch()
    run.batch()
    assert run.bucket.readings.keys() == {ORDERS}, "it was not reported for one second"
    run.batch()
    assert run.bucket.readings == {}


def test_a_report_after_a_pause_continues_the_time_of_the_offset() -> None:
    run = BucketRun(step_ms=1_000)
    run.batch(STANDS)
    began_ms = run.now_ms
    run.batch()
    assert dict(run.bucket.standing()) == {ORDERS: Standing(10, began_ms, silent_ms=run.now_ms)}
    run.batch(STANDS)
    assert dict(run.bucket.standing()) == {ORDERS: Standing(10, began_ms, is_repeated=True)}
    assert blocked(run) == (PartitionOffset(ORDERS, 10),)


def test_an_offset_that_was_reported_once_is_never_blocked() -> None:
    run = BucketRun()
    run.batch(STANDS)
    while run.bucket.standing():
        run.batch()
        assert blocked(run) == ()


def test_what_stands_and_is_reported_changes_nothing() -> None:
    run, also = BucketRun(), LastStable(PAYMENTS, "payments-id", 3)
    run.batch(STANDS, also)
    began_ms = run.now_ms
    run.batch(STANDS, also)
    began = dict(run.bucket.standing())
    assert began == {ORDERS: Standing(10, began_ms, True), PAYMENTS: Standing(3, began_ms, True)}
    for _ in range(20):
        run.batch(also, STANDS)
        assert dict(run.bucket.standing()) == began
