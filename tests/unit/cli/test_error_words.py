"""The words that people have: each error leads to what it means and to a command that this program has."""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import Any

import pytest

from support.fake_admin import FakeAdmin
from support.one_look import a_searcher
from txnwatch.cli import explain_lookup
from txnwatch.cli.compose import Question
from txnwatch.cli.error_words import ERROR_WORDS, Ask, word_in
from txnwatch.cli.explain_names import NO_FINDING
from txnwatch.cli.explain_words import ERROR_WORD, of_word, with_word
from txnwatch.cli.explanation import Explanation
from txnwatch.cli.main import parser
from txnwatch.state.model.transaction import NotDescribed, UnknownTransactionalId
from txnwatch.state.model.values import Problem
from txnwatch.state.telling.commands import Origin

ORIGIN = Origin("cluster", "a:1", command_config="it's.properties")

SAME = {
    "CONCURRENT_TRANSACTIONS": "CONCURRENT_TRANSACTIONS",
    "concurrent transactions": "CONCURRENT_TRANSACTIONS",
    "INVALID_PRODUCER_EPOCH(47)": "INVALID_PRODUCER_EPOCH",
    "concurrent_transactions": "CONCURRENT_TRANSACTIONS",
    "Errors.CONCURRENT_TRANSACTIONS": "CONCURRENT_TRANSACTIONS",
    "INVALID_TXN_STATE": "INVALID_TXN_STATE",
    "PRODUCER_FENCED": "PRODUCER_FENCED",
    "org.apache.kafka.common.errors.ProducerFencedException:": "PRODUCER_FENCED",
    "RD_KAFKA_RESP_ERR__FENCED": "PRODUCER_FENCED",
    "INVALID_PRODUCER_EPOCH": "INVALID_PRODUCER_EPOCH",
    "UNSTABLE_OFFSET_COMMIT": "UNSTABLE_OFFSET_COMMIT",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "UNKNOWN_PRODUCER_ID": "UNKNOWN_PRODUCER_ID",
    "INVALID_PRODUCER_ID_MAPPING": "INVALID_PRODUCER_ID_MAPPING",
    "TRANSACTION_ABORTABLE": "TRANSACTION_ABORTABLE",
    "INVALID_TRANSACTION_TIMEOUT": "INVALID_TRANSACTION_TIMEOUT",
    "COORDINATOR_NOT_AVAILABLE": "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS": "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR": "COORDINATOR_NOT_AVAILABLE",
    "RESTORING": "RESTORING",
    "org.apache.kafka.common.errors.TimeoutException: Timeout expired after 60000ms while awaiting InitProducerId": (
        "initTransactions"
    ),
    "KafkaException: Cannot execute transactional method because we are in an error state": "KafkaException",
    "org.apache.kafka.common.KafkaException: Cannot execute transactional method because we are in an error state\n"
    "Caused by: org.apache.kafka.common.errors.InvalidProducerEpochException: Producer attempted to produce": (
        "INVALID_PRODUCER_EPOCH"
    ),
    'KafkaError{FATAL,code=_FENCED,val=-144,str="Failed to end transaction: Local: This instance"}': "PRODUCER_FENCED",
    "Producer attempted to produce with an old epoch.": "INVALID_PRODUCER_EPOCH",
    "There are unstable offsets that need to be cleared.": "UNSTABLE_OFFSET_COMMIT",
}


@pytest.mark.parametrize(("text", "name"), SAME.items())
def test_a_word_is_found_however_it_is_written(text: str, name: str) -> None:
    row = word_in(text)
    assert row is not None
    assert row.names[0] == name


@pytest.mark.parametrize("text", ["restoring-app-1", "PRODUCER_FENCED-0", "orders", "the orders are late", " ", "a\tb"])
def test_a_name_that_only_has_a_word_in_it_is_no_word(text: str) -> None:
    assert word_in(text) is None
    assert of_word(ORIGIN, text) is None


def test_a_line_with_an_id_leads_to_that_id() -> None:
    line = (
        "[2026-11-28 22:01:36,419] INFO [TransactionCoordinator id=1] Completed rollback of ongoing transaction for "
        "transactionalId late-app due to timeout (kafka.coordinator.transaction.TransactionCoordinator)"
    )
    explained = of_word(ORIGIN, line)
    assert explained is not None
    assert "its coordinator has aborted the transaction at its timeout" in explained.text[1]
    assert (explained.next or "").startswith("txnwatch explain --transactional-id late-app ")


def test_no_word_has_two_rows() -> None:
    names = [name.lower() for row in ERROR_WORDS for name in row.names]
    assert len(names) == len(set(names))
    assert all(phrase == phrase.lower() for row in ERROR_WORDS for phrase in row.phrases)


@pytest.mark.parametrize("row", ERROR_WORDS, ids=lambda row: row.names[0])
def test_each_row_leads_to_a_command_that_this_program_has(row: Any) -> None:
    explained = of_word(ORIGIN, row.names[0])
    assert explained is not None
    assert (explained.state, explained.state in NO_FINDING) == (ERROR_WORD, True)
    assert explained.text[1] == f"{row.names[0]}: {row.means}"
    assert explained.next is not None
    _, *arguments = shlex.split(explained.next)
    parsed = parser().parse_args(arguments)
    assert (parsed.bootstrap_server, parsed.command_config) == ("a:1", "it's.properties")
    assert {row.ask for row in ERROR_WORDS} == set(Ask)


@pytest.fixture
def question(monkeypatch: pytest.MonkeyPatch) -> Question:
    for part in ("of_group_named", "of_topic", "of_former_id", "of_producer_id"):
        monkeypatch.setattr(explain_lookup, part, lambda *_: None)
    cluster: Any = SimpleNamespace(known=SimpleNamespace(topics={}))
    return Question(cluster, ORIGIN, a_searcher(FakeAdmin(), lambda: 0))


NAME = "PRODUCER_FENCED"


def test_a_name_that_nothing_has_is_a_word(question: Question) -> None:
    explained = explain_lookup.of_name(question, NAME, UnknownTransactionalId(NAME, 1))
    assert explained.state == ERROR_WORD
    assert question.missing == {}


def test_whether_an_id_has_the_name_is_missing_if_it_could_not_be_asked(question: Question) -> None:
    explained = explain_lookup.of_name(question, NAME, NotDescribed(NAME, Problem("DESCRIBE is missing")))
    assert explained.state == ERROR_WORD
    assert question.missing == {f"transactional id {NAME}": "DESCRIBE is missing"}


def test_what_exists_comes_first_and_the_word_behind_it(monkeypatch: pytest.MonkeyPatch, question: Question) -> None:
    monkeypatch.setattr(explain_lookup, "of_topic", lambda *_: Explanation(NAME, "all_clear", text=("a topic",)))
    explained = explain_lookup.of_name(question, NAME, UnknownTransactionalId(NAME, 1))
    assert explained.text[0] == "a topic"
    assert explained.text[1].startswith(f"'{NAME}' is also a name of an error: {NAME}: another client ")
    for name in ("orders", "restoring"):
        other = Explanation(name, "all_clear", text=("a topic",))
        assert with_word(other, name) is other
