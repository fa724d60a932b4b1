"""A right that is missing never looks like a hang: doctor names it with the line that grants it, and the line does."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.servers import Clusters, connect, create_coordinators
from support.topics import create_topic, unique
from support.transaction_tools import Ran
from txnwatch.cli.main import main
from txnwatch.embedded.faults import set_verification, stray_write
from txnwatch.embedded.kafka import EmbeddedKafka
from txnwatch.embedded.raw_producer import RawProducer
from txnwatch.state.ids import TopicPartition

READER = "reader"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",  # who comes by the plain listener
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": f'{MODULE} user_{READER}="secret";',
}
_TOOLS = "org.apache.kafka.tools"
Answered = tuple[int, dict[str, Any]]


@dataclass(frozen=True)
class Scene:
    """A broker on which the reader has no rights, one healthy open transaction and one hang."""

    kafka: EmbeddedKafka
    config: Path
    healthy: TopicPartition
    hanging: TopicPartition
    owner: str

    def acls(self, *arguments: str) -> None:
        done = self.kafka.tool(
            f"{_TOOLS}.AclCommand", "--bootstrap-server", self.kafka.bootstrap_servers, "--force", *arguments
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def scene(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("rights")
    listeners = {"SASL": "SASL_PLAINTEXT"}
    kafka = clusters.start("rights", lambda: EmbeddedKafka(directory, listeners=listeners, properties=PROPERTIES))
    config = directory / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={MODULE} username="{READER}" password="secret";\n'
    )
    set_verification(kafka.bootstrap_servers, [1], enabled=False)
    create_coordinators(kafka)
    with closing(connect(kafka)) as cluster:
        (healthy,), (hanging,) = create_topic(cluster, unique("healthy")), create_topic(cluster, unique("hanging"))
        owner = RawProducer(cluster, "the-owner", 600_000).init()
        owner.add(healthy)
        owner.produce(healthy, timestamp_ms=1_600_000_000_000)
        stray_write(cluster, "a-stray", hanging)
    yield Scene(kafka, config, healthy, hanging, owner.transactional_id)
    clusters.end("rights")


@pytest.fixture
def ask(scene: Scene, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answered]:
    """A command as the reader: exit code and envelope."""

    def asked(*arguments: str) -> Answered:
        connection = ("--bootstrap-server", scene.kafka.listener("SASL"), "--command-config", str(scene.config))
        code = main([*arguments, *connection, "--format", "json"])
        return code, json.loads(capsys.readouterr().out)

    return asked


def not_checked(answer: dict[str, Any]) -> dict[str, str]:
    return {missing["what"]: missing["why"] for missing in answer["not_checked"]}


def hangs(answer: dict[str, Any]) -> list[str]:
    return [row["topic"] for row in answer["rows"] if row["verdict"] == "hanging"]


def test_without_rights_nothing_is_found_and_that_is_no_clean_bill(ask: Callable[..., Answered]) -> None:
    code, answer = ask("find-hanging", "--fail-on-found")
    assert (code, answer["complete"], answer["rows"]) == (1, False, [])
    assert "TOPIC_AUTHORIZATION_FAILED" in " ".join(not_checked(answer).values())


def test_the_doctors_lines_grant_what_is_missing(scene: Scene, ask: Callable[..., Answered]) -> None:
    code, answer = ask("doctor")
    assert code == 1
    lines = {row["fix"] for row in answer["rows"] if row["check"] == "right" and row["fix"]}
    assert f"--allow-principal User:{READER} --operation Describe --transactional-id '*'" in " ".join(lines)
    assert all(f"--command-config {scene.config}" in line for line in lines)
    for line in sorted(lines):
        words = shlex.split(line)
        assert words[0] == "kafka-acls.sh"
        scene.acls(*words[words.index("--add") :])

    code, answer = ask("doctor")
    wrong = [row for row in answer["rows"] if row["check"] == "right" and row["status"] != "ok"]
    assert (code, wrong) == (0, [])

    code, answer = ask("find-hanging")
    assert (code, hangs(answer)) == (0, [scene.hanging.topic])


def test_a_hidden_id_is_not_proven_where_the_tool_of_kafka_calls_it_hanging(
    scene: Scene, ask: Callable[..., Answered]
) -> None:
    hidden = ("--deny-principal", f"User:{READER}", "--operation", "Describe", "--transactional-id", scene.owner)
    scene.acls("--add", *hidden)
    try:
        code, answer = ask("find-hanging")
        found = scene.kafka.tool(
            f"{_TOOLS}.TransactionsCommand",
            *("--bootstrap-server", scene.kafka.listener("SASL"), "--command-config", str(scene.config)),
            *("find-hanging", "--topic", scene.healthy.topic),
        )
    finally:
        scene.acls("--remove", *hidden)
    assert [row["Topic"] for row in Ran(found.returncode, found.stdout).rows] == [scene.healthy.topic]
    assert (code, hangs(answer)) == (1, [scene.hanging.topic])
    ((what, why),) = not_checked(answer).items()
    assert what.startswith(f"{scene.healthy} producer id")
    assert f"transactional id {scene.owner!r}: TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in why


def test_a_topic_that_may_not_be_read_does_not_end_the_search(scene: Scene, ask: Callable[..., Answered]) -> None:
    unread = ("--deny-principal", f"User:{READER}", "--operation", "Read", "--topic", scene.healthy.topic)
    scene.acls("--add", *unread)
    try:
        code, answer = ask("find-hanging")
        told, explained = ask("doctor")
    finally:
        scene.acls("--remove", *unread)
    assert (code, hangs(answer)) == (1, [scene.hanging.topic])
    assert not_checked(answer) == {str(scene.healthy): "TOPIC_AUTHORIZATION_FAILED"}
    missing = [row["subject"] for row in explained["rows"] if row["status"] == "missing"]
    assert (told, missing) == (1, [f"Read on topic {scene.healthy.topic}"])
