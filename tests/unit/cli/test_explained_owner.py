"""`explain` names whom to call, and never suggests what loses the data of a checkpoint of Flink."""

from __future__ import annotations

from typing import Any

import pytest

from txnwatch.cli.explain import with_owner
from txnwatch.cli.explanation import Explanation
from txnwatch.cli.fence import effect_of, what_it_ends
from txnwatch.cli.past_ids import GivenAdvice
from txnwatch.owners.owner_table import owners_of
from txnwatch.state.abort.fencing import consequence
from txnwatch.state.model.ownership import ADVICE_MEANS, Advice
from txnwatch.state.model.transaction import DescribedTransaction, ProducerIdentity
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.model.verdicts import TWO_PHASE_TIMEOUT_MS
from txnwatch.state.telling.statements import MAY_BE_PREPARED, SOONER_OF_FLINK, StatementKind, Told, after_a_commit

ORDERS = TopicPartition("orders", 0)
TABLE = owners_of(
    {
        "owner": [
            {
                "team": "data",
                "name": "Data platform",
                "contact": "#data",
                "url": "https://teams.example/data",
                "transactional_ids": ["dwh-*"],
            },
            {"team": "orders", "topics": ["orders"]},
            {"team": "risk", "name": "Risk", "groups": ["fraud-*"]},
        ]
    },
    "file",
)
FLINK: dict[str, Any] = {
    "target": "dwh-orders-4-1187",
    "state": "late",
    "transactional_id": "dwh-orders-4-1187",
    "producer_id": 7,
    "transaction_state": "Ongoing",
    "partitions": ("orders-0",),
    "next": "txnwatch fence --transactional-id dwh-orders-4-1187",
    "told": (Told(StatementKind.NEXT, "Fence it.", "txnwatch fence --transactional-id dwh-orders-4-1187"),),
}
ADVICE = Told(StatementKind.SAFE, ADVICE_MEANS[Advice.RESUME_FLINK_JOB])


def explained(**changes: Any) -> Explanation:
    return with_owner(Explanation(**{**FLINK, **changes}), TABLE)


def test_the_owner_is_in_the_fields_and_in_the_text() -> None:
    found = explained()
    assert (found.owner, found.contact) == ("data", "#data")
    assert found.text[0] == "Call Data platform (#data), https://teams.example/data: found by the transactional id."
    assert found.application is not None
    assert found.text[1] == f"Transactional id 'dwh-orders-4-1187': {found.application}."


def test_a_transaction_of_flink_has_the_advice_and_no_command_that_ends_it() -> None:
    found = explained()
    assert found.told == (ADVICE, Told(StatementKind.NEXT, SOONER_OF_FLINK)), "how it ends, and what a fence costs"
    assert found.text[-1] == ADVICE.text
    assert found.next is None


def test_a_step_that_ends_nothing_stays() -> None:
    """Replicas that are missing are missing to a job of Flink, too."""
    repair = Told(StatementKind.NEXT, "Bring broker 2 back.")
    found = explained(told=(repair,))
    assert found.told == (ADVICE, repair)


def test_a_job_whose_resume_was_fenced_is_not_told_to_resume() -> None:
    text = after_a_commit(0, "2026-11-28 22:04:35.085Z", 1)
    found = with_owner(Explanation(**FLINK), TABLE, advise=lambda _: GivenAdvice(text, is_usual=False))
    assert found.told == (Told(StatementKind.SAFE, text),)
    assert found.text[-1] == text
    assert "Its transaction under epoch 0 was committed at 2026-11-28 22:04:35.085Z." in text
    assert "nobody will commit epoch 1" in text
    assert found.next is None


NO_ADVICE = {
    "its outcome is decided": {"transaction_state": "PrepareCommit"},
    "it is idle": {"transaction_state": "Empty", "state": "idle", "partitions": ()},
    "it commits offsets": {"partitions": ("__consumer_offsets-3", "orders-0")},
    "another form": {"transactional_id": "dwh-orders"},
    "a hang that was aborted": {"state": "hanging", "transaction_state": "CompleteAbort", "expected_outcome": "abort"},
}


@pytest.mark.parametrize("changes", NO_ADVICE.values(), ids=NO_ADVICE.keys())
def test_without_the_advice_the_command_stays(changes: dict[str, Any]) -> None:
    found = explained(**changes)
    assert (found.told, found.next) == (FLINK["told"], FLINK["next"])


def test_a_hang_whose_outcome_is_not_known_keeps_its_rehearsal() -> None:
    rehearsal = "txnwatch abort --topic orders --partition 0 --start-offset 4 --dry-run"
    found = explained(state="hanging", transaction_state="CompleteCommit", expected_outcome="unknown", next=rehearsal)
    assert (found.told, found.next) == ((ADVICE, *FLINK["told"]), rehearsal)


OPEN_DATA: dict[str, Any] = {"producer_id": 7, "topic": "orders", "partition": 0}
BY_TOPIC = {
    "a partition": ({"target": "orders-0", **OPEN_DATA}, "Call orders: found by the topic."),
    "a topic": ({"target": "orders", **OPEN_DATA}, "Call orders: found by the topic."),
    "a group behind it": (
        {"target": "billing", "group_id": "billing", **OPEN_DATA},
        "Call orders: found by the topic.",
    ),
    "a record of it": ({"target": "orders-0@4", **OPEN_DATA}, "Call orders: found by the topic."),
    "a transaction that holds it": (
        {"target": "app", "transactional_id": "app", "partitions": ("orders-0", "__consumer_offsets-3")},
        "Call orders: found by the topic.",
    ),
    "a topic that is clear": (
        {"target": "orders", "topic": "orders", "state": "all_clear"},
        "Its owner is orders: found by the topic.",
    ),
}


@pytest.mark.parametrize(("target", "says"), BY_TOPIC.values(), ids=BY_TOPIC.keys())
def test_an_owner_that_only_the_topic_leads_to_is_said(target: dict[str, Any], says: str) -> None:
    found = with_owner(Explanation(**{"state": "hanging", **target}), TABLE)
    assert (found.owner, found.text) == ("orders", (says,))


def test_a_transaction_on_topics_of_several_teams_names_each() -> None:
    table = owners_of({"owner": [{"team": name, "topics": [name]} for name in ("orders", "stock")]}, "file")
    found = with_owner(Explanation("app", "open", partitions=("orders-0", "orders-1", "stock-0", "other-0")), table)
    assert found.owner is None
    assert found.text == ("Call orders about topic orders.", "Call stock about topic stock.")


def test_the_owner_of_a_group_is_said_although_nothing_stops_it() -> None:
    assert with_owner(Explanation("fraud-a", "all_clear", group_id="fraud-a"), TABLE).text == ("Group fraud-a: Risk.",)


def test_the_groups_that_are_affected_have_their_owners() -> None:
    found = explained(affected_groups=("fraud-scoring", "other"), waiting_groups=("fraud-scoring",))
    assert [line for line in found.text if line.startswith("Group ")] == ["Group fraud-scoring: Risk."]


def test_without_an_owner_nothing_is_said() -> None:
    assert with_owner(Explanation("a", "idle", text=("a: idle.",)), TABLE).text == ("a: idle.",)


IN_OFFSETS = TopicPartition("__consumer_offsets", 1)


@pytest.mark.parametrize(
    ("state", "partitions", "is_said"),
    [(S.ONGOING, {ORDERS}, True), (S.EMPTY, set(), False), (S.ONGOING, {IN_OFFSETS}, False)],
)
def test_a_fence_shows_the_advice_before_it_asks(state: S, partitions: set[TopicPartition], *, is_said: bool) -> None:
    described = DescribedTransaction("dwh-4-1187", 1, state, 1000, 0, 60_000, 0, frozenset(partitions))
    before = ProducerIdentity(1000, 0)
    effect = effect_of(described, 900_000, ADVICE_MEANS.__getitem__)
    assert effect.startswith(consequence(described))
    assert (ADVICE.text.removesuffix(".") in effect) is is_said
    lines = list(what_it_ends(described, before, effect))
    assert lines == [f"transactional id dwh-4-1187: {state}, {before}", f"fence: {effect}."]


def test_a_fence_says_that_a_prepared_transaction_is_lost() -> None:
    described = DescribedTransaction("app", 1, S.ONGOING, 1000, 0, TWO_PHASE_TIMEOUT_MS, 0, frozenset({ORDERS}))
    assert MAY_BE_PREPARED in effect_of(described, 900_000, ADVICE_MEANS.__getitem__)
    assert MAY_BE_PREPARED not in effect_of(replaced(described), 900_000, ADVICE_MEANS.__getitem__)


def replaced(described: DescribedTransaction) -> DescribedTransaction:
    """The same with a timeout."""
    return DescribedTransaction(
        described.transactional_id, 1, described.state, 1000, 0, 60_000, 0, described.partitions
    )
