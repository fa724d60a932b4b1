"""Where a leader that restarts keeps its leader epoch, an outcome needs a connection that was not interrupted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from support.facts import ORDERS, PRODUCER, START_MS, BucketRun, log_notice, seen, transaction
from txnwatch.state.detection.view import begun
from txnwatch.state.model.clocks import Leader
from txnwatch.state.model.facts import NoticeKind, ProducerSeen, TransactionSeen
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.transaction import EpochUse, LossProof
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition, log_numbered

EPOCH, LOG = 3, log_numbered(0)
FIRST, SECOND = ({LOG: Leader(1, 0, connection)} for connection in ("a", "b"))
BY_EPOCH = {LOG: Leader(1, 0)}
DATA = seen(0, 10, data=5, epoch=EPOCH)
NOBODY: dict[TopicPartition, Leader] = {}


def record(offset: int, state: S, **changes: Any) -> TransactionSeen:
    fact = transaction(offset, state, producer_epoch=EPOCH, coordinator_epoch=0, **changes)
    return replace(fact, view=begun(fact.view))


INIT = record(1, S.EMPTY, start_ms=None)


class Batch(NamedTuple):
    """One batch: what it reads, and the leader that its listing has found."""

    facts: tuple[Any, ...] = ()
    leaders: Mapping[TopicPartition, Leader] = FIRST
    more: Mapping[str, Any] = {}


QUIET, RECONNECTED = Batch(), Batch(leaders=SECOND)
UNANSWERED = Batch(leaders=NOBODY, more={"stale_coordinator": {LOG}})
READ_AGAIN = Batch((INIT,), more={"reread": {LOG: 0}})
CASES: dict[str, tuple[list[Batch], LossProof]] = {
    "one connection, from before the record on": (
        [QUIET, QUIET, Batch((INIT,)), Batch((DATA,)), QUIET],
        LossProof.CONNECTION,
    ),
    "the record and the data in one batch": ([QUIET, QUIET, Batch((INIT, DATA)), QUIET], LossProof.CONNECTION),
    "the record is older than the connection": (
        [Batch((INIT,)), QUIET, QUIET, Batch((DATA,)), QUIET],
        LossProof.NOTHING,
    ),
    "the connection begins with the record": ([QUIET, Batch((INIT,), SECOND), *[RECONNECTED] * 2], LossProof.NOTHING),
    "the data is older than the connection": (
        [QUIET, QUIET, Batch((DATA,)), Batch((), SECOND), Batch((INIT,), SECOND), RECONNECTED, RECONNECTED],
        LossProof.NOTHING,
    ),
    "it is interrupted after the data": (
        [QUIET, QUIET, Batch((INIT,)), Batch((DATA,)), RECONNECTED, RECONNECTED],
        LossProof.NOTHING,
    ),
    "the leader has not answered once": (
        [QUIET, QUIET, Batch((INIT,)), Batch((DATA,)), UNANSWERED, QUIET, QUIET],
        LossProof.NOTHING,
    ),
    "the log is read again, from below the connection's first listing": (
        [QUIET, QUIET, READ_AGAIN, Batch((DATA,)), QUIET],
        LossProof.NOTHING,
    ),
    "the same after an interruption, all anew": (
        [QUIET, RECONNECTED, RECONNECTED, Batch((INIT,), SECOND), Batch((DATA,), SECOND), RECONNECTED],
        LossProof.CONNECTION,
    ),
    "a restart raises the epoch here": (
        [Batch((INIT,), BY_EPOCH), Batch((DATA,), BY_EPOCH), *[Batch((), BY_EPOCH)] * 2],
        LossProof.EPOCH,
    ),
}


def proofs(batches: list[Batch]) -> list[LossProof]:
    """The proofs of the candidates, and of those that follow if nothing changes."""
    run, found = BucketRun(), []
    for batch in [*batches, *[Batch((), batches[-1].leaders)] * 3]:
        emitted = run.batch(*batch.facts, leaders=batch.leaders, **batch.more)
        found += [one.proof for one in emitted if isinstance(one, SpanCandidate)]
    return found


@pytest.mark.parametrize(("batches", "expected"), CASES.values(), ids=CASES)
def test_what_proves_that_no_record_was_lost(batches: list[Batch], expected: LossProof) -> None:
    if not any(isinstance(fact, ProducerSeen) for batch in batches for fact in batch.facts):
        batches = [*batches, Batch((DATA,), batches[-1].leaders)]
    assert proofs(batches)[-1] is expected


def test_nothing_is_inherited_across_an_interruption() -> None:
    """Each record is of its own reign: what the first one shows about the epoch does not count for the second one."""
    run = BucketRun()
    for batch in (QUIET, QUIET, Batch((INIT,)), RECONNECTED, RECONNECTED):
        run.batch(*batch.facts, leaders=batch.leaders)
    assert run.producer().view is not None
    assert run.producer().view.reign == 1
    run.batch(record(2, S.ONGOING, start_ms=START_MS), leaders=SECOND)
    view = run.producer().view
    assert view is not None
    assert (view.reign, view.epoch_use) == (4, EpochUse.SHARED)


def test_a_log_that_is_cut_has_no_reign_until_it_is_listed() -> None:
    run = BucketRun()
    run.batch(leaders=FIRST)
    run.batch(log_notice(NoticeKind.DELETED, 0), leaders=NOBODY, stale_coordinator={LOG})
    assert run.bucket.clocks.reigns == {}


@pytest.mark.parametrize(("older", "began_after"), [(False, 2), (True, 0)])
def test_data_of_an_earlier_leader_of_its_partition_may_be_older_than_its_place(
    *, older: bool, began_after: int
) -> None:
    """A replica that an unclean election brings back has batches above an end that was listed before."""
    run = BucketRun()
    run.batch(leaders=FIRST)
    run.batch(leaders=FIRST)
    run.batch(replace(DATA, may_be_older=older), leaders=FIRST)
    assert run.producer(PRODUCER).spans[ORDERS].began_after == began_after
