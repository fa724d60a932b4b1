"""The audit with too few rights: what is hidden is never a default, and each missing right is named once."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from support.acl_recipes import CLUSTER_CONFIGS, COMMANDS, TOPIC_CONFIGS, Grants, Right
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.topics import create_topic
from txnwatch.cli.main import main
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

READER = "reader"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": f'{MODULE} user_{READER}="secret";',
}
LOG_CONFIGS = Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "__transaction_state")
DESCRIBE_CLUSTER = Right(AclOperation.DESCRIBE, ResourceType.BROKER)


def write_to(kafka: EmbeddedKafka, topic: str) -> None:
    with contextlib.closing(connect(kafka)) as cluster:
        (partition,) = create_topic(cluster, topic)
        producer = RawProducer(cluster, f"writer of {topic}").init()
        producer.add(partition)
        producer.produce(partition)
        producer.end(commit=True)


@pytest.fixture(scope="module")
def guarded(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """One broker whose verification is off, and a topic with transactional data."""
    directory = tmp_path_factory.mktemp("audit-rights")
    listeners = {"SASL": "SASL_PLAINTEXT"}
    kafka = clusters.start("audit rights", lambda: EmbeddedKafka(directory, listeners=listeners, properties=PROPERTIES))
    set_verification(kafka.bootstrap_servers, [1], enabled=False)
    write_to(kafka, "orders")
    yield kafka
    clusters.end("audit rights")


def asked_as_reader(
    guarded: EmbeddedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str], code: int
) -> tuple[set[str], dict[str, str]]:
    """The checks that have fired, and what was not checked, with the right that is missing."""
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={MODULE} username="{READER}" password="secret";\n'
    )

    capsys.readouterr()
    connection = ("-b", guarded.listener("SASL"), "--command-config", str(config))
    assert main(["audit", *connection, "-o", "json"]) == code
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    missing = {one["what"]: one["why"].partition(": the right ")[2] for one in answer["not_checked"]}
    return {row["check"] for row in answer["rows"]}, missing


def test_each_missing_right_is_named_and_nothing_is_guessed(
    guarded: EmbeddedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = partial(asked_as_reader, guarded, tmp_path, capsys)
    acls = {"ACLs": "DESCRIBE on the cluster is missing"}
    topics = {"settings of topics __transaction_state, orders": "DESCRIBE_CONFIGS on the topic is missing"}
    reader = Grants(guarded.bootstrap_servers, READER)
    reader.set(COMMANDS)
    checks, hidden = asked(1)
    assert hidden == {"settings of broker 1": "DESCRIBE_CONFIGS on the cluster is missing", **topics, **acls}
    assert checks == {"marker-skipped", "coordinator-log-config", "replication", "old-protocol"}
    reader.add(CLUSTER_CONFIGS)
    checks, hidden = asked(1)
    assert "no-verification" in checks
    assert hidden == {**topics, **acls}
    reader.add(TOPIC_CONFIGS, LOG_CONFIGS)
    assert asked(1)[1] == acls
    reader.add(DESCRIBE_CLUSTER)
    assert asked(0)[1] == {}


def test_a_topic_that_is_hidden_is_not_checked(
    guarded: EmbeddedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_to(guarded, "payments")
    reader = Grants(guarded.bootstrap_servers, READER)
    reader.set((*COMMANDS, CLUSTER_CONFIGS, TOPIC_CONFIGS, LOG_CONFIGS, DESCRIBE_CLUSTER))
    hidden = {"topics payments": "DESCRIBE on the topic (READ includes it) is missing"}
    assert asked_as_reader(guarded, tmp_path, capsys, 1)[1] == hidden
    reader.add(Right(AclOperation.READ, ResourceType.TOPIC, "payments"))
    reader.add(Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "payments"))
    assert asked_as_reader(guarded, tmp_path, capsys, 0)[1] == {}
