"""The owner of an epoch, read from a coordinators' log that compaction has thinned out, however reading is cut."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations, pairwise

import pytest

from support.batches import a_batch, a_record
from support.facts import ORDERS, PRODUCER, BucketRun, transaction
from support.outcomes import first_leader, said
from support.row_facts import fact_of
from support.transaction_log import a_key, a_value
from txnwatch.state.evidence.outcome import expected_outcome
from txnwatch.state.model.facts import Barrier, Fact
from txnwatch.state.model.ports import SpanHistory
from txnwatch.state.model.transaction import EpochUse
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition, log_numbered
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.log.transaction_fold import TransactionFold
from txnwatch.streaming.source.offsets import Position, SourceOffset
from txnwatch.streaming.source.rows import FACTS, fact_rows
from txnwatch.streaming.source.tasks import TaskPlan, plan_facts
from txnwatch.streaming.wire.internal_topics import TransactionLogValue
from txnwatch.streaming.wire.record_batch import walk

LOG = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
NAME, END = "payments", 8
EMPTY = TransactionLogValue(1, PRODUCER, 0, 60_000, S.EMPTY, None, 1, None)
T1 = replace(EMPTY, state=S.ONGOING, partitions=((ORDERS.topic, (ORDERS.partition,)),), start_ms=1_000)
T2 = replace(T1, start_ms=2_000)
T2_PREPARED = replace(T2, state=S.PREPARE_ABORT, producer_epoch=1)
T2_ABORTED = replace(T2_PREPARED, state=S.COMPLETE_ABORT, partitions=())
T1_PREPARED = replace(T1, state=S.PREPARE_COMMIT)
T1_COMMITTED = replace(T1_PREPARED, state=S.COMPLETE_COMMIT, partitions=())


def a_log_entry(offset: int, value: TransactionLogValue | None, last_offset_delta: int = 0) -> bytes:
    """A batch of the id, or, without a value, of another one; with a delta one that has lost some of its records."""
    written = value if value is not None else replace(EMPTY, producer_id=PRODUCER + 1)
    record = a_record(key=a_key(NAME if value is not None else "another"), value=a_value(written))
    return a_batch(offset, records=[record], producer_id=-1, transactional=False, last_offset_delta=last_offset_delta)


WHOLE = [
    a_log_entry(at, value)
    for at, value in enumerate([EMPTY, T1, T1_PREPARED, T1_COMMITTED, T2, T2_PREPARED, T2_ABORTED, None])
]
ITS_END = [a_log_entry(5, T2_PREPARED), a_log_entry(6, T2_ABORTED), a_log_entry(7, None)]
OTHERS = [a_log_entry(at, None) for at in range(END)]

CASES: dict[str, tuple[list[bytes], EpochUse, str]] = {
    "whole: T1 has had the epoch too": (WHOLE, EpochUse.SHARED, "epoch_shared"),
    "swapped after the first record was read": ([WHOLE[0], *WHOLE[4:]], EpochUse.SHARED, "epoch_shared"),
    "compacted at rest": (WHOLE[4:], EpochUse.SHARED, "epoch_shared"),
    "compacted at rest, another id's record is left": (
        [WHOLE[0], OTHERS[2], *WHOLE[4:]],
        EpochUse.SHARED,
        "epoch_shared",
    ),
    "a batch of others has lost a record": (
        [WHOLE[0], a_log_entry(1, None, 2), a_log_entry(4, T2), *ITS_END],
        EpochUse.SHARED,
        "epoch_shared",
    ),
    "a hole within the transaction": (
        [*OTHERS[:2], a_log_entry(2, EMPTY), a_log_entry(3, T2), *ITS_END],
        EpochUse.SHARED,
        "epoch_shared",
    ),
    "no offset is missing: the rest is of others": (
        [WHOLE[0], *OTHERS[1:4], WHOLE[4], *ITS_END],
        EpochUse.FIRST,
        "abort",
    ),
    "a hole before InitProducerId": ([OTHERS[0], a_log_entry(3, EMPTY), WHOLE[4], *ITS_END], EpochUse.FIRST, "abort"),
    "a hole after its end": (
        [WHOLE[0], a_log_entry(1, T2), a_log_entry(2, T2_PREPARED), a_log_entry(3, T2_ABORTED), OTHERS[7]],
        EpochUse.FIRST,
        "abort",
    ),
}


def batch_of(log: list[bytes], start: int, end: int, *, at_once: bool) -> list[Fact]:
    """The facts of a range, by way of rows; a leader that answers at once sends what comes after it, too."""
    read = RangeReading(Range(LOG, "id", start, end, -1), lambda *at: TransactionFold(log_numbered(0), *at))
    ahead = [batch for batch in log if next(walk(batch))[1].last_offset >= start]
    for answer in [b"".join(ahead)] if at_once else ahead:
        if not read.fold.is_done:
            read.fold.feed(answer)
    assert read.fold.is_done
    offset = SourceOffset("cluster", 1, 900, 901, {LOG: Position("id", end, 0, end, leader=1)})
    plan = TaskPlan((Range(LOG, "id", start, end, -1),), 900, offset)
    rows = FACTS.record_batch(fact_rows(plan_facts(plan, [read]), buckets=1)).to_pylist()
    return [fact_of(row) for row in rows]


def outcome(log: list[bytes], cuts: tuple[int, ...], *, at_once: bool) -> tuple[EpochUse, str]:
    run = BucketRun()
    for start, end in pairwise((0, *cuts, END)):
        facts = batch_of(log, start, end, at_once=at_once)
        (barrier,) = [fact for fact in facts if isinstance(fact, Barrier)]
        run.batch(*[fact for fact in facts if fact is not barrier], holes=barrier.holes)
    view = run.producer().view
    assert view is not None
    history = SpanHistory(0, None, is_first=True)
    return view.epoch_use, said(expected_outcome(ORDERS, 0, first_leader(view), history, -1))


# A chunk may end before a hole, in it and behind it, or hold nothing but the hole.
CUTS = list(chain.from_iterable(combinations(range(1, END), count) for count in (0, 1, 2, END - 1)))


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "batch by batch"])
@pytest.mark.parametrize(("log", "use", "expected"), CASES.values(), ids=CASES.keys())
def test_no_record_inherits_across_a_hole_for_any_division_of_the_reading(
    log: list[bytes],
    use: EpochUse,
    expected: str,
    at_once: bool,  # noqa: FBT001 - a case
) -> None:
    found = {cuts: outcome(log, cuts, at_once=at_once) for cuts in CUTS}
    assert found == dict.fromkeys(CUTS, (use, expected))


@pytest.mark.parametrize(("known_at", "use"), [(8, EpochUse.SHARED), (9, EpochUse.FIRST)])
def test_a_lower_hole_that_is_seen_later_does_not_hide_the_last_one(known_at: int, use: EpochUse) -> None:
    run = BucketRun()
    run.batch(transaction(known_at, S.EMPTY, epoch_use=EpochUse.FIRST, first_unused=0), holes={log_numbered(0): 9})
    run.batch(holes={log_numbered(0): 4})
    run.batch(transaction(10, S.ONGOING, ORDERS, data_epoch=0))
    view = run.producer().view
    assert view is not None
    assert view.epoch_use is use
