"""The statements about one incident, and what a reader takes of them."""

from __future__ import annotations

import pytest

from support.incidents import a_life, an_event
from txnwatch.state.model.incident import EndKind, ExpectedOutcome
from txnwatch.state.model.ownership import ADVICE_MEANS, Advice
from txnwatch.state.model.verdicts import Reason, Verdict
from txnwatch.state.telling.renderings import as_json, blocks, lines, look_again, once_looked, sentences, steps_of
from txnwatch.state.telling.statements import (
    END_MEANS,
    OUTCOME_WORDS,
    REASON_MEANS,
    VERDICT_WORDS,
    StatementKind,
    tell,
)

LOOK = "txnwatch explain --topic orders --partition 3 --bootstrap-server a:1"
ABORT = "txnwatch abort --topic orders --partition 3 --start-offset 99 --bootstrap-server a:1"


def test_every_value_has_its_row() -> None:
    assert set(VERDICT_WORDS) == set(Verdict)
    assert set(OUTCOME_WORDS) == set(ExpectedOutcome)
    assert set(REASON_MEANS) == set(Reason)
    assert set(END_MEANS) == set(EndKind)


@pytest.mark.parametrize("verdict", Verdict)
def test_every_open_incident_has_each_answer(verdict: Verdict) -> None:
    told = as_json(tell(an_event(verdict=verdict, suggested_command=LOOK)))
    assert all(told[kind] for kind in ("holds", "why", "safe", "ends"))
    assert told["steps"][0]["command"] == LOOK


def test_what_is_over_has_an_end_and_no_step() -> None:
    told = as_json(tell(a_life("over")[-1]))
    assert (told["ends"], told["safe"], told["steps"]) == ("It is over: aborted by administrator.", "", [])


def test_a_group_that_has_committed_nothing_is_told_of_as_hurt() -> None:
    new = {"group_id": "first-deployment", "state": "at_risk", "committed_offset": None, "hidden_lag": 5}
    behind = {"group_id": "billing", "state": "at_risk", "committed_offset": 7, "hidden_lag": 5}
    hurt = as_json(tell(an_event(consumer_groups=(new, behind))))["hurt"]
    line = "Groups that have committed nothing there yet, and stop if they read with read_committed: first-deployment."
    assert hurt.endswith(line)


def test_what_the_next_transaction_holds_is_left_alone() -> None:
    told = as_json(tell(an_event(transaction_state="Ongoing", suggested_command=None)))
    assert told["safe"] == "Write no marker: it would end the producer's next transaction."
    (step,) = told["steps"]
    assert step["text"].startswith("Do nothing now: the producer's next transaction holds it (Ongoing)")
    unknown = steps_of(tell(an_event(transaction_state="CompleteAbort", suggested_command=None)))
    assert unknown[0].text == "1. Look again before you act."


@pytest.mark.parametrize("advice", [None, Advice.RESUME_FLINK_JOB])
def test_an_advice_takes_the_step_that_loses_data(advice: Advice | None) -> None:
    whole = {"topic": None, "partition": None, "verdict": "late", "transaction_state": "Ongoing"}
    told = tell(an_event(**whole, suggested_command=LOOK, advice=advice))
    assert any("fence its id" in step.text for step in steps_of(told)) is (advice is None)
    assert (ADVICE_MEANS[Advice.RESUME_FLINK_JOB] in sentences(told, StatementKind.SAFE)["safe"]) is (
        advice is not None
    )


@pytest.mark.parametrize("log", ["23@5210", None, "x@1", "\u0663@1", "9" * 40])
def test_the_last_step_names_the_log_partition_of_the_id(log: str | None) -> None:
    event = an_event(topic=None, partition=None, verdict="late", suggested_command=LOOK)
    object.__setattr__(event.evidence, "coordinator_log", log)
    place = "__transaction_state-23" if log == "23@5210" else "its partition of __transaction_state"
    assert f"move the leader of {place} to another broker" in steps_of(tell(event))[1].text


def test_names_of_others_are_shown_as_the_reader_wants() -> None:
    event = an_event(transactional_id="evil", topic="evil", outcome_detail="evil", expected_outcome="unknown")
    groups = [{"group_id": "evil", "partitions": ()}]
    told = tell(an_event(transactional_id="evil", topic="evil", waiting_groups=groups), lambda _: "harmless")
    assert "evil" not in str([*told, *tell(event, lambda _: "harmless")]).replace("suggested", "")


def test_one_step_has_no_number_and_its_command_is_behind_it() -> None:
    told = tell(an_event(suggested_command=ABORT))
    assert lines(told)[-2:] == ["Write the ABORT marker.", f"next: {ABORT}"]
    assert once_looked(told, "other") == told, "there was no look"


def test_rows_of_which_the_same_is_said_share_the_sentences() -> None:
    first, second = (tell(an_event(suggested_command=f"{LOOK} {name}")) for name in "ab")
    shown = list(blocks([("orders-3", first), ("orders-4", second), ("orders-3", first)]))
    assert shown[0] == "orders-3, orders-4:"
    at = shown.index("1. Look again before you act.")
    assert shown[at + 1 :] == [f"next: {LOOK} a", f"next: {LOOK} b", f"2. {OUTCOME_WORDS[ExpectedOutcome.ABORT].then}"]


def test_an_old_picture_has_only_another_look() -> None:
    (step,) = steps_of(look_again(tell(an_event(suggested_command=ABORT)), LOOK))
    assert step == ("Look again before you act.", LOOK)
