"""Logs that are cut, cleaned or made anew while they are read: each case was first found by the simulation."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from support.batches import a_batch, a_record
from support.facts import (
    NAME,
    ORDERS,
    OTHER,
    PRODUCER,
    TOPIC_IDS,
    BucketRun,
    census,
    log_notice,
    notice,
    seen,
    transaction,
)
from support.transaction_log import a_key, a_value
from txnwatch.state.model.facts import Barrier, NoticeKind, TransactionalIdGone
from txnwatch.state.model.findings import OutstandingGap, SpanCandidate, SpanEnd, SpanEnded
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, Remedy, TopicPartition, log_numbered
from txnwatch.streaming.log.fetch import take_records
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.log.transaction_fold import TransactionFold
from txnwatch.streaming.source.offsets import Position, SourceOffset
from txnwatch.streaming.source.options import parse_options
from txnwatch.streaming.source.planner import Limits, ListedPartition, Listing, plan
from txnwatch.streaming.source.tasks import plan_facts, plan_reads
from txnwatch.streaming.wire.fetch_response import Divergence, PartitionData
from txnwatch.streaming.wire.internal_topics import TransactionLogValue
from txnwatch.streaming.wire.record_batch import NO_END

LOG = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
OPTIONS = parse_options({"kafka.bootstrap.servers": "unused:1", "subscribe": "orders"})


@pytest.mark.parametrize(
    "answer",
    [ListedPartition("id", ListedOffset(30, 4, 1)), ListedPartition("id", ListedOffset(6, 3, 1))],
    ids=["under a new epoch", "below what was read"],
)
def test_a_range_is_read_again_only_after_a_truncation_would_have_been_detected(answer: ListedPartition) -> None:
    previous = SourceOffset("cluster", 6, 900, 901, {ORDERS: Position("id", 10, 3, 10, leader=1)})
    found = plan(previous, Listing("cluster", {ORDERS: answer}, 1000, 1001), Limits(), {ORDERS: 4})
    assert found.reread == {}


def a_range(start: int, end: int) -> RangeReading:
    return RangeReading(Range(ORDERS, "id", start, end, 3), PartitionFold)


def test_a_log_that_ends_below_what_was_read_is_asked_where_it_was_cut() -> None:
    read = a_range(15, 13)
    assert read.needs_fetch
    assert read.notices == []


def test_a_gap_before_the_leader_reported_a_truncation_puts_what_was_read_in_doubt() -> None:
    unasked, asked = a_range(15, 13), a_range(13, 15)
    unasked.gap("no leader")
    asked.gap("no leader")
    assert [found.kind for found in (*unasked.notices, *asked.notices)] == [NoticeKind.LOST, NoticeKind.GAP]


@pytest.mark.parametrize(
    ("divergence", "noticed"),
    [((2, 9), (9, 15)), ((2, 15), None), ((2, 18), (15, 15))],
    ids=["below what was read", "a clean election without new records", "above it: another log"],
)
def test_a_log_of_its_own_is_noticed_also_if_it_diverges_above(
    divergence: tuple[int, int], noticed: tuple[int, int] | None
) -> None:
    """The epochs after the answered one began at or below our position, so it cannot go on above it in the same log."""
    read = a_range(15, 20)
    answer = PartitionData(ORDERS.topic, 0, 0, 30, 30, 0, Divergence(*divergence), memoryview(b""))
    take_records(read, answer)
    found = [(notice.kind, notice.from_offset, notice.to_offset) for notice in read.notices]
    assert found == ([(NoticeKind.TRUNCATED, *noticed)] if noticed is not None else [])
    assert (read.fold.position, read.last_fetched_epoch) == (min(15, divergence[1]), 2)


def test_a_leader_without_the_epoch_of_a_batch_of_this_range_has_another_log() -> None:
    read = a_range(15, 20)
    batch = a_batch(15, records=[a_record()], leader_epoch=3)
    take_records(read, PartitionData(ORDERS.topic, 0, 0, 30, 30, 0, None, memoryview(batch)))
    assert read.fold.position == 16
    take_records(read, PartitionData(ORDERS.topic, 0, 0, 30, 30, 0, Divergence(2, 16), memoryview(b"")))
    found = [(notice.kind, notice.from_offset, notice.to_offset) for notice in read.notices]
    assert found == [(NoticeKind.TRUNCATED, 15, 16)]


def test_a_range_without_an_end_ends_where_the_leader_first_showed_the_end_of_the_log() -> None:
    read = RangeReading(Range(ORDERS, "id", 0, NO_END), PartitionFold)
    batches = [a_batch(at, records=[a_record()]) for at in range(3)]
    take_records(read, PartitionData(ORDERS.topic, 0, 0, 2, 2, 0, None, memoryview(batches[0])))
    assert (read.end, read.needs_fetch) == (2, True)
    take_records(read, PartitionData(ORDERS.topic, 0, 0, 3, 3, 0, None, memoryview(b"".join(batches[1:]))))
    assert (read.end, read.fold.position, read.needs_fetch) == (2, 2, False)


def test_an_empty_log_ends_with_the_first_answer_and_one_that_lost_its_beginning_with_the_first_after_it() -> None:
    empty, cut = (RangeReading(Range(ORDERS, "id", 0, NO_END), PartitionFold) for _ in range(2))
    assert empty.needs_fetch
    take_records(empty, PartitionData(ORDERS.topic, 0, 0, 0, 0, 0, None, memoryview(b"")))
    assert not empty.needs_fetch
    cut.lost(5, "retention")
    take_records(cut, PartitionData(ORDERS.topic, 0, 0, 5, 5, 5, None, memoryview(b"")))
    assert (cut.end, cut.needs_fetch) == (5, False)


def a_log_entry(offset: int, value: TransactionLogValue | None) -> bytes:
    record = a_record(key=a_key(NAME), value=a_value(value) if value is not None else None)
    return a_batch(offset, records=[record], producer_id=-1, transactional=False)


def an_empty(producer_id: int) -> TransactionLogValue:
    return TransactionLogValue(1, producer_id, 0, 60_000, S.EMPTY, None, 1, None)


def test_a_tombstone_counts_though_the_id_has_come_back_in_the_same_range() -> None:
    fold = TransactionFold(log_numbered(0), 5, 7)
    fold.feed(a_log_entry(5, None) + a_log_entry(6, an_empty(OTHER)))
    assert TransactionalIdGone(NAME, 0, 5) in list(fold.facts())
    run = BucketRun()
    run.batch(transaction(4, S.ONGOING, ORDERS), seen(0, 10, data=5))
    run.batch(*fold.facts())
    assert any(isinstance(finding, SpanCandidate) for finding in run.batch())


@pytest.mark.parametrize(("first", "hole"), [(5, None), (8, 5)], ids=["all there", "compacted"])
def test_a_fold_of_the_log_knows_what_compaction_took(first: int, hole: int | None) -> None:
    fold = TransactionFold(log_numbered(0), 5, 9)
    fold.feed(b"".join(a_log_entry(offset, an_empty(PRODUCER)) for offset in range(first, 9)))
    assert fold.hole == hole


@pytest.mark.parametrize(
    ("had_end", "reread", "is_proven"),
    [
        pytest.param(5, {}, True, id="goes on at the end"),
        pytest.param(0, {}, True, id="goes on in a log that was empty"),
        pytest.param(5, {LOG: 2}, False, id="goes on where a first reading had read enough"),
        pytest.param(5, {LOG: 4}, True, id="again from a gap"),
        pytest.param(5, {LOG: 0}, False, id="again from the beginning"),
    ],
)
def test_holes_count_and_the_log_is_proven_where_all_before_had_been_read(
    had_end: int,
    reread: dict[TopicPartition, int],
    is_proven: bool,  # noqa: FBT001 - a case
) -> None:
    backlog = {LOG: min(3, had_end)}
    position = Position("log-id", had_end, 3, had_end, leader=1)
    before = SourceOffset("cluster", 6, 900, 901, {LOG: position}, backlog_end=backlog)
    positions = {LOG: Position("log-id", 9, 3, 9, leader=1)}
    end = SourceOffset("cluster", 7, 1000, 1001, positions, reread=reread, backlog_end=backlog)
    plan = plan_reads(before, end, OPTIONS)[0]
    (found,) = plan.ranges
    assert found.is_tail == is_proven
    assert plan.unfinished == (frozenset() if is_proven else {LOG}), "a record may have moved on: one batch more"


def test_a_log_that_is_read_for_the_first_time_is_not_proven_yet() -> None:
    end = SourceOffset("cluster", 1, 1000, 1001, {LOG: Position("log-id", 9, 3, 9, leader=1)}, begun={LOG: 0})
    plan = plan_reads(SourceOffset.beginning(), end, OPTIONS)[0]
    (barrier,) = plan_facts(replace(plan, ranges=()), [])
    assert isinstance(barrier, Barrier)
    assert barrier.stale_coordinator == {LOG}


def test_a_request_that_is_older_than_a_truncation_of_the_log_does_not_answer_it() -> None:
    run = BucketRun()
    run.batch(transaction(2, S.ONGOING, ORDERS), seen(0, 10, data=5))
    run.batch(log_notice(NoticeKind.TRUNCATED, 5))
    findings = run.batch(reread={LOG: 4})
    assert OutstandingGap(LOG, Remedy.NEW_READING) in findings
    assert PRODUCER in run.bucket.agenda, "the live transaction was not asked for again yet"


def test_after_a_truncation_of_the_log_a_lower_record_counts_for_an_idle_id_too() -> None:
    run = BucketRun()
    run.batch(transaction(9, S.EMPTY))
    run.batch(log_notice(NoticeKind.TRUNCATED, 5))
    run.batch(transaction(3, S.PREPARE_ABORT, ORDERS), seen(0, 10, data=5), reread={LOG: 0})
    view = run.producer().view
    assert view is not None
    assert view.holds(ORDERS)
    assert not [finding for _ in range(3) for finding in run.batch() if isinstance(finding, SpanCandidate)]


def test_a_view_of_the_batch_with_a_loss_counts_only_if_it_is_seen_again() -> None:
    run = BucketRun()
    run.batch(log_notice(NoticeKind.LOST, 5), transaction(6, S.ONGOING, ORDERS), seen(0, 10, data=5))
    run.batch(reread={LOG: 0})
    assert any(isinstance(finding, SpanCandidate) for _ in range(2) for finding in run.batch())


def test_after_a_loss_a_census_forgets_what_it_does_not_show() -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=5), seen(0, 10, data=6, producer_id=OTHER))
    run.batch()
    run.batch(notice(NoticeKind.LOST, 10))
    findings = [*run.batch(*census(5, below=20, stable=5)), *run.batch(*census(5, below=20, stable=5)), *run.batch()]
    ended = [entry for entry in findings if isinstance(entry, SpanEnded)]
    assert [(entry.producer_id, entry.how) for entry in ended] == [(OTHER, SpanEnd.CENSUS)]
    assert ORDERS in run.producer(PRODUCER).spans


def test_an_election_brings_back_what_a_census_did_not_show() -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=5))
    run.batch(*census(below=10))
    run.batch(limited_data={ORDERS})
    run.batch(risen=frozenset({ORDERS}))
    assert ORDERS in run.producer().spans, "the marker that the census knew of may be lost"


def test_a_gap_of_a_new_topic_outlives_the_deletion_of_the_old_one() -> None:
    gap, gone = notice(NoticeKind.GAP, 3), notice(NoticeKind.DELETED, 0, topic_id="the one before")
    for order in ((gap, gone), (gone, gap)):
        assert OutstandingGap(ORDERS, 3) in BucketRun().batch(*order)
    own = msgspec.structs.replace(gone, topic_id=TOPIC_IDS[ORDERS.topic])
    for order in ((gap, own), (own, gap)):
        assert not [finding for finding in BucketRun().batch(*order) if isinstance(finding, OutstandingGap)]


def test_an_election_after_a_census_that_closed_a_gap_opens_nothing_that_was_not_shown() -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=5))
    run.batch(notice(NoticeKind.LOST, 10))
    findings = [*run.batch(*census(below=20)), *run.batch(risen=frozenset({ORDERS})), *run.batch(), *run.batch()]
    assert not [candidate for candidate in findings if isinstance(candidate, SpanCandidate)]
    run.batch(*census(below=20))
    run.batch()
    assert ORDERS not in run.producer().spans


def test_a_census_of_a_log_that_is_shorter_than_a_span_ends_it() -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=5))
    run.batch(notice(NoticeKind.LOST, 10))
    run.batch(*census(below=5))
    assert ORDERS not in run.producer().spans
