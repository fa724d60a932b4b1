"""A proxy answers that there is no `__transaction_state`: then nothing is proven, and that is reported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support.answered import Answered, answered
from support.gate import Gate, GatedKafka
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.topics import create_topic, unique
from support.watch import RunningWatch, events_of
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    with Gate() as gate:
        gate.hidden.add(TRANSACTION_STATE_TOPIC)
        yield gate


@pytest.fixture(scope="module")
def hidden_log(clusters: Clusters, gate: Gate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatedKafka]:
    directory = tmp_path_factory.mktemp("hidden-log")
    kafka = clusters.start("hidden_log", lambda: GatedKafka(directory, gate))
    assert isinstance(kafka, GatedKafka)
    yield kafka
    clusters.end("hidden_log")


def asked(gate: Gate, capsys: pytest.CaptureFixture[str], *command: str) -> Answered:
    return answered(capsys, *command, "--bootstrap-server", gate.address)


def test_a_new_cluster_has_no_verdict(gate: Gate, hidden_log: GatedKafka, capsys: pytest.CaptureFixture[str]) -> None:
    assert hidden_log.bootstrap_servers
    for command in ("find-hanging", "list"):
        code, answer, _ = asked(gate, capsys, command)
        assert (code, answer["complete"], answer["rows"]) == (0, True, [])


@pytest.fixture(name="healthy", scope="module")
def a_healthy_transaction(hidden_log: GatedKafka) -> TopicPartition:
    with closing(connect(hidden_log)) as cluster:
        (partition,) = create_topic(cluster, unique("healthy"))
        owner = RawProducer(cluster, "healthy-owner", 600_000).init()
        owner.add(partition)
        owner.produce(partition)
    return partition


@pytest.mark.usefixtures("healthy")
def test_a_healthy_transaction_is_not_hanging(gate: Gate, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer, _ = asked(gate, capsys, "find-hanging")
    assert (code, answer["complete"], answer["rows"]) == (1, False, [])
    why = " ".join(missing["why"] for missing in answer["not_checked"])
    assert f"{TRANSACTION_STATE_TOPIC}: no broker shows it" in why
    assert asked(gate, capsys, "list")[1]["complete"] is False
    rows = asked(gate, capsys, "doctor").answer["rows"]
    (row,) = [row for row in rows if row["subject"] == f"Read on topic {TRANSACTION_STATE_TOPIC}"]
    assert (row["status"], "nothing is proven" in row["detail"]) == ("missing", True)


@pytest.mark.long
def test_nor_for_a_watch_until_the_log_is_shown(
    gate: Gate, hidden_log: GatedKafka, healthy: TopicPartition, tmp_path: Path
) -> None:
    with RunningWatch(gate.address, tmp_path / "checkpoint") as watch:
        line = watch.until("no broker shows __transaction_state")
        assert "nothing is proven" in line
        gate.hidden.clear()
        watch.until("__transaction_state is shown again", timeout_s=60.0)
        watch.until_ready()
    assert [event for event in events_of(hidden_log.bootstrap_servers) if event.topic == healthy.topic] == []
