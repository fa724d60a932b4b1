"""What an unclean election removed from the coordinators' log before the watch began makes outcomes unknown."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from support.facts import ORDERS, PRODUCER, BucketRun, seen, transaction
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


def test_a_live_transaction_of_an_earlier_epoch_does_not_own_the_data() -> None:
    """Its end gives the epoch that the data has had before."""
    live = replace(RAISED, view=replace(RAISED.view, state=S.PREPARE_COMMIT, producer_epoch=EPOCH - 1, log_offset=0))
    held = replace(live, view=replace(live.view, participants=frozenset({ORDERS})))
    run = BucketRun()
    run.batch(held, DATA, leaders=NOW)
    run.batch(RAISED, leaders=NOW)
    assert outcome_of(run) is O.UNKNOWN


@pytest.mark.parametrize(("record_epoch", "expected"), [(6, O.NONE), (5, O.UNKNOWN), (None, O.UNKNOWN)])
def test_a_past_record_of_an_earlier_leader_may_lack_later_ones(record_epoch: int | None, expected: O) -> None:
    past = replace(INIT, is_past=True, view=replace(INIT.view, coordinator_epoch=record_epoch))
    run = BucketRun()
    run.batch(DATA, past, leaders=NOW)
    assert outcome_of(run) is expected


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
