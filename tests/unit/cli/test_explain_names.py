"""A name that is no known id: an id whose coordinator may not be asked never looks like one that has expired."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from support.fake_admin import FakeAdmin
from support.one_look import a_searcher
from txnwatch.cli import explain_lookup
from txnwatch.cli.compose import Question
from txnwatch.cli.explain_typed import KnownNames
from txnwatch.cli.explanation import ALL_CLEAR, Explanation
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.transaction import NotDescribed, UnknownTransactionalId
from txnwatch.state.model.values import Problem
from txnwatch.state.telling.commands import Origin

NAME = "checkout"
PARTS = ("of_group_named", "of_topic", "of_former_id", "of_producer_id")
DENIED, GONE = NotDescribed(NAME, Problem("DESCRIBE is missing")), UnknownTransactionalId(NAME, 1)


def an_answer(state: str) -> Explanation:
    return Explanation(NAME, state, text=(f"it is {state}",))


@pytest.fixture
def question() -> Question:
    cluster: Any = SimpleNamespace(known=SimpleNamespace(topics={}))
    return Question(cluster, Origin("cluster", "a:1"), a_searcher(FakeAdmin(), lambda: 0))


def says(answer: Explanation | None, missing: str | None = None) -> Callable[[Question, str], Explanation | None]:
    def part(question: Question, _: str) -> Explanation | None:
        if missing is not None:
            question.missing[missing] = "not read"
        return answer

    return part


@pytest.fixture(autouse=True)
def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_lookup, "known_names", lambda _: KnownNames({}))
    for part in PARTS:
        monkeypatch.setattr(explain_lookup, part, says(None, f"{part} "))


def test_an_id_that_may_not_be_described_has_not_expired(monkeypatch: pytest.MonkeyPatch, question: Question) -> None:
    monkeypatch.setattr(explain_lookup, "of_former_id", says(an_answer("expired")))
    with pytest.raises(BrokerError, match="transactional id checkout: DESCRIBE is missing"):
        explain_lookup.of_name(question, NAME, DENIED)
    assert explain_lookup.of_name(question, NAME, GONE).state == "expired"


def test_what_needs_attention_comes_first_and_only_its_gaps_count(
    monkeypatch: pytest.MonkeyPatch, question: Question
) -> None:
    monkeypatch.setattr(explain_lookup, "of_group_named", says(an_answer(ALL_CLEAR), "the group"))
    monkeypatch.setattr(explain_lookup, "of_topic", says(an_answer("hanging")))
    found = explain_lookup.of_name(question, NAME, GONE)
    assert (found.state, found.text) == ("hanging", ("it is hanging", "it is all_clear"))
    assert question.missing == {"the group": "not read"}


def test_what_could_not_be_read_is_in_the_error(question: Question) -> None:
    with pytest.raises(
        BrokerError, match=r"no topic, consumer group or transactional id.*of_former_id  could not be read"
    ):
        explain_lookup.of_name(question, NAME, GONE)
