"""A right that is missing never looks like a hang: doctor names it with the line that grants it, and the line does."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, AclPermissionType, ResourceType  # type: ignore[attr-defined]

from support.acl_recipes import READ_EVENTS, WRITE_EVENTS, Grants, Right
from support.guarded_broker import HANGING, LIVE, OWNER, USER, Guarded, guarded_broker
from support.kafka_faults import stray_write
from support.metrics import Scrape
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.tool_runs import Ran, run_tool
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch
from txnwatch.setting_sources import client_properties
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.kafka_settings import ScanInterval, scan_interval_warning
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.source.options import parse_options

LIVE_AT, HANGING_AT = TopicPartition(LIVE, 0), TopicPartition(HANGING, 0)
LONG_AGO_MS = 1_600_000_000_000  # Kafka's tool calls a transaction hanging by the time of its last write
Reply = tuple[int, dict[str, Any]]


@pytest.fixture(scope="module")
def scene(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A broker on which the user has no rights, one healthy open transaction and one hang."""
    with guarded_broker(clusters, "rights", tmp_path_factory.mktemp("rights"), timestamp_ms=LONG_AGO_MS) as found:
        yield found


def grants_of(scene: Guarded, user: str) -> Grants:
    """The rights of another user."""
    return Grants(scene.kafka.bootstrap_servers, user)


@pytest.fixture
def ask(scene: Guarded, capsys: pytest.CaptureFixture[str]) -> Callable[..., Reply]:
    """A command as the user: exit code and envelope."""
    return lambda *command: scene.ask(capsys, *command)[:2]


def read(partition: TopicPartition) -> Right:
    return Right(AclOperation.READ, ResourceType.TOPIC, partition.topic)


def describe(partition: TopicPartition) -> Right:
    return Right(AclOperation.DESCRIBE, ResourceType.TOPIC, partition.topic)


def fixes(answer: dict[str, Any]) -> set[str]:
    """The lines of the doctor that grant what is missing."""
    return {row["fix"] for row in answer["rows"] if row["check"] == "right" and row["fix"]}


def grant(scene: Guarded, lines: set[str]) -> None:
    """Runs the lines of the doctor with the tool of Kafka, as an operator who pastes them."""
    of_any_topic = [line.replace("TOPIC_PREFIX --resource-pattern-type prefixed", "'*'") for line in sorted(lines)]
    commands = [shlex.split(line) for line in of_any_topic]
    assert {command[0] for command in commands} <= {"kafka-acls.sh"}
    runs = [["--force", *command[command.index("--add") :]] for command in commands]
    assert [ran.text for ran in run_tool("AclCommand", scene.kafka.bootstrap_servers, runs) if ran.code != 0] == []


@pytest.fixture
def granted(scene: Guarded, ask: Callable[..., Reply]) -> None:
    """The user has all rights, whichever tests have run before."""
    grant(scene, fixes(ask("doctor")[1]))


def not_checked(answer: dict[str, Any]) -> dict[str, str]:
    return {missing["what"]: missing["why"] for missing in answer["not_checked"]}


def hangs(answer: dict[str, Any]) -> list[str]:
    return [row["topic"] for row in answer["rows"] if row["verdict"] == "hanging"]


def test_a_scan_interval_without_the_right_to_read_it_is_reported_and_the_default_stays(scene: Guarded) -> None:
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


def test_without_rights_nothing_is_found_and_that_is_no_clean_bill(ask: Callable[..., Reply]) -> None:
    code, answer = ask("find-hanging", "--fail-on-found")
    assert (code, answer["complete"], answer["rows"]) == (1, False, [])
    assert "TOPIC_AUTHORIZATION_FAILED" in " ".join(not_checked(answer).values())


def test_the_doctors_lines_grant_what_is_missing(scene: Guarded, ask: Callable[..., Reply]) -> None:
    code, answer = ask("doctor")
    assert code == 1
    lines = fixes(answer)
    assert f"--allow-principal User:{USER} --operation Describe --transactional-id '*'" in " ".join(lines)
    assert all("--command-config ADMIN.properties" in line for line in lines)
    grant(scene, lines)

    code, answer = ask("doctor")
    wrong = [row for row in answer["rows"] if row["check"] == "right" and row["status"] != "ok"]
    assert (code, wrong) == (0, [])

    code, answer = ask("find-hanging")
    assert (code, hangs(answer)) == (0, [HANGING_AT.topic])


def test_a_hidden_id_is_not_proven_where_the_tool_of_kafka_calls_it_hanging(
    scene: Guarded, ask: Callable[..., Reply]
) -> None:
    with scene.grants.denied(Right(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, OWNER)):
        code, answer = ask("find-hanging")
        found = scene.kafka.tool(
            "org.apache.kafka.tools.TransactionsCommand", *scene.connection, "find-hanging", "--topic", LIVE_AT.topic
        )
    assert [row["Topic"] for row in Ran(found.returncode, found.stdout).rows] == [LIVE_AT.topic]
    assert (code, hangs(answer)) == (1, [HANGING_AT.topic])
    ((what, why),) = not_checked(answer).items()
    assert what.startswith(f"{LIVE_AT} producer id")
    assert f"transactional id {OWNER!r}: TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in why


def test_a_topic_that_may_not_be_read_does_not_end_the_search(scene: Guarded, ask: Callable[..., Reply]) -> None:
    with scene.grants.denied(read(LIVE_AT)):
        code, answer = ask("find-hanging")
        health, explained = ask("doctor")
    assert (code, hangs(answer)) == (1, [HANGING_AT.topic])
    why = "TOPIC_AUTHORIZATION_FAILED: the right READ on the topic is missing"
    assert not_checked(answer) == {str(LIVE_AT): why}
    missing = [row["subject"] for row in explained["rows"] if row["status"] == "missing"]
    assert (health, missing) == (1, [f"Read on topic {LIVE_AT.topic}"])


def writers(answer: dict[str, Any]) -> tuple[str, str]:
    (row,) = (row for row in answer["rows"] if row["subject"].startswith("writers of topic "))
    return row["status"], row["detail"]


def test_writers_of_the_events_topic_are_shown_where_the_acls_can_be_read(
    scene: Guarded, ask: Callable[..., Reply]
) -> None:
    on_cluster = Right(AclOperation.DESCRIBE, ResourceType.BROKER)
    others = {
        "exact": WRITE_EVENTS,
        "prefix": Right(AclOperation.ALL, ResourceType.TOPIC, "txnw*"),
        "denied": WRITE_EVENTS,
        "elsewhere": Right(AclOperation.WRITE, ResourceType.TOPIC, "orders"),
        "looks": READ_EVENTS,
    }
    scene.grants.add(on_cluster)
    for user, right in others.items():
        grants_of(scene, user).set([right])
    try:
        with grants_of(scene, "denied").denied(WRITE_EVENTS):
            status, detail = writers(ask("doctor")[1])
            with scene.grants.denied(on_cluster):
                untold = writers(ask("doctor")[1])
    finally:
        scene.grants.remove(on_cluster)
        for user in others:
            grants_of(scene, user).set([])
    assert status == "warning"
    for named in ("User:exact", "User:prefix"):
        assert named in detail
    assert not any(f"User:{name}" in detail for name in ("denied", "elsewhere", "looks"))
    assert untold[0] == "warning"
    assert untold[1].startswith("could not be read: CLUSTER_AUTHORIZATION_FAILED")


@pytest.fixture(scope="module")
def secret(scene: Guarded) -> Iterator[TopicPartition]:
    """A partition that the user may not see: a live transaction has it, and another producer's data hangs on it."""
    with closing(connect(scene.kafka)) as cluster:
        (secret,) = create_topic(cluster, unique("secret"))
        owner = RawProducer(cluster, "the-keeper", 600_000).init()
        owner.add(secret)
        owner.produce(secret)
        stray_write(cluster, "another-stray", secret)
    with scene.grants.denied(describe(secret)):
        yield secret


@pytest.mark.parametrize(
    "command",
    [("find-hanging",), ("list",), ("describe", "--transactional-id", "the-keeper"), ("explain", "the-keeper")],
    ids=" ".join,
)
def test_a_hidden_participant_is_not_checked(
    ask: Callable[..., Reply], secret: TopicPartition, command: tuple[str, ...]
) -> None:
    code, answer = ask(*command)
    assert (code, answer["complete"]) == (1, False)
    assert "TOPIC_AUTHORIZATION_FAILED" in not_checked(answer)[str(secret)]


def test_a_command_about_a_hidden_partition_says_that_it_is_hidden(
    scene: Guarded, capsys: pytest.CaptureFixture[str], secret: TopicPartition
) -> None:
    for command in (("find-hanging",), ("explain", "--partition", "0")):
        answered = scene.ask(capsys, *command, "--topic", secret.topic)
        assert (answered.code, secret.topic in answered.error) == (1, True)
        assert "hidden from this user (TOPIC_AUTHORIZATION_FAILED: the right DESCRIBE on the topic" in answered.error


def test_an_id_that_looks_like_a_partition_is_an_id_still(
    ask: Callable[..., Reply], scene: Guarded, secret: TopicPartition
) -> None:
    with closing(connect(scene.kafka)) as cluster:
        RawProducer(cluster, f"{secret.topic}-7").init()
    code, answer = ask("explain", f"{secret.topic}-7")
    assert (code, answer["rows"][0]["transactional_id"]) == (0, f"{secret.topic}-7")


@pytest.mark.long
@pytest.mark.usefixtures("granted")
def test_a_watch_reports_what_is_hidden_until_it_is_shown_and_then_finds_what_hangs(
    scene: Guarded, secret: TopicPartition, tmp_path: Path
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
        scene.grants.remove(describe(secret), permission=AclPermissionType.DENY)
        watch.until(f"{secret}@1", timeout_s=60.0)


@pytest.mark.long
@pytest.mark.usefixtures("granted")
def test_a_topic_that_no_census_may_describe_is_unproven_in_log_heartbeat_and_metrics(
    scene: Guarded, ask: Callable[..., Reply], tmp_path: Path
) -> None:
    flags = ("--command-config", str(scene.config), "--http-port", "0", "--topics", LIVE_AT.topic)
    with (
        scene.grants.denied(read(HANGING_AT)),
        RunningWatch(
            scene.kafka.listener("SASL"), tmp_path / "checkpoint", *flags, "--events-heartbeat-ms", "1000"
        ) as watch,
    ):
        ready_line = watch.until("ready: ")
        assert "nothing is proven on " in ready_line
        assert str(HANGING_AT) in ready_line
        assert (Scrape.at(watch.metrics_url).value("unproven_partitions", log="data") or 0) >= 1
        code, answer = eventually(
            lambda: _not_reached(ask("status"), HANGING_AT), 30.0, "a heartbeat of a watch that is ready"
        )
        assert code == 1
        assert "proves nothing there" in not_checked(answer)[str(HANGING_AT)]


def _not_reached(answered: Reply, partition: TopicPartition) -> Reply | None:
    has_watcher = any(str(one["instance"]).endswith("checkpoint") for one in answered[1]["watchers"])
    return answered if has_watcher and str(partition) in not_checked(answered[1]) else None
