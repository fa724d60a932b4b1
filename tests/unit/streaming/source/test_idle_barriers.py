"""Which barriers are left out, and that what is damaged, late or missing leaves out none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.facts import BucketRun, notice, seen, transaction
from txnwatch.state.model.facts import Fact, NoticeKind
from txnwatch.state.model.findings import BucketCount
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import NEVER_MS, TopicPartition
from txnwatch.streaming.source.driver_file import NextBarrierDue, next_barrier_due
from txnwatch.streaming.source.lister import can_skip
from txnwatch.streaming.source.offsets import NotBegun, Position, SourceOffset

ORDERS, LOG = TopicPartition("orders", 0), TopicPartition("__transaction_state", 3)
BEFORE = SourceOffset(
    "cluster", 7, 1_000, 1_001, {ORDERS: Position("id", 9, 3, 9, leader=1), LOG: Position("log", 5, 0, 5, leader=1)}
)
SAME = replace(BEFORE, barrier=8, data_listed_ms=2_000, coordinator_listed_ms=2_001)
NOTHING_DUE = NextBarrierDue(7, NEVER_MS)


def at(offset: SourceOffset, position: Position) -> SourceOffset:
    return replace(offset, positions={**offset.positions, ORDERS: position})


def test_a_barrier_can_be_skipped_if_nothing_has_changed_and_nothing_is_due() -> None:
    assert can_skip(BEFORE, SAME, NOTHING_DUE)
    assert can_skip(BEFORE, SAME, NextBarrierDue(7, 2_002))


NEEDED = {
    "nobody knows when the next one is due": (BEFORE, SAME, None),
    "it is due": (BEFORE, SAME, NextBarrierDue(7, 2_001)),
    "it is due at once": (BEFORE, SAME, NextBarrierDue(7, 0)),
    "the batch before is not judged yet": (BEFORE, SAME, NextBarrierDue(6, NEVER_MS)),
    "data was written": (BEFORE, at(SAME, Position("id", 10, 3, 10, leader=1)), NOTHING_DUE),
    "data was cut": (BEFORE, at(SAME, Position("id", 8, 3, 8, leader=1)), NOTHING_DUE),
    "a leader was elected": (BEFORE, at(SAME, Position("id", 9, 4, 9, leader=2)), NOTHING_DUE),
    "the topic is another one": (BEFORE, at(SAME, Position("new", 9, 3, 9, leader=1)), NOTHING_DUE),
    "a partition does not answer": (BEFORE, at(SAME, Position("id", 9, 3, 9, is_stale=True, leader=1)), NOTHING_DUE),
    "it did not answer before either": (
        at(BEFORE, Position("id", 9, 3, 9, is_stale=True, leader=1)),
        at(SAME, Position("id", 9, 3, 9, is_stale=True, leader=1)),
        NOTHING_DUE,
    ),
    "a limit holds it back": (
        at(BEFORE, Position("id", 9, 3, 12, leader=1)),
        at(SAME, Position("id", 9, 3, 12, leader=1)),
        NOTHING_DUE,
    ),
    "it is not begun": (
        at(BEFORE, NotBegun("id")),
        at(SAME, NotBegun("id")),
        NOTHING_DUE,
    ),
    "reading begins": (BEFORE, replace(SAME, begun={ORDERS: 9}), NOTHING_DUE),
    "the batch before began to read": (replace(BEFORE, begun={ORDERS: 9}), SAME, NOTHING_DUE),
    "the batch before read again": (replace(BEFORE, reread={ORDERS: 2}), SAME, NOTHING_DUE),
    "something is read again": (BEFORE, replace(SAME, reread={ORDERS: 2}), NOTHING_DUE),
    "a partition is gone": (BEFORE, replace(SAME, gone={ORDERS: "id"}), NOTHING_DUE),
    "the backlog of a log ends elsewhere": (BEFORE, replace(SAME, backlog_end={LOG: 5}), NOTHING_DUE),
    "coordinators look less often": (BEFORE, replace(SAME, scan_interval_ms=60_000), NOTHING_DUE),
}


@pytest.mark.parametrize(("before", "after", "judged"), NEEDED.values(), ids=NEEDED.keys())
def test_a_barrier_that_may_have_new_information_takes_place(
    before: SourceOffset, after: SourceOffset, judged: NextBarrierDue | None
) -> None:
    assert not can_skip(before, after, judged)


def due_ms(run: BucketRun, *facts: Fact) -> int:
    run.batch(*facts)
    (count,) = run.counts
    return count.due_ms


def test_a_bucket_emits_when_its_next_evaluation_is_due() -> None:
    run = BucketRun()
    assert due_ms(run) == NEVER_MS
    owner = transaction(1, S.ONGOING, ORDERS, start_ms=run.now_ms)
    assert run.now_ms < due_ms(run, seen(0, 10, data=5), owner) < NEVER_MS, "its timeout"
    assert due_ms(run, transaction(2, S.COMPLETE_ABORT, start_ms=owner.view.start_ms)) == 0, "nobody holds it any more"
    assert due_ms(BucketRun(), notice(NoticeKind.GAP, 3)) == 0


def a_count(due_ms: int) -> BucketCount:
    return BucketCount(7, 0, (), (), 0, 0, (), -1, -1, due_ms, 0)


DUE: dict[str, tuple[list[BucketCount], int, NextBarrierDue | None]] = {
    "the first bucket that is due decides": ([a_count(900), a_count(500)], NEVER_MS, NextBarrierDue(7, 500)),
    "the ledger cannot wait": ([a_count(900), a_count(500)], 0, NextBarrierDue(7, 0)),
    "the ledger is due first": ([a_count(900), a_count(500)], 400, NextBarrierDue(7, 400)),
    "a bucket is missing": ([a_count(900)], NEVER_MS, None),
    "no bucket": ([], 0, None),
}


@pytest.mark.parametrize(("counts", "ledger_ms", "due"), DUE.values(), ids=DUE.keys())
def test_the_next_barrier_is_due_at_the_expected_time(
    counts: list[BucketCount], ledger_ms: int, due: NextBarrierDue | None
) -> None:
    assert next_barrier_due(counts, 2, ledger_ms) == due
