"""The event, the page, the alert and the commands say the same about one finding, and have the same next step."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from support.hung_spans import EPOCH, NAME, NOW_MS, ORDERS, OWNERS, PRODUCER, a_hang, a_live_one
from support.page_world import PageWorld
from txnwatch.cli import status
from txnwatch.cli.explanation import Explanation, end_of, of_id, of_partition
from txnwatch.cli.find_hanging import found_row
from txnwatch.cli.main import main
from txnwatch.cli.output import event_line
from txnwatch.page.knowledge import Knowledge
from txnwatch.page.picture import picture_of
from txnwatch.push.alertmanager import alert_of
from txnwatch.push.push_file import AlertmanagerTarget
from txnwatch.sinks.delivery.redis_views import RedisIncidents
from txnwatch.state.evidence.hurt_groups import Hurt
from txnwatch.state.evidence.screening import ExpectedEnd, Search, open_data
from txnwatch.state.incidents.event_builder import span_event, transaction_event
from txnwatch.state.model.findings import OpenTransaction
from txnwatch.state.model.incident import ConnectSetting, ConnectUse, ExpectedOutcome, IncidentEvent, IncidentStatus
from txnwatch.state.model.partition_replicas import PartitionReplicas, PlacesAtRisk
from txnwatch.state.model.ports import ActiveProducer, PartitionReading
from txnwatch.state.model.transaction import DescribedTransaction, TransactionState
from txnwatch.state.model.values import log_numbered
from txnwatch.state.model.verdicts import (
    ENDS_BY_ITSELF,
    RULE_OF,
    TWO_PHASE_TIMEOUT_MS,
    DetectionPolicy,
    EndsByItself,
    Reason,
    Verdict,
)
from txnwatch.state.telling.commands import Origin, as_read, has_fence, is_look
from txnwatch.state.telling.ends import end_of_listed, whether_text
from txnwatch.state.telling.hurt import CONNECT_STOPS
from txnwatch.state.telling.published import tell_found
from txnwatch.state.telling.renderings import blocks, sentences, steps_of
from txnwatch.state.telling.replica_words import replicas_text
from txnwatch.state.telling.statements import (
    IF_FLINK,
    IF_REPLICAS_LACK,
    OUTCOME_WORDS,
    VERDICT_WORDS,
    StatementKind,
    tell,
)
from txnwatch.streaming.admin.transactions import DescribedWithLog

ORIGIN = Origin("cluster", "a:1")
TARGET = AlertmanagerTarget(name="main", urls=["https://alertmanager.example"], least_severity="info")
LIVE = (Verdict.STUCK_PREPARE, Verdict.LATE, Verdict.LONG_RUNNING)
HANGS = [*product(Reason, ExpectedOutcome, OWNERS)]


def hang(reason: Reason, outcome: ExpectedOutcome, owner: str) -> IncidentEvent:
    """The event of a watcher, which has the outcome that the logs show."""
    candidate, proof = a_hang(reason, outcome, OWNERS[owner])
    event = span_event(ORIGIN, candidate, proof, None, NOW_MS)
    assert event.expected_outcome is outcome
    return event


def live(verdict: Verdict) -> IncidentEvent:
    return transaction_event(ORIGIN, *a_live_one(verdict), NOW_MS)


def on_page(event: IncidentEvent, *, is_of_ledger: bool = True) -> dict[str, Any]:
    world = PageWorld()
    world.store.origin, world.store.is_of_ledger = ORIGIN, is_of_ledger
    world.tell(event)
    world.batch()
    known = Knowledge(store=world.store, seen=world.store.seen, now_ms=NOW_MS)
    (row,) = picture_of(known)["incidents"].values()
    return row


def the_same_is_said(event: IncidentEvent) -> None:
    told = tell(event)
    steps, said = steps_of(told), sentences(told, *StatementKind)
    assert steps[0].command == event.suggested_command, "the step of the statements is that of the event"
    row = on_page(event)
    assert (row["steps"], row["safe"], row["why"]) == ([one._asdict() for one in steps], said["safe"], said["why"])
    alert = alert_of(event, TARGET, NOW_MS).annotations
    assert alert["command"] == event.suggested_command
    row = found_row(ORIGIN, event, Hurt({}, ()))
    assert (row.told, row.next) == (tell_found(ORIGIN, event).told, event.suggested_command), "find-hanging"
    texts = [one.text for one in told if one.kind is not StatementKind.OUTCOME and one.kind is not StatementKind.ENDS]
    assert all(text in alert["description"] for text in texts), "whole sentences"


def explain_says_it_too(explained: Explanation, event: IncidentEvent) -> None:
    """The same; of the steps, it is the first one itself if that is a look."""
    told, kinds = (
        tell_found(ORIGIN, event).told,
        (StatementKind.WHY, StatementKind.OUTCOME, StatementKind.SAFE, StatementKind.ENDS),
    )
    assert sentences(explained.told, *kinds) == sentences(told, *kinds)
    assert all(one.text in explained.text for one in told if one.kind in kinds), "and its text has them"
    steps = [one.text for one in told if one.kind is StatementKind.NEXT]
    left = steps[1:] if is_look(event.suggested_command or "") else steps
    assert [one.text for one in explained.told if one.kind is StatementKind.NEXT] == left


@pytest.mark.parametrize(("reason", "outcome", "owner"), HANGS)
def test_a_hang_is_told_alike(reason: Reason, outcome: ExpectedOutcome, owner: str) -> None:
    event = hang(reason, outcome, owner)
    the_same_is_said(event)
    command = event.suggested_command or ""
    needs_fence = owner == "the id has the epoch" and outcome is not ExpectedOutcome.UNKNOWN
    assert (has_fence(command), is_look(command)) == (needs_fence, outcome is ExpectedOutcome.UNKNOWN)
    assert sentences(tell(event), StatementKind.SAFE)["safe"] == OUTCOME_WORDS[outcome].safe
    candidate, proof = a_hang(reason, outcome, OWNERS[owner])
    assert proof.reading is not None
    found = Search(readings={candidate.partition: proof.reading}, hanging=[(candidate, proof)])
    explained = of_partition(ORIGIN, candidate.partition, found, NOW_MS)
    explain_says_it_too(explained, event)
    assert sentences(tell(event), StatementKind.HURT)["hurt"] in explained.text
    if not is_look(command):
        assert explained.next == command
    else:
        assert (explained.next or "").endswith(" --dry-run"), "the look is done: this is the step after it"


@pytest.mark.parametrize("event", [hang(*HANGS[0]), live(Verdict.LATE)], ids=["a hang", "a late one"])
def test_what_stops_connect_is_told_everywhere(event: IncidentEvent) -> None:
    event = replace(event, connect=ConnectUse(topic="dwh-offsets", setting=ConnectSetting.OFFSETS, group_id="dwh"))
    the_same_is_said(event)
    said = sentences(tell(event), StatementKind.CONNECT)["connect"]
    assert "(offset.storage.topic of the workers of group dwh). Workers with exactly.once.source.support" in said
    assert on_page(event)["connect"] == said
    assert said in "\n".join(blocks([("it", tell(event))]))
    assert event.topic is None or CONNECT_STOPS in event_line(event)
    over = replace(event, status=IncidentStatus.RESOLVED)
    assert sentences(tell(over), StatementKind.CONNECT)["connect"] == ""


@pytest.mark.parametrize("verdict", LIVE)
def test_a_live_transaction_is_told_alike(verdict: Verdict) -> None:
    event = live(verdict)
    the_same_is_said(event)
    assert is_look(event.suggested_command or "")
    caution = f" {IF_FLINK}" if verdict is Verdict.LATE else ""
    assert sentences(tell(event), StatementKind.SAFE)["safe"] == f"{VERDICT_WORDS[verdict].safe}{caution}"
    candidate, proof = a_live_one(verdict)
    assert proof.description is not None
    known = DescribedWithLog(proof.description, [], None, log_numbered(3))
    explained = of_id(ORIGIN, known, [], NOW_MS, Search(overdue=[(candidate, proof)]))
    explain_says_it_too(explained, event)
    if verdict is Verdict.STUCK_PREPARE:
        assert explained.next is None, "nothing to paste: its partitions need leaders"
    else:
        assert (explained.next or "").startswith("txnwatch fence --transactional-id checkout-1 ")


OPEN = ActiveProducer(PRODUCER, EPOCH, 0, NOW_MS, 0, 4)
READ: dict[str, tuple[list[PartitionReading], str]] = {
    "nothing was read": ([], "Markers are missing on 1 partition."),
    "its data is open": ([PartitionReading(ORDERS, producers=(OPEN,))], "Markers are missing on 1 partition"),
    "another marker has ended its data": ([PartitionReading(ORDERS)], "its data has ended"),
}


@pytest.mark.parametrize(("readings", "why"), READ.values(), ids=READ.keys())
def test_where_the_data_of_a_stuck_transaction_has_ended_is_told_alike(
    readings: list[PartitionReading], why: str
) -> None:
    event, (candidate, proof) = live(Verdict.STUCK_PREPARE), a_live_one(Verdict.STUCK_PREPARE)
    assert proof.description is not None
    known = DescribedWithLog(proof.description, [], None, log_numbered(3))
    explained = of_id(ORIGIN, known, readings, NOW_MS, Search(overdue=[(candidate, proof)]))
    is_open = open_data(PRODUCER, readings).places(proof.description.partitions)
    row = found_row(ORIGIN, event, Hurt({}, ()), is_open=is_open)
    said = sentences(row.told, StatementKind.WHY)["why"]
    assert why in said
    assert said in sentences(explained.told, StatementKind.WHY)["why"]


@pytest.mark.parametrize(("reason", "outcome", "owner"), HANGS)
def test_what_can_be_forged_leads_to_a_look_and_then_to_what_it_prints(
    reason: Reason, outcome: ExpectedOutcome, owner: str
) -> None:
    """A record that names a healthy transaction would else fence its application."""
    event = hang(reason, outcome, owner)
    read = as_read(ORIGIN, event)
    first, second = steps_of(tell(read))
    assert is_look(first.command or "")
    assert second.command is None
    assert on_page(event, is_of_ledger=False)["steps"] == [first._asdict(), second._asdict()]
    said = StatementKind.WHY, StatementKind.OUTCOME
    assert sentences(tell(read), *said) == sentences(tell(event), *said)
    safe = OUTCOME_WORDS[outcome].safe
    is_known = outcome is not ExpectedOutcome.UNKNOWN
    expected = f"If this event is true: {safe[0].lower()}{safe[1:]}" if is_known else safe
    assert sentences(tell(read), StatementKind.SAFE)["safe"] == expected


@pytest.mark.parametrize("address", [["--bootstrap-server", "a:1"], []], ids=["address", "no address"])
def test_status_says_what_the_page_of_a_topic_says(
    address: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    event = hang(Reason.ALREADY_COMPLETED, ExpectedOutcome.COMMIT, "the id has the epoch")
    monkeypatch.setattr(status, "read_shown", lambda *_: RedisIncidents(["cluster"], [event], [], {}))
    flags = ["status", "--redis-url", "redis://a:1/0", *address]
    main([*flags, "--format", "json"])
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    on_topic = on_page(event, is_of_ledger=False)
    assert (row["why"], row["safe"]) == (on_topic["why"], on_topic["safe"])
    assert [one["text"] for one in row["steps"]] == [one["text"] for one in on_topic["steps"]]
    commands = [on_topic["look"], None] if address else [None, None]
    assert [one["command"] for one in row["steps"]] == commands
    assert row["suggested_command"] == (commands[0] or "")
    main(flags)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:5] == ["orders-3:", row["why"], row["outcome"]]
    assert [line for line in lines if line.startswith("next: ")] == [f"next: {one}" for one in commands if one]


BACK = "Bring broker 2 back; do not restart broker 1."
SHORT = PartitionReplicas(ORDERS, 1, (1, 2), (1,), (2,), (), 2)
LEADERLESS = PartitionReplicas(ORDERS, None, (1, 2), (2,), (1, 2))
AT_RISK = {
    "too few in-sync replicas": (SHORT, BACK),
    "no leader": (LEADERLESS, "Bring broker 2 back: no other broker may lead it."),
    "of the log": (SHORT._replace(partition=log_numbered(3)), BACK),
}


def search_of_hang(reason: Reason, outcome: ExpectedOutcome, owner: str) -> Search:
    candidate, proof = a_hang(reason, outcome, OWNERS[owner])
    assert proof.reading is not None
    return Search(readings={ORDERS: proof.reading}, hanging=[(candidate, proof)])


def search_of_live(verdict: Verdict) -> Search:
    """The same data, held by a live transaction with a verdict."""
    found, overdue = search_of_hang(*HANGS[0]), a_live_one(verdict)
    assert overdue[1].description is not None
    covered = [(span, overdue[1].description) for span, _ in found.hanging]
    return Search(readings=found.readings, overdue=[overdue], covered=covered)


FOUND = [
    *(pytest.param(hang(*one), search_of_hang(*one), id=" ".join(one)) for one in HANGS),
    *(pytest.param(live(one), search_of_live(one), id=one) for one in LIVE),
]


def explained_in(search: Search) -> list[Explanation]:
    """What `explain` says of the partition, and of the id of a live transaction."""
    known = (DescribedWithLog(proof.description, [], None, log_numbered(3)) for _, proof in search.overdue)
    of_ids = [of_id(ORIGIN, one, [], NOW_MS, search) for one in known]
    return [of_partition(ORIGIN, ORDERS, search, NOW_MS), *of_ids]


@pytest.mark.parametrize(("state", "repair"), AT_RISK.values(), ids=AT_RISK.keys())
@pytest.mark.parametrize(("event", "search"), FOUND)
def test_what_a_partition_lacks_is_repaired_first(
    event: IncidentEvent, search: Search, state: PartitionReplicas, repair: str
) -> None:
    """A marker for a hang is the step after it; nothing else ends the others."""
    search = replace(search, at_risk=PlacesAtRisk({state.partition: state}, {NAME: log_numbered(3)}))
    (blocked,) = {search.at_risk.of(*held).blocked for held in search.found}
    row, explained = found_row(ORIGIN, event, Hurt({}, ()), blocked=blocked), explained_in(search)
    is_hang = event.verdict is Verdict.HANGING
    for told, command in ((row.told, row.next), *((one.told, one.next) for one in explained)):
        first, *others = [one for one in told if one.kind is StatementKind.NEXT]
        is_told = ((first.text, first.command), command) == ((repair, None), None)
        assert is_told is bool(blocked), "the same first step, and nothing to paste before the repair"
        assert bool(others) is is_hang or not blocked
        assert (replicas_text(state) in sentences(told, StatementKind.WHY)["why"]) is bool(blocked)
        assert sentences(told, StatementKind.ENDS) == sentences(row.told, StatementKind.ENDS)
    by_itself = EndsByItself.UNKNOWN if blocked and not is_hang else ENDS_BY_ITSELF[RULE_OF[event.verdict].ends_by]
    assert {one.ends_by_itself for one in explained} == {by_itself}


@pytest.mark.parametrize(("reason", "outcome", "owner"), HANGS)
def test_a_step_that_writes_says_so_where_the_replicas_are_not_known(
    reason: Reason, outcome: ExpectedOutcome, owner: str
) -> None:
    """A watcher does not read them, and they can change before somebody acts: the command tells, or its look does."""
    event = hang(reason, outcome, owner)
    _, second = steps_of(tell(event))
    is_looked = is_look(event.suggested_command or "")
    assert (second.text == f"2. {IF_REPLICAS_LACK}") is not is_looked
    assert on_page(event)["steps"][1]["text"] == second.text
    alert = alert_of(event, TARGET, NOW_MS).annotations
    assert second.text.removeprefix("2. ") in alert["description"]
    assert is_look(steps_of(tell(as_read(ORIGIN, event)))[0].command or ""), "status looks"


LISTED = {
    "a hang": (Verdict.HANGING, None, None, 60_000),
    "late": (Verdict.LATE, 60_000, None, 300_000),
    "markers missing": (Verdict.STUCK_PREPARE, 60_000, 50_000, 300_000),
    "healthy": (None, 60_000, None, 1_000),
    "its timeout has just passed": (None, 60_000, None, 75_000),
    "its timeout has passed here": (None, 60_000, None, 75_001),
    "two-phase": (None, TWO_PHASE_TIMEOUT_MS, None, 300_000),
    "decided": (None, 60_000, 1_000, 2_000),
}


@pytest.mark.parametrize(("verdict", "timeout_ms", "prepared_ms", "age_ms"), LISTED.values(), ids=LISTED.keys())
def test_the_page_says_of_a_listed_transaction_what_explain_says_of_its_end(
    verdict: Verdict | None, timeout_ms: int | None, prepared_ms: int | None, age_ms: int
) -> None:
    since_ms = NOW_MS - age_ms
    decided_ms = since_ms + prepared_ms if prepared_ms is not None else None
    listed = OpenTransaction(PRODUCER, NAME, "Ongoing", since_ms, decided_ms, (), timeout_ms)
    state = TransactionState.ONGOING if prepared_ms is None else TransactionState.PREPARE_COMMIT
    described = DescribedTransaction(NAME, 1, state, PRODUCER, 2, timeout_ms or 0, since_ms, frozenset({ORDERS}))
    if verdict is Verdict.HANGING:
        end = ExpectedEnd(RULE_OF[verdict].ends_by)
    else:
        end = end_of(described, verdict, DetectionPolicy(), NOW_MS).expected
    assert whether_text(end_of_listed(listed, verdict, NOW_MS)) == whether_text(end)
