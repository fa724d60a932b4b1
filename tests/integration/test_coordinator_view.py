"""The coordinator views `api` and `none`, with the ACLs of a real broker that leave nothing better."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from support.acl_recipes import (
    CLUSTER_CONFIGS,
    DESCRIBE_IDS,
    DESCRIBE_LOG,
    HOLD_LEASE,
    ON_EVENTS_TOPIC,
    READ_DATA,
    Grants,
    Right,
)
from support.fault_world import begins
from support.metrics import Scrape
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.topics import commit_an_offset, create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch, events_about, events_of
from txnwatch.cli.main import main
from txnwatch.state.model.values import CoordinatorAccess, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.job.state_directory import state_name
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import await_end, set_verification

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOG_USER, API_USER, NONE_USER = "reads-the-log", "asks", "sees-only-topics"
USERS = (LOG_USER, API_USER, NONE_USER)
LONGEST_MS = 15_000
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",  # who comes by the plain listener
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": " ".join([MODULE, *(f'user_{user}="secret"' for user in USERS)]) + ";",
    "transaction.max.timeout.ms": str(LONGEST_MS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
RIGHTS = {
    LOG_USER: (Right(AclOperation.READ, ResourceType.TOPIC, "*"), DESCRIBE_IDS),
    API_USER: (READ_DATA, DESCRIBE_LOG, DESCRIBE_IDS),
    NONE_USER: (READ_DATA, CLUSTER_CONFIGS),
}


@dataclass(frozen=True)
class Scene:
    """A broker with a user for each view."""

    kafka: EmbeddedKafka
    directory: Path

    @property
    def bootstrap(self) -> str:
        return self.kafka.listener("SASL")

    def config(self, user: str) -> Path:
        file = self.directory / f"{user}.properties"
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={MODULE} username="{user}" password="secret";\n'
        )
        return file

    def watch(self, user: str, checkpoint: Path, *flags: str) -> RunningWatch:
        return RunningWatch(
            *(self.bootstrap, checkpoint, "--command-config", str(self.config(user)), "--http-port", "0"),
            *("--events-topic", topic_of(user), "--events-heartbeat-ms", "1000", *flags),
        )

    def status(self, user: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
        flags = ("--bootstrap-server", self.kafka.bootstrap_servers, "--events-topic", topic_of(user))
        main(["status", *flags, "--format", "json"])
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer


def topic_of(user: str) -> str:
    return f"events-{user}"


@pytest.fixture(scope="module")
def scene(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("views")
    listeners = {"SASL": "SASL_PLAINTEXT"}
    kafka = clusters.start("views", lambda: EmbeddedKafka(directory, listeners=listeners, properties=PROPERTIES))
    set_verification(kafka.bootstrap_servers, [1], enabled=False)
    with closing(connect(kafka)) as cluster:
        RawProducer(cluster, "the-first-id", LONGEST_MS).init()
    scene = Scene(kafka, directory)
    for user, rights in RIGHTS.items():
        on_events = [Right(right.operation, right.resource, topic_of(user)) for right in ON_EVENTS_TOPIC]
        Grants(kafka.bootstrap_servers, user).set([*rights, *on_events, HOLD_LEASE])
    with closing(connect(kafka)) as cluster:
        (partition,) = create_topic(cluster, unique("orders"))
    commit_an_offset(kafka, partition)
    yield scene
    clusters.end("views")


@pytest.fixture
def cluster(scene: Scene) -> Iterator[Cluster]:
    with closing(connect(scene.kafka)) as cluster:
        yield cluster


@contextmanager
def healthy_producer(scene: Scene, partition: TopicPartition, name: str) -> Iterator[list[float]]:
    """Transactions without a pause, each open for longer than the coordinators are not asked about it.

    The list has the times at which they ended.
    """
    stop, ended = threading.Event(), list[float]()

    def produce() -> None:
        with closing(connect(scene.kafka)) as cluster:
            producer = RawProducer(cluster, name, LONGEST_MS).init()
            while not stop.is_set():
                eventually(lambda: begins(producer, partition), 30.0, "the markers of the transaction before")
                producer.produce(partition)
                stop.wait(6.0)
                producer.produce(partition)
                producer.end(commit=True)
                ended.append(time.monotonic())

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield ended
    finally:
        stop.set()
        thread.join()


def stray(cluster: Cluster, name: str, partition: TopicPartition) -> RawProducer:
    producer = RawProducer(cluster, name, LONGEST_MS).init()
    producer.produce(partition)
    return producer


def opened(scene: Scene, user: str, partition: TopicPartition, timeout_s: float = 60.0) -> Any:
    """The event that opens the incident about a partition."""
    found = eventually(
        lambda: events_about(scene.kafka.bootstrap_servers, partition, topic_of(user)), timeout_s, f"{partition}"
    )
    return found[0]


@pytest.mark.long
def test_the_coordinators_are_asked_where_their_log_may_not_be_read(
    scene: Scene, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    healthy, not_started, completed, other = (create_topic(cluster, unique("orders"))[0] for _ in range(4))
    stray(cluster, "before-the-start", not_started)
    with scene.watch(API_USER, tmp_path / "checkpoint") as watch, healthy_producer(scene, healthy, "steady") as ended:
        line = watch.until("coordinator view: api")
        assert "__transaction_state" in line
        assert "stuck_prepare, late and long_running are not detected" in watch.until("ready: ")
        at_ready = len(ended)
        late_write(cluster, "too-late", completed)
        elsewhere = RawProducer(cluster, "elsewhere", LONGEST_MS).init()
        elsewhere.produce(other)
        found = [opened(scene, API_USER, partition) for partition in (not_started, completed, other)]
        assert [(one.verdict, one.reason, one.transactional_id) for one in found] == [
            ("hanging", "not_started", "before-the-start"),
            ("hanging", "already_completed", "too-late"),
            ("hanging", "not_started", "elsewhere"),
        ]
        assert {one.evidence.coordinator_view for one in found} == {"api"}
        assert {one.expected_outcome for one in found} == {"unknown"}
        eventually(lambda: len(ended) >= at_ready + 2, 60.0, "a healthy transaction, from its beginning to its end")
        assert events_about(scene.kafka.bootstrap_servers, healthy, topic_of(API_USER)) == []
        shown = Scrape.at(watch.metrics_url)
        assert [shown.value("coordinator_view", view=view) for view in ("log", "api", "none")] == [0, 1, 0]
        (watcher,) = scene.status(API_USER, capsys)["watchers"]
        assert watcher["coordinator_view"] == "api"
        assert watcher["undetected"] == ["stuck_prepare", "late", "long_running"]


@pytest.mark.long
def test_a_write_outside_of_its_live_transaction_is_found_while_the_transaction_is_open(
    scene: Scene, cluster: Cluster, tmp_path: Path
) -> None:
    home, foreign = (create_topic(cluster, unique("orders"))[0] for _ in range(2))
    with scene.watch(API_USER, tmp_path / "checkpoint", "--census-interval-ms", "1000") as watch:
        watch.until_ready()
        live = RawProducer(cluster, "lives-elsewhere", LONGEST_MS).init()
        live.add(home)
        live.produce(home)
        live.produce(foreign)
        found = opened(scene, API_USER, foreign, timeout_s=LONGEST_MS / 1000)
        live.end(commit=True)  # fails if its coordinator has ended it: then the reason would be another
    assert (found.verdict, found.reason, found.transactional_id) == ("hanging", "not_a_participant", "lives-elsewhere")
    assert events_about(scene.kafka.bootstrap_servers, home, topic_of(API_USER)) == []


def late_write(cluster: Cluster, name: str, partition: TopicPartition) -> None:
    producer = RawProducer(cluster, name, LONGEST_MS).init()
    producer.add(partition)
    producer.produce(partition, [b"in time"])
    producer.end(commit=False)
    await_end(cluster, producer, partition)
    producer.produce(partition, [b"too late"])


@pytest.mark.long
def test_without_log_and_coordinators_only_data_that_is_open_for_too_long_is_late(
    scene: Scene, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    healthy, hanging = (create_topic(cluster, unique("orders"))[0] for _ in range(2))
    with (
        scene.watch(NONE_USER, tmp_path / "checkpoint", "--late-buffer-ms", "1000") as watch,
        healthy_producer(scene, healthy, "steady-2"),
    ):
        line = watch.until("coordinator view: none")
        assert "__transaction_state" in line
        assert "hanging, stuck_prepare, long_running and stray_write are not detected" in watch.until("ready: ")
        owner = stray(cluster, "nameless", hanging)
        event = opened(scene, NONE_USER, hanging)
        assert (event.verdict, event.producer_id, event.transactional_id) == ("late", owner.producer_id, None)
        assert event.age_ms > LONGEST_MS
        assert event.evidence.coordinator_view == "none"
        everything = events_of(scene.kafka.bootstrap_servers, topic_of(NONE_USER))
        assert "hanging" not in {one.verdict for one in everything}
        assert healthy.topic not in {one.topic for one in everything}
        answer = scene.status(NONE_USER, capsys)
        assert answer["watchers"][0]["coordinator_view"] == "none"
        assert answer["watchers"][0]["undetected"] == ["hanging", "stuck_prepare", "long_running", "stray_write"]
        assert any("proves no hang" in missing["why"] for missing in answer["not_checked"])


@pytest.mark.long
def test_each_view_has_its_own_state(scene: Scene, tmp_path: Path) -> None:
    with scene.watch(LOG_USER, tmp_path / "checkpoint") as watch:
        assert watch.until("coordinator view: log: ").endswith("every verdict can be detected")
        assert watch.until("ready: ").endswith("every transaction is being watched")
    with scene.watch(LOG_USER, tmp_path / "checkpoint", "--coordinator-view", "api") as watch:
        line = watch.until("the state is rebuilt from the logs")
        assert f"the checkpoint has no {state_name(CoordinatorAccess.API)}, the state of this version" in line
        assert line.endswith(f"reading continues where {state_name(CoordinatorAccess.LOG)} ends")
        watch.until("ready: ")


@pytest.mark.parametrize(
    ("user", "view", "right"),
    [
        (API_USER, "log", "__transaction_state"),
        (NONE_USER, "api", "__transaction_state: TOPIC_AUTHORIZATION_FAILED: the right DESCRIBE"),
    ],
)
def test_a_view_that_the_rights_do_not_allow_ends_the_run_with_one_line(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str], user: str, view: str, right: str
) -> None:
    flags = ("--bootstrap-server", scene.bootstrap, "--command-config", str(scene.config(user)))
    assert main(["run", *flags, "--checkpoint", str(tmp_path / "c"), "--coordinator-view", view]) == 1
    assert right in capsys.readouterr().err
