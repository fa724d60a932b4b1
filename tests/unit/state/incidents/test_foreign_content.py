from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.incidents import an_event
from txnwatch.state.evidence.ending import no_longer_open
from txnwatch.state.incidents.abort_protocol import action
from txnwatch.state.incidents.book import Book, is_own, is_same_span
from txnwatch.state.incidents.checking import candidate_of, is_doubtful_span
from txnwatch.state.incidents.claims import (
    BELIEVED,
    OwnState,
    believed,
    believed_action,
    differs,
    found_too,
    is_elsewhere,
    with_newer_verdict,
)
from txnwatch.state.incidents.incident_store import IncidentStore
from txnwatch.state.incidents.life import Happening, NextStep, step
from txnwatch.state.incidents.own_findings import OwnFindings
from txnwatch.state.model.incident import (
    ActionResult,
    Decision,
    ExpectedOutcome,
    IncidentEvent,
    IncidentStatus,
    Initiator,
    OutcomeDoubt,
    repeat_incident_id,
    span_incident_id,
)
from txnwatch.state.model.verdicts import RULE_OF, Verdict
from txnwatch.state.telling.commands import Origin

FOUND = an_event()
NOW_MS = FOUND.time_ms
OURS = action(Decision.ABORT, "us", NOW_MS)
THEIRS = action(Decision.REFUSED, "them", NOW_MS)
VERIFIED = replace(THEIRS, decision=Decision.ABORT, result=ActionResult.VERIFIED)
FAILED = replace(THEIRS, decision=Decision.ABORT, result=ActionResult.FAILED)


def _of(verdict: Verdict) -> dict[str, Any]:
    return {"verdict": verdict, "severity": RULE_OF[verdict].severity}


ABORT_BY_HAND = {
    "incident_id": repeat_incident_id(
        span_incident_id(FOUND.cluster_id, FOUND.topic_id, FOUND.partition, FOUND.producer_id, FOUND.txn_start_offset),
        NOW_MS,
    ),
    "action": action(Decision.ABORT, "operator", NOW_MS, initiator=Initiator.OPERATOR),
}
SUBJECT = {
    "topic": "payments",
    "partition": 4,
    "topic_id": "QW5vdGhlcl90b3BpY19pZA",
    "producer_id": 1,
    "txn_start_offset": 98,
    "transactional_id": "other",
}


@pytest.mark.parametrize("field", SUBJECT)
def test_another_subject_is_elsewhere_in_both_directions(field: str) -> None:
    other = an_event(**{field: SUBJECT[field]})
    assert is_elsewhere(other, FOUND)
    assert is_elsewhere(FOUND, other)
    assert differs(other, FOUND)


@pytest.mark.parametrize("field", ["topic_id", "txn_start_offset", "transactional_id"])
def test_a_value_that_one_instance_does_not_know_yet_is_no_other_subject(field: str) -> None:
    unknown = an_event(**{field: None})
    assert not is_elsewhere(unknown, FOUND)
    assert not is_elsewhere(FOUND, unknown)


def test_an_incident_about_a_partition_and_one_about_a_transaction_have_different_subjects() -> None:
    about_transaction = an_event(topic=None, partition=None)
    assert is_elsewhere(about_transaction, FOUND)
    assert is_elsewhere(FOUND, about_transaction)


@pytest.mark.parametrize(
    ("published", "found", "expected"),
    [
        ({}, {}, False),
        ({"age_ms": 9}, {}, False),
        ({"verdict": "late"}, {}, True),
        ({"severity": "warning"}, {}, True),
        ({"expected_outcome": "commit"}, {}, True),
        ({"expected_outcome": "unknown"}, {}, True),
        ({"expected_outcome": "commit"}, {"expected_outcome": "unknown"}, False),
        ({"verdict": "hanging"}, {"verdict": "late", "severity": "warning"}, False),
        (_of(Verdict.LONG_RUNNING), _of(Verdict.LATE), True),
        (_of(Verdict.LATE), _of(Verdict.LONG_RUNNING), False),
    ],
)
def test_these_fields_of_an_event_differ_from_the_finding(
    published: dict[str, Any],
    found: dict[str, Any],
    expected: bool,  # noqa: FBT001
) -> None:
    assert differs(an_event(**published), an_event(**found)) is expected


@pytest.mark.parametrize(
    ("known", "is_found", "expected"),
    [
        ({}, True, NextStep.TELL_AGAIN),
        ({}, False, NextStep.NOTHING),
        ({"status": IncidentStatus.RESOLVED}, False, NextStep.TELL_AGAIN),
        (ABORT_BY_HAND, True, NextStep.NOTHING),
    ],
)
def test_the_answer_to_a_record_of_another_writer(
    known: dict[str, Any],
    is_found: bool,  # noqa: FBT001
    expected: NextStep,
) -> None:
    store = IncidentStore("cluster", is_found=lambda _: is_found)
    assert step(store.known_as(replace(an_event(), **known)), Happening.FOREIGN_RECORD) is expected


@pytest.mark.parametrize(
    ("is_found", "changes", "keeps"), [(True, {}, True), (False, {}, False), (False, SUBJECT, True)]
)
def test_the_stored_content_stays_if_it_is_ours_or_if_the_subject_is_another(
    is_found: bool,  # noqa: FBT001
    changes: dict[str, Any],
    keeps: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Book, "is_found", lambda *_: is_found)
    monkeypatch.setattr(Book, "as_found", lambda _, event: event)
    book = Book(Origin("cluster", "server"), OwnFindings())
    book.store.enter(FOUND)
    taken = book.content_of(an_event(**changes, severity="warning", status=IncidentStatus.UPDATED), NOW_MS)
    assert (taken.severity == FOUND.severity, taken.status) == (keeps, IncidentStatus.UPDATED)


@given(st.integers(NOW_MS - 10, NOW_MS + 10), st.sampled_from(OwnState))
def test_only_the_fields_of_its_row_are_believed(time_ms: int, own: OwnState) -> None:
    end = no_longer_open(NOW_MS, "not so")
    changes = {"status": IncidentStatus.RESOLVED, "resolution": end, "action": THEIRS, "sequence": 7}
    record = an_event(**SUBJECT, **changes, time_ms=time_ms, severity="warning", suggested_command="rm")
    taken = believed(record, FOUND, own, None, NOW_MS)
    shown = replace(record, time_ms=min(time_ms, NOW_MS))
    for name in (field.name for field in fields(IncidentEvent)):
        assert getattr(taken, name) == getattr(shown if name in BELIEVED[own] else FOUND, name), name
    assert believed(record, None, OwnState.NOTHING, None, NOW_MS) == shown


def test_a_record_that_comes_late_takes_no_sequence_back() -> None:
    late = an_event(sequence=3)
    assert believed(late, replace(FOUND, sequence=8), OwnState.DEFENDED, None, NOW_MS).sequence == 8


@pytest.mark.parametrize(
    ("claim", "stored", "acted", "expected"),
    [
        (None, None, None, None),
        (None, THEIRS, None, THEIRS),
        (None, THEIRS, OURS, OURS),
        (replace(OURS, detail="forged"), None, OURS, OURS),
        (THEIRS, None, OURS, THEIRS),
        (THEIRS, None, None, THEIRS),
        (FAILED, None, None, FAILED),
        (VERIFIED, None, None, replace(VERIFIED, result=None)),
        (VERIFIED, None, OURS, replace(VERIFIED, result=None)),
    ],
)
def test_the_expected_decision_counts(claim: Any, stored: Any, acted: Any, expected: Any) -> None:
    assert believed_action(replace(FOUND, action=claim), replace(FOUND, action=stored), acted) == expected


def test_a_finding_about_a_published_incident_keeps_its_identity_its_beginning_and_the_earlier_start() -> None:
    known = an_event(sequence=5, detected_at_ms=1, detection_latency_ms=2, open_since_ms=100, action=THEIRS)
    found = an_event("other", expected_outcome="commit", open_since_ms=200, time_ms=NOW_MS + 9)
    assert found_too(known, found) == replace(known, expected_outcome=found.expected_outcome)
    assert found_too(replace(known, open_since_ms=300), found).open_since_ms == 200


def test_a_newer_verdict_changes_all_but_the_identity_and_the_start_of_an_incident() -> None:
    known = an_event(sequence=5, status=IncidentStatus.UPDATED, open_since_ms=100, open_since_clock="coordinator")
    event = an_event("other", **_of(Verdict.LATE), txn_start_offset=98, age_ms=7, time_ms=NOW_MS + 9, action=THEIRS)
    newer = with_newer_verdict(known, event)
    assert newer == replace(known, verdict=Verdict.LATE, severity=event.severity, action=THEIRS)


OWN = {
    "found at this offset, and published": (99, FOUND.incident_id, True),
    "found at another offset": (98, FOUND.incident_id, False),
    "not found": (None, FOUND.incident_id, False),
    "found, and another incident is about it": (99, "another", False),
    "found, and not published": (99, None, False),
}


@pytest.mark.parametrize(("start", "published_as", "expected"), OWN.values(), ids=OWN.keys())
def test_an_incident_is_our_own_only_at_the_offset_that_was_found(
    start: int | None, published_as: str | None, *, expected: bool
) -> None:
    assert is_own(FOUND, start, published_as) is expected


def test_an_incident_without_an_offset_is_never_our_own() -> None:
    assert not is_own(an_event(txn_start_offset=None), None, FOUND.incident_id)


def test_an_id_can_be_used_for_another_span() -> None:
    assert is_same_span(FOUND, an_event(verdict="stray_write", sequence=7))
    for field in ("topic", "partition", "topic_id", "producer_id", "txn_start_offset"):
        assert not is_same_span(FOUND, an_event(**{field: SUBJECT[field]}))


@given(st.sampled_from(list(Verdict)), st.sampled_from(list(ExpectedOutcome)))
def test_the_outcome_of_a_hang_is_only_what_was_found(verdict: Verdict, claim: ExpectedOutcome) -> None:
    event = an_event(**_of(verdict), expected_outcome=claim, outcome_doubt=None, outcome_detail="forged")
    published = Book(Origin("cluster", "broker:9092"), OwnFindings()).as_found(event)
    if verdict == Verdict.HANGING:
        assert published.expected_outcome == ExpectedOutcome.UNKNOWN
        assert (published.outcome_doubt, published.outcome_by) == (OutcomeDoubt.NOT_FOUND_HERE, None)
        assert published.outcome_detail != "forged"
    else:
        assert published == event


DOUBTFUL_SPANS: dict[str, tuple[dict[str, Any], bool, bool]] = {
    "a hang of another writer": ({}, False, True),
    "a hang that was found": ({}, True, False),
    "a stray write": (_of(Verdict.STRAY_WRITE), False, False),
    "a hang without an offset": ({"txn_start_offset": None}, False, False),
    "a hang without a partition": ({"topic": None, "partition": None}, False, False),
    "an abort by hand": (ABORT_BY_HAND, False, False),
}


@pytest.mark.parametrize(("changes", "was_found", "expected"), DOUBTFUL_SPANS.values(), ids=DOUBTFUL_SPANS.keys())
def test_a_hang_that_was_never_found_is_read_again(changes: dict[str, Any], *, was_found: bool, expected: bool) -> None:
    assert is_doubtful_span(an_event(**changes), was_found=was_found) is expected


def test_a_published_hang_is_a_candidate_about_the_same_span() -> None:
    candidate = candidate_of(FOUND)
    assert (candidate.span.topic_id, candidate.partition, candidate.producer_id) == FOUND.span
    assert (candidate.span.start_offset, candidate.span.start_epoch) == (FOUND.txn_start_offset, FOUND.producer_epoch)
    assert candidate.view is None, "what the event claims about the owner is not used"
