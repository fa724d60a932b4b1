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
from confluent_kafka.admin import AclOperation, AclPermissionType, ResourceType  # type: ignore[attr-defined]

from support.acl_recipes import READ_EVENTS, WRITE_EVENTS, Grants, Right
from support.kafka_faults import stray_write
from support.metrics import Scrape
from support.raw_producer import RawProducer
from support.servers import Clusters, connect, create_coordinators
from support.tool_runs import Ran, run_tool
from support.topics import commit_an_offset, create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch
from txnwatch.cli.main import main
from txnwatch.setting_sources import client_properties
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.kafka_settings import ScanInterval, scan_interval_warning
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.source.options import parse_options
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

READER = "reader"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",  # who comes by the plain listener
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": f'{MODULE} user_{READER}="secret";',
}
Answered = tuple[int, dict[str, Any]]


@dataclass(frozen=True)
class Scene:
    """A broker on which the reader has no rights, one healthy open transaction and one hang."""

    kafka: EmbeddedKafka
    config: Path
    healthy: TopicPartition
    hanging: TopicPartition
    owner: str

    @property
    def reader(self) -> Grants:
        """The rights of the reader."""
        return self.of(READER)

    def of(self, user: str) -> Grants:
        """The rights of a user."""
        return Grants(self.kafka.bootstrap_servers, user)


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
    commit_an_offset(kafka, healthy)
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


def read(partition: TopicPartition) -> Right:
    return Right(AclOperation.READ, ResourceType.TOPIC, partition.topic)


def describe(partition: TopicPartition) -> Right:
    return Right(AclOperation.DESCRIBE, ResourceType.TOPIC, partition.topic)


def fixes(answer: dict[str, Any]) -> set[str]:
    """The lines of the doctor that grant what is missing."""
    return {row["fix"] for row in answer["rows"] if row["check"] == "right" and row["fix"]}


def grant(scene: Scene, lines: set[str]) -> None:
    """Runs the lines of the doctor with the tool of Kafka, as an operator who pastes them."""
    of_any_topic = [line.replace("TOPIC_PREFIX --resource-pattern-type prefixed", "'*'") for line in sorted(lines)]
    commands = [shlex.split(line) for line in of_any_topic]
    assert {command[0] for command in commands} <= {"kafka-acls.sh"}
    runs = [["--force", *command[command.index("--add") :]] for command in commands]
    assert [ran.text for ran in run_tool("AclCommand", scene.kafka.bootstrap_servers, runs) if ran.code != 0] == []


@pytest.fixture
def granted(scene: Scene, ask: Callable[..., Answered]) -> None:
    """The reader has all rights, whichever tests have run before."""
    grant(scene, fixes(ask("doctor")[1]))


def not_checked(answer: dict[str, Any]) -> dict[str, str]:
    return {missing["what"]: missing["why"] for missing in answer["not_checked"]}


def hangs(answer: dict[str, Any]) -> list[str]:
    return [row["topic"] for row in answer["rows"] if row["verdict"] == "hanging"]


def test_a_scan_interval_without_the_right_to_read_it_is_reported_and_the_default_stays(scene: Scene) -> None:
    connection = {f"kafka.{name}": value for name, value in client_properties(scene.config).items()}
    server = {"kafka.bootstrap.servers": scene.kafka.listener("SASL"), "subscribePattern": ".*"}
    options = parse_options({**connection, **server})
    with closing(Cluster(options.bootstrap, options.security)) as cluster:
        cluster.refresh()
        warning = scan_interval_warning(cluster)
        assert warning is not None
        assert "CLUSTER_AUTHORIZATION_FAILED" in warning
        assert "grant DESCRIBE_CONFIGS on the cluster, or set --coordinator-scan-interval-ms" in warning
        assert ScanInterval().largest_ms(cluster, 0.0) is None


def test_without_rights_nothing_is_found_and_that_is_no_clean_bill(ask: Callable[..., Answered]) -> None:
    code, answer = ask("find-hanging", "--fail-on-found")
    assert (code, answer["complete"], answer["rows"]) == (1, False, [])
    assert "TOPIC_AUTHORIZATION_FAILED" in " ".join(not_checked(answer).values())


def test_the_doctors_lines_grant_what_is_missing(scene: Scene, ask: Callable[..., Answered]) -> None:
    code, answer = ask("doctor")
    assert code == 1
    lines = fixes(answer)
    assert f"--allow-principal User:{READER} --operation Describe --transactional-id '*'" in " ".join(lines)
    assert all("--command-config ADMIN.properties" in line for line in lines)
    grant(scene, lines)

    code, answer = ask("doctor")
    wrong = [row for row in answer["rows"] if row["check"] == "right" and row["status"] != "ok"]
    assert (code, wrong) == (0, [])

    code, answer = ask("find-hanging")
    assert (code, hangs(answer)) == (0, [scene.hanging.topic])


def test_a_hidden_id_is_not_proven_where_the_tool_of_kafka_calls_it_hanging(
    scene: Scene, ask: Callable[..., Answered]
) -> None:
    with scene.reader.denied(Right(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, scene.owner)):
        code, answer = ask("find-hanging")
        found = scene.kafka.tool(
            "org.apache.kafka.tools.TransactionsCommand",
            *("--bootstrap-server", scene.kafka.listener("SASL"), "--command-config", str(scene.config)),
            *("find-hanging", "--topic", scene.healthy.topic),
        )
    assert [row["Topic"] for row in Ran(found.returncode, found.stdout).rows] == [scene.healthy.topic]
    assert (code, hangs(answer)) == (1, [scene.hanging.topic])
    ((what, why),) = not_checked(answer).items()
    assert what.startswith(f"{scene.healthy} producer id")
    assert f"transactional id {scene.owner!r}: TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in why


def test_a_topic_that_may_not_be_read_does_not_end_the_search(scene: Scene, ask: Callable[..., Answered]) -> None:
    with scene.reader.denied(read(scene.healthy)):
        code, answer = ask("find-hanging")
        health, explained = ask("doctor")
    assert (code, hangs(answer)) == (1, [scene.hanging.topic])
    why = "TOPIC_AUTHORIZATION_FAILED: the right READ on the topic is missing"
    assert not_checked(answer) == {str(scene.healthy): why}
    missing = [row["subject"] for row in explained["rows"] if row["status"] == "missing"]
    assert (health, missing) == (1, [f"Read on topic {scene.healthy.topic}"])


def writers(answer: dict[str, Any]) -> tuple[str, str]:
    (row,) = (row for row in answer["rows"] if row["subject"].startswith("writers of topic "))
    return row["status"], row["detail"]


def test_writers_of_the_events_topic_are_shown_where_the_acls_can_be_read(
    scene: Scene, ask: Callable[..., Answered]
) -> None:
    on_cluster = Right(AclOperation.DESCRIBE, ResourceType.BROKER)
    others = {
        "exact": WRITE_EVENTS,
        "prefix": Right(AclOperation.ALL, ResourceType.TOPIC, "txnw*"),
        "denied": WRITE_EVENTS,
        "elsewhere": Right(AclOperation.WRITE, ResourceType.TOPIC, "orders"),
        "looks": READ_EVENTS,
    }
    scene.reader.add(on_cluster)
    for user, right in others.items():
        scene.of(user).set([right])
    try:
        with scene.of("denied").denied(WRITE_EVENTS):
            status, detail = writers(ask("doctor")[1])
            with scene.reader.denied(on_cluster):
                untold = writers(ask("doctor")[1])
    finally:
        scene.reader.remove(on_cluster)
        for user in others:
            scene.of(user).set([])
    assert status == "warning"
    for named in ("User:exact", "User:prefix"):
        assert named in detail
    assert not any(f"User:{name}" in detail for name in ("denied", "elsewhere", "looks"))
    assert untold[0] == "warning"
    assert untold[1].startswith("could not be read: CLUSTER_AUTHORIZATION_FAILED")


@pytest.fixture(scope="module")
def secret(scene: Scene) -> Iterator[TopicPartition]:
    """A partition that the reader may not see: a live transaction has it, and another producer's data hangs on it."""
    with closing(connect(scene.kafka)) as cluster:
        (secret,) = create_topic(cluster, unique("secret"))
        owner = RawProducer(cluster, "the-keeper", 600_000).init()
        owner.add(secret)
        owner.produce(secret)
        stray_write(cluster, "another-stray", secret)
    with scene.reader.denied(describe(secret)):
        yield secret


@pytest.mark.parametrize(
    "command",
    [("find-hanging",), ("list",), ("describe", "--transactional-id", "the-keeper"), ("explain", "the-keeper")],
    ids=" ".join,
)
def test_a_hidden_participant_is_not_checked(
    ask: Callable[..., Answered], secret: TopicPartition, command: tuple[str, ...]
) -> None:
    code, answer = ask(*command)
    assert (code, answer["complete"]) == (1, False)
    assert "TOPIC_AUTHORIZATION_FAILED" in not_checked(answer)[str(secret)]


def test_the_doctor_names_the_hidden_topic_and_the_line_that_shows_it(
    ask: Callable[..., Answered], secret: TopicPartition
) -> None:
    code, answer = ask("doctor")
    (row,) = [row for row in answer["rows"] if row["subject"] == f"Describe on topic {secret.topic}"]
    assert (code, row["status"]) == (1, "missing")
    assert f"--operation Read --topic {secret.topic}" in row["fix"]


ABOUT_IT: dict[str, Callable[[TopicPartition], tuple[str, ...]]] = {
    "explain": lambda at: ("explain", str(at)),
    "explain with flags": lambda at: ("explain", "--topic", at.topic, "--partition", "0"),
    "describe-producers": lambda at: ("describe-producers", "--topic", at.topic, "--partition", "0"),
    "find-hanging": lambda at: ("find-hanging", "--topic", at.topic),
    "abort": lambda at: ("abort", "--topic", at.topic, "--partition", "0", "--start-offset", "1", "--yes"),
}


@pytest.mark.parametrize("command", ABOUT_IT.values(), ids=ABOUT_IT.keys())
def test_every_command_reports_that_a_hidden_partition_is_hidden(
    scene: Scene, capsys: pytest.CaptureFixture[str], secret: TopicPartition, command: Callable[..., tuple[str, ...]]
) -> None:
    connection = ("--bootstrap-server", scene.kafka.listener("SASL"), "--command-config", str(scene.config))
    assert main([*command(secret), *connection]) == 1
    output = capsys.readouterr().err
    assert f"{secret.topic}" in output
    assert "hidden from this user (TOPIC_AUTHORIZATION_FAILED: the right DESCRIBE on the topic" in output


def test_an_id_that_looks_like_a_partition_is_an_id_still(
    ask: Callable[..., Answered], scene: Scene, secret: TopicPartition
) -> None:
    with closing(connect(scene.kafka)) as cluster:
        RawProducer(cluster, f"{secret.topic}-7").init()
    code, answer = ask("explain", f"{secret.topic}-7")
    assert (code, answer["rows"][0]["transactional_id"]) == (0, f"{secret.topic}-7")


@pytest.mark.long
@pytest.mark.usefixtures("granted")
def test_a_watch_reports_what_is_hidden_until_it_is_shown_and_then_finds_what_hangs(
    scene: Scene, secret: TopicPartition, tmp_path: Path
) -> None:
    flags = ("--command-config", str(scene.config), "--http-port", "0")
    with RunningWatch(scene.kafka.listener("SASL"), tmp_path / "checkpoint", *flags) as watch:
        ready_line = watch.until("ready: ")
        assert f"nothing is proven on 1 partition: {secret}" in ready_line
        assert f"warning: hidden {secret}: a transaction includes this partition" in watch.until(f"hidden {secret}")
        eventually(
            lambda: Scrape.at(watch.metrics_url).value("unproven_partitions", log="data") == 1,
            30.0,
            "the metric of what is unproven",
        )
        scene.reader.remove(describe(secret), permission=AclPermissionType.DENY)
        watch.until(f"{secret}@1", timeout_s=60.0)


@pytest.mark.long
@pytest.mark.usefixtures("granted")
def test_a_topic_that_no_census_may_describe_is_unproven_in_log_heartbeat_and_metrics(
    scene: Scene, ask: Callable[..., Answered], tmp_path: Path
) -> None:
    flags = ("--command-config", str(scene.config), "--http-port", "0", "--topics", scene.healthy.topic)
    with (
        scene.reader.denied(read(scene.hanging)),
        RunningWatch(
            scene.kafka.listener("SASL"), tmp_path / "checkpoint", *flags, "--events-heartbeat-ms", "1000"
        ) as watch,
    ):
        ready_line = watch.until("ready: ")
        assert "nothing is proven on " in ready_line
        assert str(scene.hanging) in ready_line
        assert (Scrape.at(watch.metrics_url).value("unproven_partitions", log="data") or 0) >= 1
        code, answer = eventually(
            lambda: _not_reached(ask("status"), scene.hanging), 30.0, "a heartbeat of a watch that is ready"
        )
        assert code == 1
        assert "proves nothing there" in not_checked(answer)[str(scene.hanging)]


def _not_reached(answered: Answered, partition: TopicPartition) -> Answered | None:
    has_watcher = any(str(one["instance"]).endswith("checkpoint") for one in answered[1]["watchers"])
    return answered if has_watcher and str(partition) in not_checked(answered[1]) else None
