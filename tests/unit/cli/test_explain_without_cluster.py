"""What an error means is printed without a cluster: somebody reads it in a log before he has an address."""

from __future__ import annotations

import json

import pytest

from txnwatch.cli.main import main

NOBODY = ("--bootstrap-server", "127.0.0.1:1")
LINE = (
    "org.apache.kafka.common.errors.TimeoutException: Timeout expired after 60000ms while awaiting InitProducerId",
    "TransactionCoordinator: Completed rollback of ongoing transaction for transactionalId late-app due to timeout",
)


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TXNWATCH_BOOTSTRAP_SERVER", raising=False)


@pytest.mark.parametrize(
    ("word", "means", "command"),
    [
        ("CONCURRENT_TRANSACTIONS", "its markers are not all written yet", "txnwatch list "),
        ("ProducerFencedException", "another client has sent InitProducerId", "txnwatch list "),
        ("producer fenced", "another client has sent InitProducerId", "txnwatch list "),
        (LINE[0], "the coordinator of this id is not reachable", "txnwatch doctor "),
        (LINE[1], "has aborted the transaction at its timeout", "txnwatch explain --transactional-id late-app "),
    ],
)
def test_a_word_needs_no_server(word: str, means: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 0
    out = capsys.readouterr().out
    assert means in out
    assert "no cluster was asked whether a topic, consumer group or transactional id has this name" in out
    assert f"next: {command}" in out
    assert "--bootstrap-server SERVER" in out


def test_a_word_is_told_although_no_broker_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "PRODUCER_FENCED", *NOBODY, "--format", "json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    (row,) = answer["rows"]
    assert row["state"] == "error_word"
    assert "another client has sent InitProducerId" in " ".join(row["text"])
    (missing,) = answer["not_checked"]
    assert missing["what"] == "what has the name PRODUCER_FENCED"
    assert "no broker answered" in missing["why"]


@pytest.mark.parametrize("target", [("orders-0",), ("--transactional-id", "PRODUCER_FENCED"), ("--group", "RESTORING")])
def test_a_name_needs_a_server(target: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *target]) == 2
    assert "give --bootstrap-server, TXNWATCH_BOOTSTRAP_SERVER" in capsys.readouterr().err
    assert main(["explain", *target, *NOBODY]) == 1
    assert "no broker answered" in capsys.readouterr().err
