"""find-hanging and explain on a real broker, with a clock of ours that is a minute or more ahead of the broker's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from support.answers import described
from support.kafka_faults import foreign_marker
from support.raw_producer import RawProducer
from support.topics import create_topic, unique
from support.waiting import eventually
from txnwatch.cli import explain_causes, explain_names, explain_partitions, explain_records, find_hanging
from txnwatch.cli.main import main
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin import transaction_requests as open_for
from txnwatch.streaming.admin.transaction_requests import is_open_for_longer
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

AHEAD_MS = 62_000
STUCK_S = 60.0
Ask = Callable[..., Any]


@pytest.fixture
def ask(kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    for command in (find_hanging, explain_causes, explain_names, explain_partitions, explain_records):
        monkeypatch.setattr(command, "wall_clock_ms", lambda: wall_clock_ms() + AHEAD_MS)

    def asked(*arguments: str) -> Any:
        main([*arguments, "--bootstrap-server", kafka.bootstrap_servers, "--format", "json"])
        return json.loads(capsys.readouterr().out)

    return asked


@pytest.fixture
def partition(cluster: Cluster) -> TopicPartition:
    (created,) = create_topic(cluster, unique("clocks"))
    return created


def opened(cluster: Cluster, partition: TopicPartition, timeout_ms: int) -> RawProducer:
    producer = RawProducer(cluster, unique("app"), timeout_ms).init()
    producer.add(partition)
    producer.produce(partition)
    return producer


def mine(answer: Any, producer: RawProducer) -> tuple[list[str], list[str]]:
    """What was found of a transaction, and what was not checked of it."""
    name = producer.transactional_id
    rows = [row["verdict"] for row in answer["rows"] if row["transactional_id"] == name]
    return rows, [missing["why"] for missing in answer["not_checked"] if repr(name) in missing["what"]]


def test_a_transaction_that_is_late_by_our_clock_alone_is_not_late(
    ask: Ask, cluster: Cluster, partition: TopicPartition
) -> None:
    producer = opened(cluster, partition, 30_000)
    assert mine(ask("find-hanging"), producer) == ([], [])
    (row,) = ask("explain", str(partition))["rows"]
    assert row["state"] == "open"
    (row,) = ask("explain", "--transactional-id", producer.transactional_id)["rows"]
    assert row["state"] == "open"
    producer.end(commit=True)


@pytest.mark.long
def test_markers_are_stuck_once_their_coordinators_clock_proves_it(
    ask: Ask, cluster: Cluster, partition: TopicPartition
) -> None:
    prepared = opened(cluster, partition, 600_000)
    foreign_marker(cluster, partition, prepared)
    prepared.end(commit=True)
    begun_ms = wall_clock_ms()
    assert mine(ask("find-hanging"), prepared) == ([], [])
    (row,) = ask("explain", "--transactional-id", prepared.transactional_id)["rows"]
    assert row["state"] == "open"

    def found() -> list[str]:
        return mine(ask("find-hanging"), prepared)[0]

    assert eventually(found, STUCK_S, "the transaction to be stuck") == ["stuck_prepare"]
    assert wall_clock_ms() - begun_ms > 29_000
    (row,) = ask("explain", "--transactional-id", prepared.transactional_id)["rows"]
    assert row["state"] == "stuck_prepare"


def test_if_a_broker_is_too_old_its_timestamps_prove_the_age(
    cluster: Cluster, partition: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_for, "DURATION_SINCE", 99)
    name = opened(cluster, partition, 600_000).transactional_id
    found = described(ClusterAdmin(cluster), name)
    assert found.start_ms is not None
    assert "before 3.8" in str(is_open_for_longer(cluster, found, wall_clock_ms() - found.start_ms + 60_000))
    passed_ms = wall_clock_ms() - found.start_ms
    RawProducer(cluster, unique("another")).init()
    assert is_open_for_longer(cluster, found, passed_ms - 1) is True


def test_a_coordinator_returns_for_how_long_a_transaction_has_been_open(
    cluster: Cluster, partition: TopicPartition
) -> None:
    name = opened(cluster, partition, 600_000).transactional_id
    found = described(ClusterAdmin(cluster), name)
    assert found.start_ms is not None
    before_ms = wall_clock_ms() - found.start_ms
    eventually(lambda: is_open_for_longer(cluster, found, before_ms) is True, 5.0, "a yes once it is older")
    assert is_open_for_longer(cluster, found, wall_clock_ms() - found.start_ms + 60_000) is False
    assert is_open_for_longer(cluster, found, 0) is True
