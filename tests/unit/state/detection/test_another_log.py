"""A leader whose log ends at our position in an older epoch: after an idle election, or with another log."""

from __future__ import annotations

import pytest

from support.facts import ORDERS, PRODUCER, BucketRun, log_notice, seen, transaction
from txnwatch.state.model.facts import NoticeKind, PartitionNotice
from txnwatch.state.model.findings import OutstandingGap, PartitionAlarm
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import LeaderEpoch, Remedy, log_numbered

LOG = log_numbered(0)


@pytest.fixture
def run() -> BucketRun:
    """A live transaction; the last batch of its log partition that was read is of epoch 4."""
    run = BucketRun()
    run.batch(seen(0, 10, data=5), transaction(90, S.ONGOING, ORDERS), read_epochs={LOG: LeaderEpoch(4)})
    return run


def diverged(epoch: int) -> PartitionNotice:
    detail = f"the leader has no epoch above {epoch} below offset 91"
    return PartitionNotice(NoticeKind.DIVERGED, LOG, "id", 91, 91, detail, epoch=LeaderEpoch(epoch))


def alarms(findings: list[object]) -> list[tuple[NoticeKind, str]]:
    return [(one.notice.kind, one.notice.detail) for one in findings if isinstance(one, PartitionAlarm)]


def test_the_epoch_of_the_last_batch_is_an_idle_election(run: BucketRun) -> None:
    findings = run.batch(diverged(4))
    assert alarms(findings) == []
    assert not any(isinstance(one, OutstandingGap) for one in findings)
    view = run.producer(PRODUCER).view
    assert view is not None
    assert not view.is_unseen


@pytest.mark.parametrize("epoch", [3, 5])
def test_any_other_epoch_is_another_log_which_is_read_from_its_beginning(run: BucketRun, epoch: int) -> None:
    """With epoch 5, the leader has batches of an epoch below our position of which none was read."""
    findings = run.batch(diverged(epoch))
    ((kind, detail),) = alarms(findings)
    assert kind is NoticeKind.TRUNCATED
    assert detail.endswith("the last batch that was read is of epoch 4")
    assert OutstandingGap(LOG, Remedy.NEW_READING) in findings


def test_a_new_reading_knows_no_epoch_before_its_first_batch(run: BucketRun) -> None:
    run.batch(log_notice(NoticeKind.TRUNCATED, 0))
    assert alarms(run.batch(diverged(3))) == []
    run.batch(read_epochs={LOG: LeaderEpoch(2)})
    assert len(alarms(run.batch(diverged(3)))) == 1


def test_the_last_batch_is_the_latest_one_that_was_read(run: BucketRun) -> None:
    run.batch(read_epochs={LOG: LeaderEpoch(6)})
    run.batch()
    assert alarms(run.batch(diverged(6))) == []
    assert len(alarms(run.batch(diverged(4)))) == 1
