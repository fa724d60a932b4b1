"""What follows when a candidate is confirmed, as tables."""

from __future__ import annotations

from typing import Any

import pytest

from support.incidents import an_event
from txnwatch.state.incidents.event_order import (
    NextStep,
    is_update_of_span,
    needs_confirmation,
    step_of_span,
    step_of_transaction,
)
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.verdicts import RULE_OF, Verdict, rank

FOUND = an_event()
STRAY = an_event(verdict=Verdict.STRAY_WRITE, severity=RULE_OF[Verdict.STRAY_WRITE].severity)

SPANS = {
    "nothing is open": (None, NextStep.OPEN),
    "published already": (FOUND, NextStep.COMPARE),
    "an earlier transaction of the producer": (an_event(txn_start_offset=98), NextStep.END_AND_OPEN),
    "a later transaction of the producer": (an_event(txn_start_offset=100), NextStep.END_AND_OPEN),
    "without an offset": (an_event(txn_start_offset=None), NextStep.END_AND_OPEN),
    "a stray write that hangs now": (STRAY, NextStep.CHANGE_VERDICT),
    "an earlier stray write": (
        an_event(txn_start_offset=98, verdict=Verdict.STRAY_WRITE, severity=STRAY.severity),
        NextStep.END_AND_OPEN,
    ),
}


@pytest.mark.parametrize(("known", "step"), SPANS.values(), ids=SPANS.keys())
def test_a_confirmed_span_has_the_expected_next_step(known: IncidentEvent | None, step: NextStep) -> None:
    assert step_of_span(known, FOUND) is step


@pytest.mark.parametrize("known", Verdict)
@pytest.mark.parametrize("found", Verdict)
def test_the_verdict_about_a_transaction_only_becomes_worse(known: Verdict, found: Verdict) -> None:
    incident = an_event(verdict=known, severity=RULE_OF[known].severity)
    is_worse = rank(found) < rank(known)
    assert step_of_transaction(incident, found) is (NextStep.CHANGE_VERDICT if is_worse else NextStep.COMPARE)
    assert needs_confirmation(incident, found, is_found=True) is is_worse
    assert needs_confirmation(incident, found, is_found=False)


def test_a_transaction_without_an_incident_is_confirmed_and_opens_one() -> None:
    assert needs_confirmation(None, Verdict.LATE, is_found=False)
    assert step_of_transaction(None, Verdict.LATE) is NextStep.OPEN


UPDATES: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "the same": ({}, {}, False),
    "only the age differs": ({"age_ms": 1}, {"age_ms": 2}, False),
    "the outcome is known now": ({"expected_outcome": "unknown"}, {"expected_outcome": "commit"}, True),
    "another outcome": ({"expected_outcome": "commit"}, {"expected_outcome": "abort"}, True),
    "the outcome is not known here": ({"expected_outcome": "commit"}, {"expected_outcome": "unknown"}, False),
    "the owner is known now": ({"transactional_id": None}, {"transactional_id": "payments"}, True),
    "the owner is not known here": ({"transactional_id": "payments"}, {"transactional_id": None}, False),
    "another verdict": ({"verdict": "stray_write", "severity": "warning"}, {}, True),
}


@pytest.mark.parametrize(("known", "found", "expected"), UPDATES.values(), ids=UPDATES.keys())
def test_a_published_span_is_updated_only_with_something_new(
    known: dict[str, Any], found: dict[str, Any], *, expected: bool
) -> None:
    assert is_update_of_span(an_event(**known), an_event(**found)) is expected
