"""The outcome that a watcher has published: shown as a claim, with its author, and only for the same data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.hung_spans import NOW_MS, OWNERS, a_hang
from support.incidents import an_update
from txnwatch.state.incidents.event_builder import span_event
from txnwatch.state.model.incident import (
    Action,
    Decision,
    ExpectedOutcome,
    IncidentEvent,
    IncidentStatus,
    Initiator,
    PublishedEvents,
    repeat_incident_id,
)
from txnwatch.state.model.verdicts import Reason, Verdict
from txnwatch.state.telling.commands import Origin
from txnwatch.state.telling.published import ANYONE, ASK_THE_WATCHER, WHO_MAY_KNOW, Telling, tell_found
from txnwatch.state.telling.renderings import sentences, steps_of
from txnwatch.state.telling.statements import OUTCOME_WORDS, StatementKind, tell
from txnwatch.state.text import utc_text

ORIGIN = Origin("cluster", "a:1")
KNOWN = [one for one in ExpectedOutcome if one is not ExpectedOutcome.UNKNOWN]
UNKNOWN = OUTCOME_WORDS[ExpectedOutcome.UNKNOWN]


def found(outcome: ExpectedOutcome = ExpectedOutcome.UNKNOWN) -> IncidentEvent:
    hang = a_hang(Reason.ALREADY_COMPLETED, outcome, OWNERS["the id has a higher epoch"])
    return span_event(ORIGIN, *hang, None, NOW_MS)


def said(outcome: ExpectedOutcome = ExpectedOutcome.ABORT) -> IncidentEvent:
    """The event of a watcher that knows the outcome."""
    return replace(found(), expected_outcome=outcome, outcome_doubt=None, outcome_detail=None, outcome_by="one")


def telling(event: IncidentEvent, *published: IncidentEvent, problem: str | None = None) -> Telling:
    return tell_found(replace(ORIGIN, published=lambda: PublishedEvents(published, problem)), event)


def outcome_of(told: Telling) -> str:
    return sentences(told.told, StatementKind.OUTCOME)["outcome"]


@pytest.mark.parametrize("outcome", KNOWN)
def test_an_outcome_of_a_watcher_is_told_with_its_author_its_time_and_why_it_is_not_proven(
    outcome: ExpectedOutcome,
) -> None:
    told = telling(found(), said(outcome))
    assert (told.published_outcome, told.published_by) == (outcome, "one")
    words, who = OUTCOME_WORDS[outcome], f"The watcher 'one' said at {utc_text(NOW_MS)}"
    why = f"This command has not proven it: {found().outcome_detail}."
    assert outcome_of(told) == f"{who}: {words.means} {why} {ANYONE}"
    safe = sentences(told.told, StatementKind.SAFE)["safe"]
    assert safe == f"If that is true: {words.safe[0].lower()}{words.safe[1:]}"
    steps = steps_of(told.told)
    assert [one.command for one in steps] == [one.command for one in steps_of(tell(found()))], "nothing is acted on"
    assert steps[-1].text == f"2. {ASK_THE_WATCHER}"


def test_a_watcher_without_a_name_is_a_watcher() -> None:
    assert outcome_of(telling(found(), replace(said(), outcome_by=None))).startswith("A watcher said at ")


@pytest.mark.parametrize("outcome", KNOWN)
def test_a_known_outcome_needs_no_watcher(outcome: ExpectedOutcome) -> None:
    def unread() -> PublishedEvents:
        raise AssertionError("the events topic was read")

    event = found(outcome)
    assert tell_found(replace(ORIGIN, published=unread), event) == Telling(tell(event))


by_hand = Action(decision=Decision.ABORT, by="me@host", at_ms=1, initiator=Initiator.OPERATOR)
ABOUT_SOMETHING_ELSE = {
    "another cluster": replace(said(), cluster_id="another"),
    "another start": replace(said(), txn_start_offset=98),
    "another topic of this name": replace(said(), topic_id="another"),
    "another producer": replace(said(), producer_id=1),
    "an end": replace(said(), status=IncidentStatus.RESOLVED),
    "another verdict": replace(said(), verdict=Verdict.STRAY_WRITE),
    "an abort by hand": replace(said(), action=by_hand, incident_id=repeat_incident_id(str(said().first_id), 1)),
}


@pytest.mark.parametrize("event", ABOUT_SOMETHING_ELSE.values(), ids=ABOUT_SOMETHING_ELSE.keys())
def test_what_is_about_something_else_says_nothing(event: IncidentEvent) -> None:
    told = telling(found(), event)
    assert told.published_outcome is None
    assert outcome_of(told) == f"{UNKNOWN.means}: {found().outcome_detail}. {WHO_MAY_KNOW}"
    assert sentences(told.told, StatementKind.SAFE)["safe"] == UNKNOWN.safe


OTHER_DATA = {
    "another epoch": replace(said(), producer_epoch=9),
    "a later write": replace(said(), last_write_ms=NOW_MS + 1),
    "a later sequence": replace(said(), evidence=replace(said().evidence, last_sequence=99)),
}


@pytest.mark.parametrize("event", OTHER_DATA.values(), ids=OTHER_DATA.keys())
def test_an_outcome_of_other_data_is_no_outcome(event: IncidentEvent) -> None:
    told = telling(found(), event)
    assert told.published_outcome is None
    assert outcome_of(told).endswith("The event of a watcher has the outcome abort, but data was written since.")


def test_it_is_said_why_no_watcher_is_named() -> None:
    assert outcome_of(telling(found(), found())).endswith("does not have the outcome either.")
    unread = outcome_of(telling(found(), problem="READ is missing"))
    assert unread.endswith(f"The events topic could not be read: READ is missing. {WHO_MAY_KNOW}")


def test_the_incident_with_the_computed_id_counts_before_one_with_any_other_id() -> None:
    forged = replace(said(ExpectedOutcome.NONE), incident_id="f" * 32, outcome_by="forged")
    assert telling(found(), said(), an_update(forged, NOW_MS)).published_by == "one"
    assert telling(found(), forged).published_by == "forged", "an incident that was opened again has another id"
