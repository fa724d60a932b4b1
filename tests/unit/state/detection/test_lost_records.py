"""What an election can have removed from the coordinators' log, unread, makes outcomes unknown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from support.facts import ORDERS, PAYMENTS, PRODUCER, START_MS, BucketRun, census, log_notice, seen, transaction
from txnwatch.state.detection.view import begun
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.outcome import known_outcome
from txnwatch.state.model.clocks import Leader
from txnwatch.state.model.facts import NoticeKind, TransactionSeen
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import ExpectedOutcome as O
from txnwatch.state.model.incident import OutcomeDoubt as D
from txnwatch.state.model.ports import ActiveProducer, SpanHistory
from txnwatch.state.model.transaction import EpochUse
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition, log_numbered

EPOCH = 3
BEFORE_IT, NOW, LATER = ({log_numbered(0): leader} for leader in (Leader(2, 5), Leader(1, 6), Leader(2, 7)))
DATA = seen(0, 10, data=5, epoch=EPOCH)


def record(offset: int, state: S, *held: TopicPartition, epoch: int, by: int = 6, **changes: Any) -> TransactionSeen:
    """The first record of a range, appended under the leader epoch `by` of the log."""
    fact = transaction(offset, state, *held, producer_epoch=epoch, coordinator_epoch=by, **changes)
    return replace(fact, view=begun(fact.view))


def init(offset: int, epoch: int, by: int = 6) -> TransactionSeen:
    """An InitProducerId."""
    return record(offset, S.EMPTY, epoch=epoch, by=by, start_ms=None)


INIT, BEFORE = init(1, EPOCH), init(0, EPOCH - 1)
RAISED = record(1, S.COMPLETE_COMMIT, epoch=EPOCH, data_epoch=EPOCH - 1)


def under_its_leader() -> BucketRun:
    """A watch that has listed the log under the leader epoch 6; what it reads from now on began after that."""
    run = BucketRun()
    run.batch(leaders=NOW)
    run.batch(leaders=NOW)
    return run


def outcome_of(run: BucketRun, leaders: Mapping[TopicPartition, Leader] = NOW) -> str:
    """Of the hang that the next batches prove, if its partition has no marker at all; or the doubt."""
    found = [one for _ in range(3) for one in run.batch(leaders=leaders) if isinstance(one, SpanCandidate)]
    row = ActiveProducer(PRODUCER, EPOCH, 20, START_MS, None, 5)
    history = SpanHistory(EPOCH, None, is_first=True)
    now = found[-1].log_epoch
    read = SpanConfirmation(
        Answer.CONFIRMED, producer=row, is_unchanged=True, is_settled=True, log_epoch=now, history=history
    )
    outcome = known_outcome(found[-1], read)
    return outcome.doubt.kind if outcome.doubt is not None else outcome.outcome


@pytest.mark.parametrize("given_by", [INIT, RAISED], ids=["InitProducerId", "the end of a transaction"])
@pytest.mark.parametrize("before", [[], [BEFORE]], ids=["nothing was known", "an earlier epoch was known"])
def test_data_that_is_older_than_the_record_of_its_epoch_may_have_an_owner(
    given_by: TransactionSeen, before: list[TransactionSeen]
) -> None:
    run = under_its_leader()
    run.batch(*before, DATA, leaders=NOW)
    run.batch(given_by, leaders=NOW)
    assert outcome_of(run) == D.EPOCH_SHARED


@pytest.mark.parametrize("given_by", [INIT, RAISED], ids=["InitProducerId", "the end of a transaction"])
@pytest.mark.parametrize("is_together", [True, False])
def test_data_that_comes_with_or_after_the_record_of_its_epoch_has_no_owner(
    given_by: TransactionSeen, *, is_together: bool
) -> None:
    run = under_its_leader()
    for batch in [(given_by, DATA)] if is_together else [(given_by,), (DATA,)]:
        run.batch(*batch, leaders=NOW)
    assert outcome_of(run) == O.NONE


def test_the_end_of_a_live_transaction_can_give_an_epoch_that_was_used_before() -> None:
    prepared = replace(
        RAISED, view=replace(RAISED.view, state=S.PREPARE_COMMIT, start_ms=1, participants=frozenset({PAYMENTS}))
    )
    ended = replace(RAISED, view=replace(RAISED.view, log_offset=2, start_ms=1, data_epoch=None))
    run = under_its_leader()
    run.batch(DATA, leaders=NOW)
    run.batch(prepared, leaders=NOW)
    run.batch(ended, leaders=NOW)
    assert outcome_of(run) == D.EPOCH_SHARED


def test_where_the_log_was_not_proven_the_data_is_older_all_the_same() -> None:
    run = under_its_leader()
    run.batch(DATA, leaders=NOW, stale_coordinator={log_numbered(1)})
    run.batch(INIT, leaders=NOW)
    assert outcome_of(run) == D.EPOCH_SHARED


def test_data_on_another_partition_that_is_read_later_has_the_same_epoch() -> None:
    run = under_its_leader()
    run.batch(seen(0, 10, data=7, epoch=EPOCH, partition=PAYMENTS), leaders=NOW)
    run.batch(INIT, leaders=NOW)
    run.batch(DATA, leaders=NOW)
    assert outcome_of(run) == D.EPOCH_SHARED


def test_what_a_census_shows_of_older_data_is_older_too() -> None:
    run = BucketRun()
    run.batch(DATA, leaders=NOW)
    run.batch(INIT, leaders=NOW)
    run.batch(*census(8, epoch=EPOCH), leaders=NOW)
    found = run.producer().view
    assert found is not None
    assert (found.epoch_use, found.first_unused) == (EpochUse.SHARED, None)


def test_open_data_of_an_earlier_epoch_shows_nothing_about_the_one_that_is_given() -> None:
    run = under_its_leader()
    run.batch(seen(0, 10, data=7, epoch=EPOCH - 1, partition=PAYMENTS), leaders=NOW)
    run.batch(INIT, leaders=NOW)
    run.batch(DATA, leaders=NOW)
    assert outcome_of(run) == O.NONE


@pytest.mark.parametrize("is_past", [True, False])
@pytest.mark.parametrize(("by", "expected"), [(6, O.NONE), (5, D.LOG_ELECTION), (None, D.LOG_ELECTION)])
def test_a_record_of_an_earlier_leader_does_not_count(by: int | None, expected: str, *, is_past: bool) -> None:
    run = under_its_leader()
    run.batch(DATA, replace(init(1, EPOCH, by), is_past=is_past), leaders=NOW)
    assert outcome_of(run) == expected


@pytest.mark.parametrize("is_past", [True, False])
def test_no_record_counts_if_the_leader_is_not_known(*, is_past: bool) -> None:
    run = BucketRun()
    run.batch(DATA, replace(INIT, is_past=is_past))
    assert outcome_of(run, {}) == D.LOG_NOT_LISTED


def test_a_record_that_counted_does_not_count_after_an_election() -> None:
    run = under_its_leader()
    run.batch(DATA, INIT, leaders=NOW)
    run.batch(leaders=NOW)
    assert outcome_of(run, LATER) == D.LOG_ELECTION


def test_an_election_that_was_not_listed_at_one_barrier_is_seen_by_its_records() -> None:
    run = under_its_leader()
    run.batch(DATA, init(1, EPOCH, by=7), leaders=NOW)
    assert outcome_of(run, NOW) == D.LOG_ELECTION


@pytest.mark.parametrize(
    ("batches_before", "expected"), [(0, D.BEGAN_BEFORE_ELECTION), (1, D.BEGAN_BEFORE_ELECTION), (2, O.NONE)]
)
def test_data_counts_from_the_second_barrier_on_after_that_which_showed_the_leader(
    batches_before: int, expected: str
) -> None:
    """The first batch after that barrier reads what was appended between its two listings: first D, then T."""
    run = BucketRun()
    for _ in range(batches_before):
        run.batch(leaders=NOW)
    run.batch(DATA, INIT, leaders=NOW)
    assert outcome_of(run) == expected


def test_data_of_the_first_leader_counts_from_the_beginning() -> None:
    run = BucketRun()
    first = {log_numbered(0): Leader(1, 0)}
    run.batch(DATA, init(1, EPOCH, by=0), leaders=first)
    assert outcome_of(run, first) == O.NONE


@pytest.mark.parametrize("is_past", [True, False])
@pytest.mark.parametrize(("by", "expected"), [(6, O.NONE), (5, D.EPOCH_SHARED)])
def test_an_epoch_that_an_earlier_leader_has_returned_may_have_been_used(
    by: int, expected: str, *, is_past: bool
) -> None:
    """InitProducerId returned it twice: what lay between the two records can be lost."""
    run = under_its_leader()
    run.batch(DATA, replace(init(1, EPOCH, by), is_past=is_past), leaders=NOW)
    run.batch(init(2, EPOCH), leaders=NOW)
    assert outcome_of(run) == expected


@pytest.mark.parametrize("is_past", [True, False])
@pytest.mark.parametrize(("by", "expected"), [(6, O.ABORT), (5, D.EPOCH_SHARED)])
def test_the_end_before_an_init_counts_only_if_both_are_of_one_leader(by: int, expected: str, *, is_past: bool) -> None:
    aborted = record(*(1, S.COMPLETE_ABORT, ORDERS), epoch=EPOCH, by=by, data_epoch=EPOCH, epoch_use=EpochUse.FIRST)
    run = under_its_leader()
    run.batch(DATA, replace(aborted, is_past=is_past), leaders=NOW)
    run.batch(init(2, EPOCH + 1), leaders=NOW)
    assert outcome_of(run) == expected


@pytest.mark.parametrize("is_older", [True, False])
def test_an_end_in_the_same_range_is_not_known_to_be_of_older_data(*, is_older: bool) -> None:
    init_after_abort = record(
        *(2, S.EMPTY, ORDERS),
        epoch=EPOCH + 1,
        data_epoch=EPOCH,
        start_ms=None,
        previous_outcome="abort",
        previous_end_epoch=EPOCH,
    )
    run = under_its_leader()
    run.batch(*([] if is_older else [init_after_abort]), DATA, leaders=NOW)
    run.batch(*([init_after_abort] if is_older else []), leaders=NOW)
    assert outcome_of(run) == (D.EPOCH_SHARED if is_older else O.ABORT)


def test_a_log_that_was_made_anew_has_no_leader_until_it_is_listed() -> None:
    """The leader epochs of a new log start again: a lower one is not older."""
    run = under_its_leader()
    run.batch(log_notice(NoticeKind.DELETED, 0), stale_coordinator={log_numbered(0)})
    assert run.bucket.clocks.reigns == {}
    run.batch(leaders=BEFORE_IT)
    reign = run.bucket.clocks.reigns[log_numbered(0)]
    assert (reign.epoch, reign.since) == (5, run.number)
    run.batch(leaders=BEFORE_IT)
    run.batch(DATA, init(1, EPOCH, by=5), leaders=BEFORE_IT)
    assert outcome_of(run, BEFORE_IT) == O.NONE


def test_a_truncated_log_keeps_its_leader() -> None:
    run = under_its_leader()
    run.batch(log_notice(NoticeKind.TRUNCATED, 0), leaders=NOW)
    assert run.bucket.clocks.reigns[log_numbered(0)].since == 1
