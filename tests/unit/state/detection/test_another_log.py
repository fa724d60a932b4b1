"""Another leader of a partition of the coordinators' log: the last batch shows whether it has the log that was read."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from support.facts import ORDERS, BucketRun, log_notice, seen, transaction
from txnwatch.state.model.facts import LastBatch, LogRead, NoticeKind
from txnwatch.state.model.findings import Finding, OutstandingGap, PartitionAlarm
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import LeaderEpoch, Remedy, log_numbered

LOG = log_numbered(0)


def batch(epoch: int, crc: int | None = None) -> LastBatch:
    return LastBatch(LeaderEpoch(epoch), crc)


@pytest.fixture
def run() -> BucketRun:
    """A live transaction; the last batch of its log partition that was read is of epoch 4."""
    run = BucketRun()
    run.batch(seen(0, 10, data=5), transaction(90, S.ONGOING, ORDERS), last_batches={LOG: batch(4, 77)})
    return run


def alarms(findings: Iterable[Finding]) -> list[NoticeKind]:
    return [one.notice.kind for one in findings if isinstance(one, PartitionAlarm)]


def test_the_same_batch_is_the_same_log(run: BucketRun) -> None:
    findings = run.batch(rechecked={LOG: batch(4, 77)})
    assert alarms(findings) == []
    assert not any(isinstance(one, OutstandingGap) for one in findings)


@pytest.mark.parametrize(
    "found", [batch(3, 77), batch(5, 77), batch(4, 78), None], ids=["older", "newer", "grown again", "gone"]
)
def test_another_batch_is_another_log_which_is_read_from_its_beginning(run: BucketRun, found: LastBatch | None) -> None:
    findings = run.batch(rechecked={LOG: found})
    assert alarms(findings) == [NoticeKind.TRUNCATED]
    assert OutstandingGap(LOG, Remedy.NEW_READING) in findings


def test_what_another_task_has_read_counts_too(run: BucketRun) -> None:
    assert alarms(run.batch(LogRead({}, {}, rechecked={LOG: batch(3)}))) == [NoticeKind.TRUNCATED]
    run.batch(LogRead({}, {}, last_batches={LOG: batch(6)}))
    assert alarms(run.batch(rechecked={LOG: batch(6)})) == []


def test_a_new_reading_knows_no_batch_before_its_first_one(run: BucketRun) -> None:
    run.batch(log_notice(NoticeKind.TRUNCATED, 0))
    assert alarms(run.batch(rechecked={LOG: batch(3)})) == []
    run.batch(last_batches={LOG: batch(2)})
    assert alarms(run.batch(rechecked={LOG: batch(3)})) == [NoticeKind.TRUNCATED]


def test_the_last_batch_is_the_latest_one_that_was_read(run: BucketRun) -> None:
    run.batch(last_batches={LOG: batch(6)})
    run.batch()
    assert alarms(run.batch(rechecked={LOG: batch(6)})) == []
    assert alarms(run.batch(rechecked={LOG: batch(4, 77)})) == [NoticeKind.TRUNCATED]
