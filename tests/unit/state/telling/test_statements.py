"""The statements about one incident, and what a reader takes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.incidents import APPLICATION_VALUE, OWNER_VALUE, a_life, an_event
from txnwatch.state.evidence.outcome import Doubt
from txnwatch.state.model.incident import EndKind, ExpectedOutcome, OutcomeDoubt
from txnwatch.state.model.ownership import ADVICE_MEANS, Advice
from txnwatch.state.model.verdicts import Reason, Verdict
from txnwatch.state.telling.renderings import as_json, blocks, lines, look_again, once_looked, sentences, steps_of
from txnwatch.state.telling.statements import (
    END_MEANS,
    IF_FLINK,
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


@pytest.mark.parametrize("kind", OutcomeDoubt)
def test_why_an_outcome_is_unknown_is_told_whole(kind: OutcomeDoubt) -> None:
    why = Doubt(kind, "__transaction_state-49: leader epoch 12 then, 13 now").text
    event = an_event(expected_outcome="unknown", outcome_doubt=kind, outcome_detail=why)
    assert why in sentences(tell(event), StatementKind.OUTCOME)["outcome"]


def test_an_ongoing_transaction_that_no_coordinator_finds_may_be_aborted_unless_its_client_knows_better() -> None:
    event = an_event(expected_outcome="unknown", outcome_doubt="ongoing_moved", suggested_command=LOOK)
    told = as_json(tell(event))
    assert told["why"] == "No marker will ever come: no coordinator finds its transactional id."
    assert told["safe"].startswith("An ABORT marker is right, unless its client was told that it is committed")
    look, then = told["steps"]
    assert (look["command"], then["command"]) == (LOOK, None)
    assert "If it was not, write the ABORT marker" in then["text"]


def test_what_is_over_has_an_end_and_no_step() -> None:
    told = as_json(tell(a_life("over")[-1]))
    assert told["ends"] == "It is over: aborted by administrator, after 3.2 s."
    assert (told["outcome"], told["safe"], told["steps"]) == ("", "", [])


@pytest.mark.parametrize("verdict", Verdict)
def test_what_is_over_is_told_in_the_past(verdict: Verdict) -> None:
    over = replace(a_life("over")[-1], verdict=verdict, advice=Advice.RESUME_FLINK_JOB)
    said = " ".join(one.text for one in tell(over))
    for now in ("will ever", " has ", " are hidden", "stand still", "has not", "Ends by itself", " now", "Flink"):
        assert now not in said, now


def test_since_when_whose_and_who_is_hurt_is_told() -> None:
    groups = [a_group("ledger", "stopped"), *(a_group(f"risky {number}", "at_risk") for number in range(5))]
    told = as_json(tell(an_event(consumer_groups=groups, owner=OWNER_VALUE, age_ms=200_000)))
    assert told["since"] == "Open since at least 2023-11-14 22:13:20 UTC, for 3 min 20 s."
    assert told["whom"] == "Owner: Checkout (#checkout-oncall)."
    assert "Groups that stand still: ledger." in told["hurt"]
    at_risk = "Groups at risk, which stop once they reach offset 99: risky 0, risky 1, risky 2 and 2 more."
    assert told["hurt"].endswith(at_risk)
    late = as_json(tell(an_event(verdict="late", open_since_clock="coordinator")))
    assert late["since"] == "Open since 2023-11-14 22:13:20 UTC, for 1.2 s."
    assert late["whom"] == "Owner: not known."


def test_a_whole_transaction_has_its_partitions() -> None:
    whole = {"topic": None, "partition": None, "topic_id": None}
    late = as_json(tell(an_event(**whole, verdict="late")))
    assert late["holds"].endswith(" Its partitions: orders-4, orders-5.")
    stuck = an_event(**whole, verdict="stuck_prepare", pending_partitions=("a-1",), open_since_clock="coordinator")
    told = as_json(tell(stuck))
    assert told["holds"].endswith(" Its marker is missing on: a-1.")
    assert told["since"] == "Decided since 2023-11-14 22:13:20 UTC, for 1.2 s."


def test_a_stray_write_is_over() -> None:
    told = as_json(tell(an_event(verdict="stray_write")))
    assert "had a transaction open" in told["holds"]
    assert told["since"] == "It was open since at least 2023-11-14 22:13:20 UTC."


@pytest.mark.parametrize(
    ("verdict", "application", "has_caution"),
    [
        ("late", None, True),
        ("late", APPLICATION_VALUE, True),
        ("late", {**APPLICATION_VALUE, "framework": "Kafka Streams", "certainty": "certain"}, False),
        ("hanging", None, False),
    ],
)
def test_what_is_late_may_be_a_flink_job(verdict: str, application: Any, *, has_caution: bool) -> None:
    told = tell(an_event(verdict=verdict, application=application))
    assert (IF_FLINK in sentences(told, StatementKind.SAFE)["safe"]) is has_caution


def a_group(group_id: str, state: str) -> dict[str, Any]:
    return {"group_id": group_id, "state": state, "committed_offset": 1, "hidden_lag": 2}


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
    told = tell(an_event(transactional_id="evil", topic="evil", waiting_groups=groups), lambda *_: "harmless")
    assert "evil" not in str([*told, *tell(event, lambda *_: "harmless")]).replace("suggested", "")


def test_one_step_has_no_number_and_its_command_is_behind_it() -> None:
    told = tell(an_event(verdict="stray_write", suggested_command=ABORT))
    assert lines(told)[-2:] == ["Look at the client: exactly-once was broken there.", f"next: {ABORT}"]
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
