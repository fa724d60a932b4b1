"""When an outcome is known, when it is awaited, and when it is settled that it cannot be known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from support.incidents import an_event
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.known_outcome import (
    WRITTEN_MEANWHILE,
    Outcome,
    is_without_outcome,
    known_outcome,
    outcome_basis,
)
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.ids import BarrierNumber, TopicPartition
from txnwatch.state.model.incident_payload import ExpectedOutcome as O
from txnwatch.state.model.incident_payload import IncidentStatus
from txnwatch.state.model.ports import BEING_READ, NOT_ASKED, ActiveProducer, SpanHistory
from txnwatch.state.model.transaction import Span
from txnwatch.state.model.verdicts import Reason, Verdict

SPAN = Span("Zm9v", 99, 2, 2, 120, 0, 0, 7)
NOW = SpanCandidate(Verdict.HANGING, Reason.ALREADY_COMPLETED, 7, TopicPartition("orders", 3), SPAN, None, 7, 8, 0, 0)
ROW = ActiveProducer(7, 2, 20, 0, None, 99)
FRESH = SpanConfirmation(Answer.CONFIRMED, producer=ROW, is_unchanged=True, is_settled=True, history=SpanHistory())

OUTCOMES: dict[str, tuple[SpanCandidate, SpanConfirmation, Outcome]] = {
    "no row": (NOW, replace(FRESH, producer=None), Outcome(O.UNKNOWN)),
    "absorbed": (changed(NOW, span=changed(SPAN, absorbed=True)), FRESH, Outcome(O.UNKNOWN)),
    "more data": (NOW, replace(FRESH, producer=ROW._replace(txn_start_offset=98)), Outcome(O.UNKNOWN)),
    "written meanwhile": (NOW, replace(FRESH, is_unchanged=False), Outcome(O.UNKNOWN, WRITTEN_MEANWHILE)),
    "the coordinator has moved on": (NOW, replace(FRESH, is_settled=False), Outcome(O.UNKNOWN)),
    "not read": (NOW, replace(FRESH, history=NOT_ASKED), Outcome(O.UNKNOWN, NOT_ASKED.problem)),
    "being read": (NOW, replace(FRESH, history=BEING_READ), Outcome(O.UNKNOWN, BEING_READ.problem, True)),
    "nothing is known": (NOW, FRESH, Outcome(O.UNKNOWN)),
}


@pytest.mark.parametrize(("candidate", "found", "expected"), OUTCOMES.values(), ids=OUTCOMES.keys())
def test_an_unknown_outcome_is_awaited_only_if_an_answer_is_missing(
    candidate: SpanCandidate, found: SpanConfirmation, expected: Outcome
) -> None:
    assert known_outcome(candidate, found) == expected


WITHOUT: dict[str, tuple[dict[str, Any], bool]] = {
    "a hang without an outcome": ({"expected_outcome": O.UNKNOWN}, True),
    "a hang with an outcome": ({"expected_outcome": O.ABORT}, False),
    "ended": ({"expected_outcome": O.UNKNOWN, "status": IncidentStatus.RESOLVED}, False),
    "a stray write": ({"expected_outcome": O.UNKNOWN, "verdict": Verdict.STRAY_WRITE}, False),
}


@pytest.mark.parametrize(("changes", "expected"), WITHOUT.values(), ids=WITHOUT.keys())
def test_only_an_open_hang_waits_for_its_outcome(changes: dict[str, Any], *, expected: bool) -> None:
    assert is_without_outcome(an_event(**changes)) is expected
    assert is_without_outcome(None) is False


@pytest.mark.parametrize(
    ("candidate", "is_same"),
    [
        (changed(NOW, second_barrier=BarrierNumber(9)), True),
        (changed(NOW, span=changed(SPAN, last_offset=130)), True),
        (changed(NOW, span=changed(SPAN, start_offset=98)), False),
        (changed(NOW, span=changed(SPAN, absorbed=True)), False),
    ],
)
def test_a_settled_outcome_changes_only_with_the_state(candidate: SpanCandidate, *, is_same: bool) -> None:
    assert (outcome_basis(candidate) == outcome_basis(NOW)) is is_same
