"""When an outcome is known, when it is awaited, and when it is settled that it cannot be known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from support.incidents import an_event
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.outcome import Outcome, known_outcome, outcome_basis, unknown, with_outcome
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import ExpectedOutcome as O
from txnwatch.state.model.incident import OutcomeDoubt as D
from txnwatch.state.model.ports import BEING_READ, NOT_ASKED, ActiveProducer, SpanHistory
from txnwatch.state.model.transaction import CoordinatorView, DescribedTransaction, EpochUse, Span, TransactionState
from txnwatch.state.model.values import BarrierNumber, CoordinatorEpoch, Problem, TopicPartition
from txnwatch.state.model.verdicts import Verdict

SPAN = Span("Zm9v", 99, 2, 2, 120, 0, 0, 7)
NOW = SpanCandidate(Verdict.HANGING, 7, TopicPartition("orders", 3), SPAN, None, 7, 8, 0, 0)
ROW = ActiveProducer(7, 2, 20, 0, None, 99)
WHOLE = SpanConfirmation(
    Answer.CONFIRMED,
    producer=ROW,
    is_unchanged=True,
    is_settled=True,
    log_epoch=CoordinatorEpoch(0),
    history=SpanHistory(2, None, is_first=True),
)
VIEW = CoordinatorView(
    *("checkout", 0, 9, TransactionState.COMPLETE_ABORT, 2, 60_000, 1, 0, 0, frozenset({NOW.partition})),
    data_epoch=2,
    epoch_use=EpochUse.FIRST,
    coordinator_epoch=0,
)
OWNED = changed(NOW, view=VIEW, log_epoch=0)
MOVED = "they are in __transaction_state-0, and with 50 partitions it belongs to __transaction_state-18"


def with_row(**changes: Any) -> SpanConfirmation:
    """The fresh read, and another row of the leader."""
    return replace(WHOLE, producer=ROW._replace(**changes))


def moved_on(producer_id: int) -> SpanConfirmation:
    """A fresh read in which the id has another transaction, or another producer id."""
    described = DescribedTransaction("checkout", 1, TransactionState.EMPTY, producer_id, 3, 60_000)
    return replace(WHOLE, is_settled=False, description=described)


OUTCOMES: dict[str, tuple[SpanCandidate, SpanConfirmation, Outcome]] = {
    "known": (OWNED, WHOLE, Outcome(O.ABORT)),
    "no row": (OWNED, replace(WHOLE, producer=None), unknown(D.NOT_READ)),
    "absorbed": (changed(OWNED, span=changed(SPAN, absorbed=True)), WHOLE, unknown(D.DATA_MIXED)),
    "more data": (OWNED, replace(WHOLE, producer=ROW._replace(txn_start_offset=98)), unknown(D.DATA_MIXED)),
    "written meanwhile": (OWNED, replace(WHOLE, is_unchanged=False), unknown(D.WRITTEN_MEANWHILE)),
    "of another epoch than was read": (
        OWNED,
        with_row(producer_epoch=3),
        unknown(D.DATA_MIXED, "its epochs are 2 and 3"),
    ),
    "appended before the fresh read, and the coordinator and its log are as before": (
        OWNED,
        with_row(last_sequence=21, last_timestamp_ms=1),
        Outcome(O.ABORT),
    ),
    "the coordinator has moved on": (OWNED, moved_on(7), unknown(D.COORDINATOR_MOVED_ON)),
    "the id has another producer id": (OWNED, moved_on(8), unknown(D.PRODUCER_ID_SUPERSEDED)),
    "the id has expired": (OWNED, replace(WHOLE, is_settled=False), unknown(D.ID_EXPIRED)),
    "no coordinator finds the id, because the log has more partitions now": (
        changed(OWNED, view=changed(VIEW, state=TransactionState.ONGOING)),
        replace(WHOLE, is_settled=False, log_partitions=50),
        unknown(D.ONGOING_MOVED, MOVED),
    ),
    "the same, and its last transaction has ended": (
        OWNED,
        replace(WHOLE, is_settled=False, log_partitions=50),
        unknown(D.RECORDS_MOVED, MOVED),
    ),
    "the id is in its partition, and has expired": (
        OWNED,
        replace(WHOLE, is_settled=False, log_partitions=1),
        unknown(D.ID_EXPIRED),
    ),
    "the leader of the log is not known": (
        OWNED,
        replace(WHOLE, log_epoch=Problem("no leader")),
        unknown(D.NOT_READ, "no leader"),
    ),
    "an election of the log during the read": (
        OWNED,
        replace(WHOLE, log_epoch=CoordinatorEpoch(1)),
        unknown(D.LOG_ELECTION, "during the read: leader epoch 0 then, 1 now"),
    ),
    "the coordinator never knew it": (NOW, replace(WHOLE, is_settled=False), unknown(D.NO_RECORD)),
    "not read": (OWNED, replace(WHOLE, history=NOT_ASKED), unknown(D.NOT_READ, str(NOT_ASKED.problem))),
    "being read": (
        OWNED,
        replace(WHOLE, history=BEING_READ),
        unknown(D.NOT_READ, str(BEING_READ.problem), is_being_read=True),
    ),
    "no record was read": (NOW, WHOLE, unknown(D.NO_RECORD)),
    "an election of the log": (
        changed(OWNED, log_epoch=1),
        replace(WHOLE, log_epoch=CoordinatorEpoch(1)),
        unknown(D.LOG_ELECTION, "__transaction_state-0: leader epoch 0 then, 1 now"),
    ),
}
AWAITED = {D.NOT_READ, D.WRITTEN_MEANWHILE}


@pytest.mark.parametrize(("candidate", "found", "expected"), OUTCOMES.values(), ids=OUTCOMES.keys())
def test_an_unknown_outcome_is_awaited_only_if_an_answer_is_missing(
    candidate: SpanCandidate, found: SpanConfirmation, expected: Outcome
) -> None:
    outcome = known_outcome(candidate, found)
    assert outcome == expected
    assert outcome.is_awaited is (outcome.doubt is not None and outcome.doubt.kind in AWAITED)


@pytest.mark.parametrize(
    ("verdict", "outcome", "doubt"),
    [
        (Verdict.HANGING, unknown(D.NOT_READ, "no leader"), D.NOT_READ),
        (Verdict.HANGING, Outcome(O.COMMIT), None),
        (Verdict.LATE, unknown(D.NOT_READ, "no leader"), None),
    ],
)
def test_an_event_about_a_hang_has_the_doubt_and_its_text(verdict: Verdict, outcome: Outcome, doubt: D | None) -> None:
    before = an_event(verdict=verdict, outcome_doubt=D.CONTRADICTION, outcome_detail="two reads differ")
    event = with_outcome(before, outcome)
    assert (event.expected_outcome, event.outcome_doubt) == (outcome.outcome, doubt)
    assert event.outcome_detail == (outcome.doubt.text if doubt is not None else None)


@pytest.mark.parametrize(
    ("candidate", "is_same"),
    [
        (changed(OWNED, second_barrier=BarrierNumber(9)), True),
        (changed(OWNED, span=changed(SPAN, last_offset=130)), True),
        (changed(OWNED, span=changed(SPAN, start_offset=98)), False),
        (changed(OWNED, span=changed(SPAN, absorbed=True)), False),
        (changed(OWNED, span=changed(SPAN, epoch=3)), False),
        (changed(OWNED, span=changed(SPAN, last_timestamp_ms=1)), False),
        (changed(OWNED, view=changed(VIEW, log_offset=10)), False),
        (changed(OWNED, log_epoch=1), False),
        (changed(OWNED, is_begun_under_it=True), False),
        (NOW, False),
    ],
)
def test_a_settled_outcome_changes_only_with_the_state(candidate: SpanCandidate, *, is_same: bool) -> None:
    assert (outcome_basis(candidate) == outcome_basis(OWNED)) is is_same
