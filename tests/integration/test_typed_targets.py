"""What a person types who does not know the form, on a real broker: what it is taken for, the answer, the next command.

Each case is a text, the exit code with `--fail-on-found`, the state of the answer, and what the text says.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from support.kafka_faults import LONG_TIMEOUT_MS, late_write_after_abort, stray_write
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.topics import commit_an_offset, create_topic
from txnwatch.cli.main import main
from txnwatch.state.model.incident import span_incident_id, transaction_incident_id
from txnwatch.state.model.transaction import DescribedTransaction
from txnwatch.state.model.verdicts import Verdict
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification


@dataclass
class Desk:
    """Where a person types, and what hangs there."""

    kafka: EmbeddedKafka
    incidents: dict[str, str]

    def explains(self, capsys: pytest.CaptureFixture[str], *typed: str, code: int) -> dict[str, Any]:
        server = ("--bootstrap-server", self.kafka.bootstrap_servers, "--format", "json", "--fail-on-found")
        assert main(["explain", *typed, *server]) == code, capsys.readouterr()
        row: dict[str, Any] = json.loads(capsys.readouterr().out)["rows"][0]
        return row

    def refuses(self, capsys: pytest.CaptureFixture[str], typed: str) -> str:
        assert main(["explain", typed, "--bootstrap-server", self.kafka.bootstrap_servers]) == 1
        return capsys.readouterr().err


@pytest.fixture(scope="module")
def desk(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """`payments-1` hangs from offset 2, `ledger-0` is open, all else is clear."""
    kafka = clusters.start("desk", lambda: EmbeddedKafka(tmp_path_factory.mktemp("desk")))
    set_verification(kafka.bootstrap_servers, [1], enabled=False)
    with closing(connect(kafka)) as cluster:
        clear, held, _ = create_topic(cluster, "payments", 3)
        (ledger,) = create_topic(cluster, "ledger")
        hung = late_write_after_abort(cluster, "checkout-7", held)
        live = RawProducer(cluster, "copy-1", LONG_TIMEOUT_MS).init()
        live.add(ledger)
        live.produce(ledger)
        commit_an_offset(kafka, clear, "billing")
        cluster_id, admin = cluster.refresh().cluster_id, ClusterAdmin(cluster)
        topic_id = admin.read_partitions([held])[held].topic_id
        described = admin.describe_transactions(["copy-1"])["copy-1"]
        assert isinstance(described, DescribedTransaction)
        start = live.producer_id, described.start_ms, Verdict.LATE
        incidents = {
            "SPAN": span_incident_id(cluster_id, str(topic_id), 1, hung.producer_id, 2),
            "LATE": transaction_incident_id(cluster_id, "copy-1", *start),
        }
    yield Desk(kafka, incidents)
    clusters.end("desk")


HANG = "payments-1: HANGING."
ANSWERED = {
    "payments/1": (3, "hanging", "taken for partition 1 of topic payments", HANG),
    "payments:1": (3, "hanging", "taken for partition 1 of topic payments", HANG),
    "payments 1": (3, "hanging", "taken for partition 1 of topic payments", HANG),
    "payments [1]": (3, "hanging", "taken for partition 1 of topic payments", HANG),
    "Payments-1": (3, "hanging", "taken for partition 1 of topic payments", HANG),
    "payments/0": (0, "all_clear", "taken for partition 0 of topic payments", "all clear"),
    "payments/1/2": (3, "hanging", "taken for offset 2 of partition 1 of topic payments", HANG),
    "payments-1 offset 0": (3, "aborted", "taken for offset 0 of partition 1 of topic payments", "aborted"),
    "partition 1": (3, "hanging", "taken for partition 1 of ", "payments-1"),
    "partition 0": (3, "open", "taken for partition 0 of every topic", "open: ledger-0 from offset 0"),
    "offset 2": (
        3,
        "hanging",
        "taken for offset 2 of a partition that is not named",
        "HANGING: payments-1 from offset 2",
    ),
    "PAYMENTS": (3, "hanging", "taken for topic 'payments'", "HANGING: payments-1 from offset 2"),
    "Billing": (0, "all_clear", "taken for consumer group 'billing'", "All clear"),
    "CHECKOUT-7": (3, "hanging", "taken for transactional id 'checkout-7'", HANG),
    "topic payments": (3, "hanging", "taken for topic payments", "HANGING: payments-1 from offset 2"),
    "group billing": (0, "all_clear", "taken for consumer group 'billing'", "All clear"),
    "transactional.id=checkout-7": (3, "hanging", "taken for transactional id 'checkout-7'", HANG),
    "SPAN": (3, "hanging", "open data on payments-1 has this id now", HANG),
    "incident SPAN": (3, "hanging", "open data on payments-1 has this id now", HANG),
    "SPAN-4": (3, "hanging", "open data on payments-1 has this id now", HANG),
    "LATE": (3, "open", "the open transaction of 'copy-1' has this id now", "copy-1: Ongoing"),
}


@pytest.mark.parametrize(("typed", "expected"), ANSWERED.items(), ids=ANSWERED.keys())
def test_it_says_what_the_text_is_taken_for_and_answers(
    typed: str, expected: tuple[int, str, str, str], desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    code, state, taken, says = expected
    for name, incident in desk.incidents.items():
        typed = typed.replace(name, incident) if typed.startswith((name, "incident")) else typed
    row = desk.explains(capsys, typed, code=code)
    assert (row["state"], row["target"]) == (state, typed)
    first, *others = row["text"]
    assert first.startswith(f"{typed}: taken for ")
    assert taken in first
    assert any(says in line for line in others), others


def test_words_need_no_quotation_marks(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert desk.explains(capsys, "topic", "payments", "partition", "1", code=3)["state"] == "hanging"


NEAR = {
    "paymnts": "near: payments (topic): `txnwatch explain payments ",
    "payments-O": "near: payments-0 (partition): `txnwatch explain payments-0 ",
    "payments-9": "topic payments has the partitions 0 to 2",
    "payments/9": "topic payments has the partitions 0 to 2",
    "chekout-7": "near: checkout-7 (transactional id): `txnwatch explain --transactional-id checkout-7 ",
    "biling": "near: billing (consumer group): `txnwatch explain --group billing ",
    "nobody-has-this": "such an id never existed, or it expired",
    "0" * 31 + "a": "taken for an incident. Nothing that is open in this cluster now has this id, and the events topic",
}


@pytest.mark.parametrize(("typed", "says"), NEAR.items(), ids=NEAR.keys())
def test_what_is_not_there_leads_to_what_is_near(
    typed: str, says: str, desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    why = desk.refuses(capsys, typed)
    assert says in why
    if "near: " in says:
        command = why.partition("`")[2].partition("`")[0]
        assert main([*shlex.split(command)[1:], "--format", "json"]) == 0


def test_an_offset_of_no_partition_is_not_answered(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    row = desk.explains(capsys, "offset 4711", code=1)
    assert row["state"] == "not_checked"
    assert "read_committed does not stop at this offset" in row["text"][1]
    assert "--offset 4711" in row["text"][1]


def test_a_name_that_is_typed_as_it_is_comes_before_every_form(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(connect(desk.kafka)) as cluster:
        stray_write(cluster, "payments/0", create_topic(cluster, "elsewhere")[0])
    row = desk.explains(capsys, "payments/0", code=3)
    assert row["transactional_id"] == "payments/0"
    assert "taken for" not in row["text"][0]
