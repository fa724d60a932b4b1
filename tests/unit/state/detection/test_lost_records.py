"""What an unclean election removed from the coordinators' log before the watch began makes outcomes unknown."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from support.facts import ORDERS, PAYMENTS, PRODUCER, BucketRun, census, seen, transaction
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.known_outcome import known_outcome
from txnwatch.state.model.broker_clocks import Leader
from txnwatch.state.model.facts import TransactionSeen
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident_payload import ExpectedOutcome as O
from txnwatch.state.model.ports import ActiveProducer, SpanHistory
from txnwatch.state.model.transaction import EpochUse
from txnwatch.state.model.transaction import TransactionState as S

EPOCH = 3
NOW = {0: Leader(1, 6)}
INIT = transaction(1, S.EMPTY, producer_epoch=EPOCH, start_ms=None, epoch_use=EpochUse.FIRST, coordinator_epoch=6)
BEFORE = transaction(0, S.EMPTY, producer_epoch=EPOCH - 1, start_ms=None, epoch_use=EpochUse.FIRST, coordinator_epoch=5)
RAISED = transaction(1, S.COMPLETE_COMMIT, producer_epoch=EPOCH, data_epoch=EPOCH - 1, coordinator_epoch=6)
DATA = seen(0, 10, data=5, epoch=EPOCH)


def outcome_of(run: BucketRun) -> O:
    """Of the hang that the next batches prove, if its partition has no marker at all."""
    found = [one for _ in range(2) for one in run.batch(leaders=NOW) if isinstance(one, SpanCandidate)]
    row = ActiveProducer(PRODUCER, EPOCH, 20, 0, None, 5)
    history = SpanHistory(EPOCH, None, True)
    read = SpanConfirmation(Answer.CONFIRMED, producer=row, is_unchanged=True, is_settled=True, history=history)
    return known_outcome(found[-1], read).outcome


@pytest.mark.parametrize("given_by", [INIT, RAISED], ids=["InitProducerId", "the end of a transaction"])
@pytest.mark.parametrize("before", [[], [BEFORE]], ids=["nothing was known", "an earlier epoch was known"])
def test_data_that_is_older_than_the_record_of_its_epoch_may_have_an_owner(
    given_by: TransactionSeen, before: list[TransactionSeen]
) -> None:
    run = BucketRun()
    run.batch(*before, DATA, leaders=NOW)
    run.batch(given_by, leaders=NOW)
    assert outcome_of(run) is O.UNKNOWN


@pytest.mark.parametrize("given_by", [INIT, RAISED], ids=["InitProducerId", "the end of a transaction"])
@pytest.mark.parametrize("is_together", [True, False])
def test_data_that_comes_with_or_after_the_record_of_its_epoch_has_no_owner(
    given_by: TransactionSeen, *, is_together: bool
) -> None:
    run = BucketRun()
    for batch in [(given_by, DATA)] if is_together else [(given_by,), (DATA,)]:
        run.batch(*batch, leaders=NOW)
    assert outcome_of(run) is O.NONE


def test_the_end_of_a_live_transaction_can_give_an_epoch_that_was_used_before() -> None:
    prepared = replace(
        RAISED, view=replace(RAISED.view, state=S.PREPARE_COMMIT, start_ms=1, participants=frozenset({PAYMENTS}))
    )
    ended = replace(RAISED, view=replace(RAISED.view, log_offset=2, start_ms=1, data_epoch=None))
    run = BucketRun()
    run.batch(DATA, leaders=NOW)
    run.batch(prepared, leaders=NOW)
    run.batch(ended, leaders=NOW)
    assert outcome_of(run) is O.UNKNOWN


def test_where_the_log_was_not_proven_the_data_is_older_all_the_same() -> None:
    run = BucketRun()
    run.batch(DATA, leaders=NOW, stale_coordinator={1})
    run.batch(INIT, leaders=NOW)
    assert outcome_of(run) is O.UNKNOWN


def test_data_on_another_partition_that_is_read_later_has_the_same_epoch() -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=7, epoch=EPOCH, partition=PAYMENTS), leaders=NOW)
    run.batch(INIT, leaders=NOW)
    run.batch(DATA, leaders=NOW)
    assert outcome_of(run) is O.UNKNOWN


def test_what_a_census_shows_of_older_data_is_older_too() -> None:
    run = BucketRun()
    run.batch(DATA, leaders=NOW)
    run.batch(INIT, leaders=NOW)
    run.batch(*census(8, epoch=EPOCH), leaders=NOW)
    found = run.producer().view
    assert found is not None
    assert found.epoch_use is EpochUse.SHARED


def test_open_data_of_an_earlier_epoch_shows_nothing_about_the_one_that_is_given() -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=7, epoch=EPOCH - 1, partition=PAYMENTS), leaders=NOW)
    run.batch(INIT, leaders=NOW)
    run.batch(DATA, leaders=NOW)
    assert outcome_of(run) is O.NONE


@pytest.mark.parametrize(("record_epoch", "expected"), [(6, O.NONE), (5, O.UNKNOWN), (None, O.UNKNOWN)])
def test_a_past_record_of_an_earlier_leader_may_lack_later_ones(record_epoch: int | None, expected: O) -> None:
    past = replace(INIT, is_past=True, view=replace(INIT.view, coordinator_epoch=record_epoch))
    run = BucketRun()
    run.batch(DATA, past, leaders=NOW)
    assert outcome_of(run) is expected


def test_a_past_record_may_lack_later_ones_if_the_leader_is_not_known() -> None:
    run = BucketRun()
    run.batch(DATA, replace(INIT, is_past=True))
    assert outcome_of(run) is O.UNKNOWN


@pytest.mark.parametrize("is_past", [True, False])
def test_what_follows_a_past_record_of_an_earlier_leader_may_share_its_epoch(*, is_past: bool) -> None:
    past = replace(INIT, is_past=is_past, view=replace(INIT.view, coordinator_epoch=5))
    again = transaction(2, S.EMPTY, producer_epoch=EPOCH, start_ms=None, epoch_use=EpochUse.FIRST, coordinator_epoch=6)
    run = BucketRun()
    run.batch(DATA, past, leaders=NOW)
    run.batch(again, leaders=NOW)
    assert outcome_of(run) is (O.UNKNOWN if is_past else O.NONE)


@pytest.mark.parametrize("is_past", [True, False])
def test_the_end_before_an_init_counts_only_if_no_later_end_can_be_lost(*, is_past: bool) -> None:
    aborted = transaction(
        *(1, S.COMPLETE_ABORT, ORDERS),
        producer_epoch=EPOCH,
        data_epoch=EPOCH,
        epoch_use=EpochUse.FIRST,
        coordinator_epoch=5,
    )
    init = transaction(2, S.EMPTY, producer_epoch=EPOCH + 1, start_ms=None, epoch_use=EpochUse.FIRST)
    run = BucketRun()
    run.batch(DATA, replace(aborted, is_past=is_past), leaders=NOW)
    run.batch(init, leaders=NOW)
    assert outcome_of(run) is (O.UNKNOWN if is_past else O.ABORT)


@pytest.mark.parametrize("is_older", [True, False])
def test_an_end_in_the_same_range_is_not_known_to_be_of_older_data(*, is_older: bool) -> None:
    init_after_abort = transaction(
        *(2, S.EMPTY, ORDERS),
        producer_epoch=EPOCH + 1,
        data_epoch=EPOCH,
        start_ms=None,
        epoch_use=EpochUse.FIRST,
        previous_outcome="abort",
        previous_end_epoch=EPOCH,
    )
    run = BucketRun()
    run.batch(*([] if is_older else [init_after_abort]), DATA, leaders=NOW)
    run.batch(*([init_after_abort] if is_older else []), leaders=NOW)
    assert outcome_of(run) is (O.UNKNOWN if is_older else O.ABORT)
