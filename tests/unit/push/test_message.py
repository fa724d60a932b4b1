"""A message has what somebody needs to act, and its end says how it ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.incidents import OWNER_VALUE, a_life, an_event
from txnwatch.push.message import Message, message_of
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.telling.statements import IF_FLINK

PAGE = "https://txnwatch.example/base/"
ABORT = "txnwatch fence --transactional-id a && txnwatch abort --topic orders --partition 3 --start-offset 99"
GROUPS = [
    {"group_id": "ledger", "state": "stopped", "committed_offset": 99, "hidden_lag": 21},
    {"group_id": "audit", "state": "at_risk", "committed_offset": 1, "hidden_lag": 119},
]


def a_hang(**changes: Any) -> Message:
    given = {"cluster_name": "payments-eu", "owner": OWNER_VALUE, "consumer_groups": GROUPS, "suggested_command": ABORT}
    return message_of(an_event(**{**given, **changes}), PAGE)


EXPECTED = f"""\
[OPENED] payments-eu: orders-3: Kafka transaction hanging
Open since at least 2023-11-14 22:13:20 UTC, for 1.2 s.
Producer id 4711, epoch 2, has a transaction open on orders-3 from offset 99. Its transactional id is payments-\u00fc, \
in state CompleteAbort now at broker 1.
Owner: Checkout (#checkout-oncall).
read_committed consumers of orders-3 stop at offset 99: 21 records up to 120 are hidden from them, and the log cleaner \
stops there too. Groups that stand still: ledger. Groups at risk, which stop once they reach offset 99: audit.
Why: No marker will ever come: the transaction is complete, and its marker is missing here (already_completed).
Safe to end it? An ABORT marker is right: no client was told that this data is committed.
Next: Write the ABORT marker. The command fences the id first: the application that uses it must start again.
```
{ABORT}
```
Then: If the command names replicas, repair them first, and run it again.
Runbook: https://github.com/txnwatch/txnwatch/blob/main/docs/runbook.md#hanging
Page: https://txnwatch.example/base/incident/{an_event().incident_id}"""


def test_a_message_has_all_that_somebody_needs() -> None:
    assert a_hang().as_text("opened") == EXPECTED


def test_an_end_says_how_by_whom_and_after_how_long() -> None:
    over = replace(a_life("over")[-1], age_ms=200_000)
    message = message_of(over)
    how = "aborted by administrator, after 3 min 20 s"
    assert message.summary == f"cluster: orders-3: Kafka transaction hanging: {how}"
    assert message.lines[0] == f"It is over: {how}."
    text = message.as_text("resolved")
    assert text.startswith("[RESOLVED] cluster: ")
    for word in ("No marker will ever", "Safe to end", "Next:", "```", "Page:"):
        assert word not in text
    assert "Owner: not known." in text


def test_each_step_has_its_place() -> None:
    whole = {"topic": None, "partition": None, "topic_id": None, "verdict": "late"}
    message = message_of(an_event(**whole, suggested_command="txnwatch explain --transactional-id a"))
    lines = message.as_text("opened").splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("Next: "))
    assert lines[at + 1 : at + 4] == ["```", "txnwatch explain --transactional-id a", "```"], "the command of this step"
    assert lines[at + 4].startswith("Then: ")
    assert IF_FLINK in next(line for line in message.lines if line.startswith("Safe to end it? "))


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("topic", ["t" * 249, None])
def test_a_message_with_the_longest_names_is_not_split(verdict: Verdict, topic: str | None) -> None:
    """Slack divides a text of more than 4,000 characters, also in a code block."""
    groups = [{**group, "group_id": "<" * 300 + str(number)} for number in range(9) for group in GROUPS]
    waiting = [{"group_id": f"{number}{'>' * 300}", "partitions": ()} for number in range(9)]
    names = {"transactional_id": "*" * 32_767, "outcome_detail": "x" * 900, "suggested_command": "c" * 1_000}
    given = {**names, "consumer_groups": groups, "waiting_groups": waiting, "pending_partitions": ("p" * 255,) * 9}
    event = an_event(verdict=verdict, topic=topic, **given, owner={**OWNER_VALUE, "name": "n" * 200}, reason=None)
    assert len(message_of(event, PAGE).as_text("opened")) <= 4_000


@pytest.mark.parametrize("verdict", Verdict)
def test_every_verdict_has_a_message(verdict: Verdict) -> None:
    text = message_of(an_event(verdict=verdict)).as_text("opened")
    assert text.splitlines()[0] == f"[OPENED] cluster: orders-3: Kafka transaction {verdict.replace('_', ' ')}"
    assert f"#{verdict}" in text
