"""The number of partitions of `__transaction_state` is changed (KAFKA-7771): the commands say so, and how it ends."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions

from support.answered import Answered, answered
from support.raw_producer import RawProducer
from support.servers import Clusters, connect, create_coordinators
from support.topics import FAILOVER_S, admin_of, create_topic, unique
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.state.model.values import (
    TRANSACTION_STATE_TOPIC,
    DurationMs,
    TopicPartition,
    coordinator_partition,
)
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

Ask = Callable[..., Answered]
BEFORE, AFTER = 4, 8


@pytest.fixture(scope="module")
def changed(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    directory = tmp_path_factory.mktemp("changed")
    started = clusters.start("changed", lambda: EmbeddedKafka(directory))
    create_coordinators(started)
    yield started
    clusters.end("changed")


@pytest.fixture
def ask(changed: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> Ask:
    return lambda *command: answered(capsys, *command, "--bootstrap-server", changed.bootstrap_servers)


def is_moved(name: str) -> bool:
    return coordinator_partition(name, BEFORE) != coordinator_partition(name, AFTER)


def begun(kafka: EmbeddedKafka) -> tuple[RawProducer, TopicPartition]:
    """An open transaction of an id that gets another partition, before the change."""
    with contextlib.closing(connect(kafka)) as cluster:
        (at,) = create_topic(cluster, unique("orders"))
        name = next(name for name in (unique("checkout") for _ in range(100)) if is_moved(name))
        producer = RawProducer(cluster, name, DurationMs(600_000)).init()
        producer.add(at)
        producer.produce(at)
        admin = admin_of(cluster)  # kept until the answer is there
        admin.create_partitions([NewPartitions(TRANSACTION_STATE_TOPIC, AFTER)])[TRANSACTION_STATE_TOPIC].result(15.0)
        eventually(
            lambda: len(cluster.refresh().topics[TRANSACTION_STATE_TOPIC].partitions) == AFTER, 15.0, "the change"
        )
    return producer, at


def misplaced(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in answer["rows"] if row["check"] in {"coordinator-partitions", "log"}]


def test_what_happened_is_said_and_the_printed_step_ends_it(
    changed: EmbeddedKafka, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    assert misplaced(ask("audit")[1]) == []
    producer, at = begun(changed)
    name = producer.transactional_id
    was, belongs = (f"{TRANSACTION_STATE_TOPIC}-{coordinator_partition(name, count)}" for count in (BEFORE, AFTER))
    code, answer, _ = ask("explain", name)
    assert "After the next restart of the brokers none does" in answer["rows"][0]["text"][-2]

    changed.stop()
    changed.start()
    eventually(lambda: ask("explain", name)[1].get("rows", [{}])[0].get("state") == "hanging", FAILOVER_S, "the hang")
    where = f"in {was}, and with {AFTER} partitions it belongs to {belongs}"
    for target in (("explain", name), ("explain", "--transactional-id", name), ("explain", str(at))):
        code, answer, _ = ask(*target)
        (row,) = answer["rows"]
        text = " ".join(row["text"])
        assert (code, row["state"]) == (0, "hanging")
        assert where in row["outcome"]
        assert "is Ongoing, so as far as the log shows nothing of it was committed" in row["outcome"]
        assert row["why"] == "No marker will ever come: no coordinator finds its transactional id."
        for false in ("Write no marker yet", "it expired", "never existed"):
            assert false not in text
        (step,) = row["steps"]
        assert step["text"].startswith("If it was not, write the ABORT marker")
        assert step["command"] == row["next"]
    code, answer, _ = ask("find-hanging")
    (found,) = answer["rows"]
    assert (found["outcome_doubt"], found["outcome"], found["safe"]) == ("ongoing_moved", row["outcome"], row["safe"])
    code, answer, _ = ask("abort", "--topic", at.topic, "--partition", "0", "--start-offset", "0", "--dry-run")
    assert (code, row["safe"] in answer["rows"][0]["detail"]) == (0, True)
    code, _, error = ask("fence", name, "--dry-run")
    assert (code, "A fence would create the id again" in error) == (1, True)
    code, answer, _ = ask("decode", "--transactional-id", name)
    assert code == 0
    states = [(row["partition"], row["transaction_state"]) for row in answer["rows"]]
    assert states == [(coordinator_partition(name, BEFORE), state) for state in ("Empty", "Ongoing")]
    assert ask("decode", "--transactional-id", unique("nobody"))[1]["rows"] == []
    (found,) = misplaced(ask("audit")[1])
    assert (found["severity"], found["subject"]) == ("critical", TRANSACTION_STATE_TOPIC)
    assert name in found["transactional_ids"]
    assert misplaced(ask("doctor")[1]) == [], "the audit alone checks it"
    with contextlib.closing(connect(changed)) as cluster:
        RawProducer(cluster, name).init()
    code, answer, _ = ask("explain", name)
    (again,) = answer["rows"]
    assert (again["state"], again["next"]) == ("hanging", row["next"]), "the former producer id has open data"
    assert "Its application has started again since" in " ".join(again["text"])
    printed = shlex.split(row["next"])
    assert main([*printed[1:], "--yes"]) == 5, "nobody knows what its client was told"
    assert main([*printed[1:], "--yes", "--accept-unknown-outcome"]) == 0
    capsys.readouterr()
    eventually(lambda: ask("explain", str(at))[1]["rows"][0]["state"] == "all_clear", FAILOVER_S, "all clear")
