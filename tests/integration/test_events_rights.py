"""The rights on the events topic on a real broker: what is reported without one, and after one is taken away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from contract.sink_contract import delivers
from support.acl_recipes import CREATE_EVENTS, ON_EVENTS_TOPIC, READ_EVENTS, WRITE_EVENTS, Grants, Right
from support.guarded_broker import IN_FORCE_S, MODULE, PROPERTIES, USER
from support.heartbeats import a_heartbeat
from support.incidents import a_life
from support.servers import Clusters, connect
from support.topics import create_topic
from support.waiting import eventually
from txnwatch.config import EVENTS_TOPIC
from txnwatch.sinks.delivery.event_log import EventLog, read_events
from txnwatch.sinks.delivery.events_topic import KafkaEventsTopic, ensure_topic
from txnwatch.state.model.errors import AuthorizationError, SinkError
from txnwatch.state.text import Grantee
from txnwatch.streaming.checks.preflight import check_events_rights
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.notations import parse_bootstrap
from txnwatch.streaming.client.security import security_of
from txnwatch_demo.embedded.real_servers import EmbeddedKafka


@dataclass(frozen=True)
class Events:
    """A broker with ACLs, and the user whose rights the test sets."""

    kafka: EmbeddedKafka
    cluster: Cluster
    grants: Grants

    @property
    def config(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.kafka.listener("SASL"),
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": "secret",
        }

    def problem(self, name: str = EVENTS_TOPIC) -> str:
        """What the check reports; empty if no right is missing."""
        try:
            check_events_rights(self.cluster, name, Grantee("broker:9092", f"User:{USER}"))
        except AuthorizationError as exc:
            return str(exc)
        return ""

    def set(self, *rights: Right) -> None:
        self.grants.set(rights)


def on(name: str, rights: tuple[Right, ...]) -> tuple[Right, ...]:
    """The same rights on another topic."""
    return tuple(Right(right.operation, right.resource, name) for right in rights)


@pytest.fixture(scope="module")
def events(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Events]:
    directory = tmp_path_factory.mktemp("events-rights")
    listeners = {"SASL": "SASL_PLAINTEXT"}
    kafka = clusters.start("events", lambda: EmbeddedKafka(directory, listeners=listeners, properties=PROPERTIES))
    login = f'{MODULE} username="{USER}" password="secret";'
    security = security_of(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login}
    )
    with closing(Cluster(parse_bootstrap(kafka.listener("SASL"), "test"), security)) as cluster:
        yield Events(kafka, cluster, Grants(kafka.bootstrap_servers, USER))
    clusters.end("events")


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("granted", "missing", "operations"),
    [
        ((READ_EVENTS,), "the right WRITE for User:txnwatch", "--operation Write"),
        ((WRITE_EVENTS,), "the right READ for User:txnwatch", "--operation Read"),
        ((CREATE_EVENTS,), "the rights WRITE and READ for User:txnwatch", "--operation Write --operation Read"),
    ],
    ids=["write", "read", "both"],
)
def test_a_missing_right_on_a_topic_that_exists_is_one_line_with_the_command(
    events: Events, granted: tuple[Right, ...], missing: str, operations: str
) -> None:
    with closing(connect(events.kafka)) as cluster:
        if EVENTS_TOPIC not in cluster.refresh().topics:
            create_topic(cluster, EVENTS_TOPIC)
    events.set(*granted)
    found = eventually(lambda: missing in (said := events.problem()) and said, IN_FORCE_S, "the right to be missing")
    line = f"kafka-acls.sh --bootstrap-server broker:9092 --add --allow-principal User:txnwatch {operations}"
    assert f"{line} --topic {EVENTS_TOPIC}" in found
    assert "docs/rights.md" in found
    assert "\n" not in found


def test_write_that_is_taken_away_keeps_the_events_and_the_producer_works_again(events: Events) -> None:
    name, lines, life = f"{EVENTS_TOPIC}.kept", list[str](), a_life("kept")
    whole = on(name, ON_EVENTS_TOPIC)
    events.set(*whole)
    eventually(lambda: events.problem(name) == "", IN_FORCE_S, "no right to be missing")
    ensure_topic(events.config, name)
    with closing(KafkaEventsTopic(events.config, name, timeout_s=2.0, report=lines.append)) as topic:
        eventually(lambda: delivers(topic.publish, life[:1]), IN_FORCE_S, "the first event to be delivered")
        events.set(*(right for right in whole if right.operation != WRITE_EVENTS.operation))
        eventually(lambda: "WRITE" in refusal(topic, life[1:]), IN_FORCE_S, "the missing right to be named")
        for _ in range(3):  # the first refusal can be followed by the fatal error of the idempotent producer
            assert "the right WRITE on the topic is missing (docs/rights.md)" in refusal(topic, life[1:])
        eventually(lambda: beats(topic) and lines, IN_FORCE_S, "refused heartbeats to be reported")
        events.set(*whole)
        eventually(lambda: delivers(topic.publish, life[1:]), IN_FORCE_S, "the kept events to be delivered")
        eventually(lambda: beats(topic) and len(lines) > 1, IN_FORCE_S, "heartbeats to be taken again")
    assert [line.partition(": ")[2].partition(":")[0] for line in lines] == [
        "heartbeats are refused",
        "heartbeats are taken again",
    ]
    plain = {"bootstrap.servers": events.kafka.bootstrap_servers}
    assert [found for found in read_events(plain, name) if not hasattr(found, "barrier")] == life


def test_a_producer_that_never_had_the_right_works_once_it_has_it(events: Events) -> None:
    """A broker gives a producer id only to a user with WRITE on some topic; the client calls a refusal fatal."""
    name, life = f"{EVENTS_TOPIC}.late", a_life("late")
    with closing(connect(events.kafka)) as cluster:
        create_topic(cluster, name)
    events.set()
    with closing(KafkaEventsTopic(events.config, name, timeout_s=2.0)) as topic:
        eventually(lambda: "WRITE" in refusal(topic, life), IN_FORCE_S, "the missing right to be named")
        events.set(*on(name, ON_EVENTS_TOPIC))
        eventually(lambda: delivers(topic.publish, life), IN_FORCE_S, "the events to be delivered")
    assert list(read_events({"bootstrap.servers": events.kafka.bootstrap_servers}, name)) == life


def test_a_producer_whose_user_may_only_read_the_topic_names_the_right(events: Events) -> None:
    name, life = f"{EVENTS_TOPIC}.shown", a_life("shown")
    with closing(connect(events.kafka)) as cluster:
        create_topic(cluster, name)
    events.set(*on(name, (READ_EVENTS,)))
    with closing(KafkaEventsTopic(events.config, name)) as topic:
        eventually(lambda: "WRITE" in refusal(topic, life), IN_FORCE_S, "the missing right to be named")
        for _ in range(3):
            assert "the right WRITE on the topic is missing (docs/rights.md)" in refusal(topic, life)


def test_read_that_is_taken_away_is_reported_once_and_what_follows_is_read_later(events: Events) -> None:
    name, lines, life = f"{EVENTS_TOPIC}.read", list[str](), a_life("read")
    whole = on(name, ON_EVENTS_TOPIC)
    events.set(*whole)
    eventually(lambda: events.problem(name) == "", IN_FORCE_S, "no right to be missing")
    ensure_topic(events.config, name)
    plain = {"bootstrap.servers": events.kafka.bootstrap_servers}
    with closing(EventLog(events.config, name, report=lines.append)) as log:
        assert list(log.history()) == []
        events.set(*(right for right in whole if right.operation != READ_EVENTS.operation))
        eventually(lambda: list(log.new_records()) or lines, IN_FORCE_S, "the missing right to be reported")
        assert log.has_read(), "an instance that may not read takes over without it"
        with closing(KafkaEventsTopic(plain, name)) as topic:
            topic.publish(life)
        assert list(log.new_records()) == []
        events.set(*whole)
        found: list[object] = []
        eventually(lambda: found.extend(log.new_records()) or len(found) == len(life), IN_FORCE_S, "the rest")
    assert found == life
    assert ["READ is missing" in line for line in lines] == [True, False]
    assert "it can be read again" in lines[1]


def refusal(topic: KafkaEventsTopic, life: list[Any]) -> str:
    try:
        topic.publish(life)
    except SinkError as exc:
        return str(exc)
    return ""


def beats(topic: KafkaEventsTopic) -> bool:
    """Sends a heartbeat; True, so that it can be repeated while something is awaited."""
    try:
        topic.beat(a_heartbeat())
    except SinkError:
        return True
    return True
