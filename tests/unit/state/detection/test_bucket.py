"""One bucket through batches: order, agenda, gaps, and how little of the store it touches."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from support.facts import (
    ORDERS,
    OTHER,
    PRODUCER,
    BucketRun,
    DictStore,
    Kept,
    a_marker,
    census,
    log_notice,
    notice,
    seen,
    transaction,
)
from txnwatch.state.detection.bucket import process
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.model.clocks import Leader
from txnwatch.state.model.facts import Barrier, NoticeKind
from txnwatch.state.model.findings import OutstandingGap, PartitionAlarm, SpanCandidate, SpanEnded
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, Gap, Remedy, TopicPartition, log_numbered
from txnwatch.state.model.verdicts import DetectionPolicy

LOG_0 = TopicPartition(TRANSACTION_STATE_TOPIC, 0)


def gaps(run: BucketRun) -> dict[TopicPartition, Gap]:
    return {finding.partition: finding.gap for finding in run.batch() if isinstance(finding, OutstandingGap)}


def test_facts_of_a_batch_may_come_in_any_order() -> None:
    facts = [
        seen(0, 10, data=5),
        seen(10, 20, marker=a_marker(12), data_after=15),
        transaction(1, S.ONGOING, ORDERS),
        transaction(2, S.COMPLETE_ABORT),
        notice(NoticeKind.TRUNCATED, 100),
    ]
    outcomes = set()
    for order in itertools.permutations(facts):
        run = BucketRun()
        run.batch(*order)
        outcomes.add((run.store.rows[PRODUCER], run.bucket.agenda[PRODUCER]))
    assert len(outcomes) == 1


@pytest.mark.parametrize("count", [0, 2])
def test_a_batch_has_exactly_one_barrier(count: int) -> None:
    barriers = [Barrier(number, 0, 0) for number in range(count)]
    with pytest.raises(ValueError, match=f"found {count}"):
        process(BucketState(), DictStore(), barriers, DetectionPolicy(), reports_partitions=True)


def test_a_producer_is_read_once_and_written_once_in_a_batch() -> None:
    run = BucketRun()
    run.batch(transaction(1, S.ONGOING, ORDERS), seen(0, 10, data=5), seen(10, 20, data=12))
    assert (run.store.reads, run.store.writes) == (1, 1)


def test_a_barrier_touches_no_producer_that_is_covered_or_idle() -> None:
    run = Kept(step_ms=1)
    for producer_id in range(100):
        run.batch(
            transaction(producer_id, S.ONGOING, ORDERS, producer_id=producer_id),
            seen(0, 10, data=5, producer_id=producer_id),
        )
        if producer_id % 2:
            run.batch(
                transaction(producer_id + 1, S.COMPLETE_COMMIT, producer_id=producer_id),
                seen(10, 20, marker=a_marker(12), producer_id=producer_id),
            )
    run.store.reads = run.store.writes = 0
    run.batch()
    assert (run.store.reads, run.store.writes) == (0, 0)
    assert len(run.bucket.agenda) == 50


def test_data_that_has_begun_and_ended_in_one_range_loads_no_producer() -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=5, marker=a_marker(7)))
    assert (run.store.reads, run.store.writes) == (0, 0)


def test_an_unchanged_producer_is_not_written() -> None:
    run = BucketRun()
    run.batch(transaction(1, S.ONGOING, ORDERS))
    run.store.writes = 0
    run.batch(transaction(1, S.ONGOING, ORDERS))
    assert run.store.writes == 0


def test_a_producer_leaves_the_agenda_when_nothing_of_it_is_open_or_live() -> None:
    run = BucketRun()
    run.batch(transaction(1, S.ONGOING, ORDERS), seen(0, 10, data=5))
    assert run.bucket.agenda.keys() == {PRODUCER}
    run.batch(transaction(2, S.COMPLETE_COMMIT))
    assert run.bucket.agenda.keys() == {PRODUCER}, "the span is still open"
    run.batch(seen(10, 20, marker=a_marker(12, commit=True)))
    assert run.bucket.agenda == {}
    assert run.producer().view is not None, "its transactional id is kept for a while"


def test_a_partition_wide_notice_reaches_every_awaited_producer() -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=5), seen(0, 10, data=6, producer_id=OTHER))
    run.batch(notice(NoticeKind.DELETED, 0))
    assert not run.producer(PRODUCER).spans
    assert not run.producer(OTHER).spans


def test_notices_are_reported_by_one_bucket_and_gaps_repeated_until_they_close() -> None:
    run = BucketRun()
    findings = run.batch(notice(NoticeKind.GAP, 30))
    assert findings == [PartitionAlarm(notice(NoticeKind.GAP, 30)), OutstandingGap(ORDERS, 30)]
    assert gaps(run) == {ORDERS: 30}
    bucket = run.bucket
    silent = process(
        bucket, run.store, [notice(NoticeKind.GAP, 9), Barrier(9, 0, 0)], run.policy, reports_partitions=False
    )
    assert [finding for finding in silent if isinstance(finding, (PartitionAlarm, OutstandingGap))] == []


GAPS = {
    "from the gap": ({"reread": {ORDERS: 30}}, {}),
    "from below it": ({"reread": {ORDERS: 10}}, {}),
    "from above it": ({"reread": {ORDERS: 31}}, {ORDERS: 30}),
    "elsewhere": ({"reread": {TopicPartition("orders", 1): 0}}, {ORDERS: 30}),
}


@pytest.mark.parametrize(("exceptions", "left"), GAPS.values(), ids=GAPS.keys())
def test_a_re_read_closes_a_gap_it_covers(exceptions: dict[str, object], left: dict[TopicPartition, int]) -> None:
    run = BucketRun()
    run.batch(notice(NoticeKind.GAP, 30))
    run.batch(**exceptions)
    assert gaps(run) == left


def test_a_re_read_that_fails_again_stays_a_gap() -> None:
    run = BucketRun()
    run.batch(notice(NoticeKind.GAP, 30))
    run.batch(notice(NoticeKind.GAP, 32), reread={ORDERS: 30})
    assert gaps(run) == {ORDERS: 32}


@pytest.mark.parametrize("kind", [NoticeKind.LOST, NoticeKind.TRUNCATED])
def test_a_gap_that_cannot_be_read_again_needs_a_census(kind: NoticeKind) -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=5), notice(kind, 30))
    assert gaps(run) == {ORDERS: Remedy.CENSUS}
    run.batch(reread={ORDERS: 0})
    assert gaps(run) == {ORDERS: Remedy.CENSUS}
    run.batch(notice(kind, 30), *census(below=20))
    assert gaps(run) == {ORDERS: Remedy.CENSUS}, "a census of a batch that failed there heals nothing"
    run.batch(*census(below=20))
    assert run.producer().spans, "its marker may still be read"
    assert gaps(run) == {}
    assert not run.producer().spans, "the leader has nothing open there any more"


def test_a_deleted_topic_has_no_gaps() -> None:
    run = BucketRun()
    run.batch(notice(NoticeKind.GAP, 30))
    run.batch(notice(NoticeKind.DELETED, 0))
    assert gaps(run) == {}


def test_a_truncated_log_partition_is_read_from_its_beginning_and_forgets_what_it_does_not_see_again() -> None:
    run = BucketRun()
    run.batch(
        transaction(8, S.ONGOING, ORDERS),
        transaction(9, S.ONGOING, ORDERS, producer_id=OTHER, transactional_id="another"),
    )
    run.batch(log_notice(NoticeKind.TRUNCATED, 5))
    assert gaps(run) == {LOG_0: Remedy.NEW_READING}
    run.batch(transaction(3, S.ONGOING, ORDERS), reread={LOG_0: 0}, stale_coordinator=frozenset({log_numbered(0)}))
    assert run.bucket.agenda.keys() == {PRODUCER, OTHER}, "a chunk of a long re-read decides nothing"
    run.batch()
    assert run.bucket.agenda.keys() == {PRODUCER}


def test_a_gap_in_a_log_partition_that_is_read_again_forgets_nothing() -> None:
    run = BucketRun()
    run.batch(transaction(8, S.ONGOING, ORDERS))
    run.batch(log_notice(NoticeKind.GAP, 9))
    run.batch(reread={LOG_0: 9})
    assert gaps(run) == {}
    assert run.bucket.agenda.keys() == {PRODUCER}


def test_nothing_is_evaluated_while_a_log_partition_is_re_read() -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=5))
    run.batch(log_notice(NoticeKind.TRUNCATED, 5))
    assert not any(isinstance(finding, SpanCandidate) for finding in run.batch())
    still = run.batch(reread={LOG_0: 0}, stale_coordinator=frozenset({log_numbered(0)}))
    assert not any(isinstance(finding, SpanCandidate) for finding in still)
    assert any(isinstance(finding, SpanCandidate) for finding in run.batch())


def test_a_range_that_is_read_again_and_ends_before_a_marker_gives_an_open_span_no_earlier_beginning() -> None:
    run = BucketRun()
    run.batch(seen(0, 61, data=59))
    run.batch(seen(61, 62, marker=a_marker(61)))
    run.batch(seen(62, 70, data=62))
    assert run.producer().spans[ORDERS].start_offset == 62
    run.batch(seen(57, 61, data=59), reread={ORDERS: 57})
    assert run.producer().spans[ORDERS].start_offset == 62
    findings = run.batch(*census(62, below=70))
    assert not [ended for ended in findings if isinstance(ended, SpanEnded)]


def test_a_span_held_between_two_barriers_starts_its_proof_again() -> None:
    completed = transaction(2, S.COMPLETE_ABORT)
    proven_at = {}
    for name, between in {"held": frozenset({ORDERS}), "not held": frozenset()}.items():
        run = BucketRun()
        run.batch(transaction(1, S.COMPLETE_ABORT), seen(0, 10, data=5))
        found = [run.batch(replace(completed, held=between)), run.batch()]
        proven_at[name] = [any(isinstance(one, SpanCandidate) for one in batch) for batch in found]
    assert proven_at == {"held": [False, True], "not held": [True, False]}


def test_a_span_that_was_held_while_the_log_was_not_read_to_its_end_starts_its_proof_again() -> None:
    """No barrier has looked while it was held, and the marker may be above the end that the last one has listed."""
    run = BucketRun()
    run.batch(transaction(1, S.COMPLETE_ABORT), seen(0, 10, data=5))
    run.batch(transaction(2, S.ONGOING, ORDERS), stale_coordinator=frozenset({log_numbered(0)}))
    found = [run.batch(transaction(3, S.COMPLETE_ABORT)), run.batch()]
    assert [any(isinstance(one, SpanCandidate) for one in batch) for batch in found] == [False, True]


@pytest.mark.parametrize("owner", ["known", "unknown"])
@pytest.mark.parametrize("log_partition", [0, 1])
def test_the_last_two_readings_of_the_log_have_the_same_leader(owner: str, log_partition: int) -> None:
    """An unclean election can cut off the record of a transaction whose marker is written and not read yet."""
    leaders = {log_numbered(0): Leader(1, 5), log_numbered(1): Leader(1, 5)}
    run = BucketRun()
    begun = [transaction(1, S.COMPLETE_ABORT)] if owner == "known" else []
    run.batch(*begun, seen(0, 10, data=5), leaders=leaders)
    found = [run.batch(leaders={**leaders, log_numbered(log_partition): Leader(2, 6)}) for _ in range(2)]
    is_owners = owner == "unknown" or log_partition == 0
    assert [any(isinstance(one, SpanCandidate) for one in batch) for batch in found] == [not is_owners, is_owners]


@pytest.mark.parametrize("owner", ["known", "unknown"])
@pytest.mark.parametrize("log_partition", [0, 1])
def test_a_log_that_had_an_election_before_it_was_read_decides_nothing(owner: str, log_partition: int) -> None:
    run = BucketRun()
    begun = [transaction(1, S.COMPLETE_ABORT)] if owner == "known" else []
    run.batch(*begun, seen(0, 10, data=5))
    found = [run.batch(elected=frozenset({log_numbered(log_partition)})), run.batch()]
    is_owners = owner == "unknown" or log_partition == 0
    assert [any(isinstance(one, SpanCandidate) for one in batch) for batch in found] == [not is_owners, is_owners]
