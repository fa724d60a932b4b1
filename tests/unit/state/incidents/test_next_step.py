"""What follows when a candidate is confirmed, as tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from support.incidents import an_event
from txnwatch.state.incidents.found_incidents import is_update_of_span, needs_confirmation
from txnwatch.state.incidents.life import Known, NextStep, confirmed_span, confirmed_transaction, step
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.verdicts import RULE_OF, Verdict, rank

INCIDENTS = Path(__file__).parents[4] / "state" / "incidents"
FOUND = an_event()
STRAY = an_event(verdict=Verdict.STRAY_WRITE, severity=RULE_OF[Verdict.STRAY_WRITE].severity)

SPANS = {
    "nothing is open": (None, NextStep.OPEN),
    "published already": (FOUND, NextStep.ADOPT),
    "an earlier transaction of the producer": (an_event(txn_start_offset=98), NextStep.END_AND_OPEN),
    "a later transaction of the producer": (an_event(txn_start_offset=100), NextStep.END_AND_OPEN),
    "without an offset": (an_event(txn_start_offset=None), NextStep.END_AND_OPEN),
    "a stray write that hangs now": (STRAY, NextStep.CHANGE_VERDICT),
    "an earlier stray write": (
        an_event(txn_start_offset=98, verdict=Verdict.STRAY_WRITE, severity=STRAY.severity),
        NextStep.END_AND_OPEN,
    ),
}


def test_each_step_of_the_table_is_made_by_the_code() -> None:
    others = [path.read_text() for path in INCIDENTS.glob("*.py") if path.name != "life.py"]
    assert [one for one in NextStep if not any(re.search(rf"\bNextStep\.{one.name}\b", text) for text in others)] == []


def as_known(known: IncidentEvent | None) -> tuple[Known, ...]:
    """An open incident was found here or by others: what follows is the same."""
    return (Known.NOTHING,) if known is None else (Known.FOUND, Known.CLAIMED)


@pytest.mark.parametrize(("known", "expected"), SPANS.values(), ids=SPANS.keys())
def test_a_confirmed_span_has_the_expected_next_step(known: IncidentEvent | None, expected: NextStep) -> None:
    assert {step(one, confirmed_span(known, FOUND)) for one in as_known(known)} == {expected}


@pytest.mark.parametrize("known", Verdict)
@pytest.mark.parametrize("found", Verdict)
def test_the_verdict_about_a_transaction_only_becomes_worse(known: Verdict, found: Verdict) -> None:
    incident = an_event(verdict=known, severity=RULE_OF[known].severity)
    is_worse = rank(found) < rank(known)
    event = an_event(verdict=found, severity=RULE_OF[found].severity)
    steps = {step(one, confirmed_transaction(incident, event)) for one in as_known(incident)}
    assert steps == {NextStep.CHANGE_VERDICT if is_worse else NextStep.ADOPT}
    assert needs_confirmation(incident, found, is_found=True) is is_worse
    assert needs_confirmation(incident, found, is_found=False)


def test_a_transaction_without_an_incident_is_confirmed_and_opens_one() -> None:
    assert needs_confirmation(None, Verdict.LATE, is_found=False)
    assert step(Known.NOTHING, confirmed_transaction(None, FOUND)) is NextStep.OPEN


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
