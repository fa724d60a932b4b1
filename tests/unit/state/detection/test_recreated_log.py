"""The coordinators' log is made anew: the content of the old one is forgotten once all of the new one is read."""

from __future__ import annotations

import pytest

from support.facts import NAME, ORDERS, PRODUCER, BucketRun, log_notice, seen, transaction
from txnwatch.state.model.facts import NoticeKind
from txnwatch.state.model.findings import Finding, OwnerInDoubt, SpanCandidate
from txnwatch.state.model.transaction import EpochUse
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition, log_numbered
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch.streaming.log.range_reading import Range, RangeReading

BOTH = frozenset({log_numbered(0), log_numbered(1)})
DELETED = (log_notice(NoticeKind.DELETED, 0), log_notice(NoticeKind.DELETED, 0, 1))


@pytest.fixture
def run() -> BucketRun:
    """A live transaction holds what is open; its id is in partition 1 of the log, which is deleted then."""
    run = BucketRun()
    run.batch(seen(0, 10, data=5), transaction(90, S.ONGOING, ORDERS, log_partition=1))
    run.batch(*DELETED, stale_coordinator=BOTH)
    return run


def candidates(emitted: list[Finding]) -> list[SpanCandidate]:
    return [finding for finding in emitted if isinstance(finding, SpanCandidate)]


def test_an_id_that_the_new_log_does_not_name_is_gone(run: BucketRun) -> None:
    run.batch()
    (candidate,) = candidates(run.batch())
    assert candidate.view is not None
    assert candidate.view.state is S.DEAD


@pytest.mark.parametrize("unread", [BOTH, frozenset({log_numbered(0)}), frozenset({log_numbered(1)})])
def test_nothing_is_gone_before_all_of_it_is_read(run: BucketRun, unread: frozenset[TopicPartition]) -> None:
    """It may have fewer partitions, and an id of one that is no more be named in any."""
    assert not candidates([finding for _ in range(6) for finding in run.batch(stale_coordinator=unread)])
    run.batch()
    assert candidates(run.batch())


def test_a_part_of_the_new_log_that_stays_unread_leaves_it_to_the_coordinators() -> None:
    """The owner of the data may be named there; the old log's records of the id do not count."""
    run = BucketRun()
    run.batch(seen(0, 10, data=5), transaction(90, S.EMPTY, log_partition=1))
    run.batch(*DELETED, stale_coordinator=BOTH)
    findings = [one for _ in range(8) for one in run.batch(stale_coordinator=frozenset({log_numbered(0)}))]
    asked = [one.candidate for one in findings if isinstance(one, OwnerInDoubt)]
    assert asked
    assert {one.view for one in asked} == {None}
    view = run.producer().view
    assert view is not None, "it is forgotten once all of the new log is read"


def test_a_record_of_the_new_log_counts_at_any_offset(run: BucketRun) -> None:
    run.batch(transaction(3, S.ONGOING, ORDERS, log_partition=0), stale_coordinator=frozenset({log_numbered(1)}))
    assert not candidates([finding for _ in range(6) for finding in run.batch()])
    view = run.producer(PRODUCER).view
    assert view is not None
    assert (view.transactional_id, view.log_partition, view.state) == (NAME, 0, S.ONGOING)


def test_a_gap_of_the_old_log_is_gone_with_it() -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=5), log_notice(NoticeKind.GAP, 7))
    run.batch(log_notice(NoticeKind.DELETED, 0), stale_coordinator=frozenset({log_numbered(0)}))
    run.batch()
    assert candidates(run.batch())


def test_a_task_that_finds_the_log_gone_has_not_read_it() -> None:
    def read_of(partition: TopicPartition) -> RangeReading:
        return RangeReading(Range(partition, "old-id", 5, 9, 0), PartitionFold)

    for partition, kind in ((TopicPartition(TRANSACTION_STATE_TOPIC, 0), NoticeKind.GAP), (ORDERS, NoticeKind.DELETED)):
        read = read_of(partition)
        read.gone()
        (notice_of_it,) = read.notices
        assert (notice_of_it.kind, notice_of_it.from_offset, read.needs_fetch) == (kind, 5, False)


def test_a_record_of_the_new_log_follows_on_nothing_of_the_old_one() -> None:
    run = BucketRun()
    run.batch(transaction(90, S.EMPTY))
    run.batch(log_notice(NoticeKind.DELETED, 0), stale_coordinator=frozenset({log_numbered(0)}))
    run.batch()
    run.batch(transaction(3, S.ONGOING, ORDERS, data_epoch=0))
    view = run.producer().view
    assert view is not None
    assert view.epoch_use.name == "SHARED", "what lies between the two is not known"


def test_a_hole_of_the_old_log_is_none_of_the_new_one() -> None:
    run = BucketRun()
    run.batch(transaction(5_000, S.EMPTY), holes={log_numbered(0): 4_000})
    run.batch(log_notice(NoticeKind.DELETED, 0), stale_coordinator=frozenset({log_numbered(0)}))
    run.batch()
    run.batch(transaction(3, S.EMPTY, producer_epoch=1, epoch_use=EpochUse.FIRST, first_unused=1))
    run.batch(transaction(4, S.ONGOING, ORDERS, producer_epoch=1, data_epoch=1))
    run.batch(transaction(5, S.COMPLETE_COMMIT, producer_epoch=1))
    view = run.producer().view
    assert view is not None
    assert (view.epoch_use, view.participants) == (EpochUse.FIRST, frozenset({ORDERS}))
