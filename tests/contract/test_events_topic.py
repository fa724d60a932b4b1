"""The events topic as others meet it: how it is made, what a record looks like, how it is read back."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource

from contract.sink_contract import delivers
from support.forwarder import Forwarder
from support.incidents import a_life, an_event
from support.topics import admin_of, create_topic, unique
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.embedded.kafka import EmbeddedKafka
from txnwatch.sinks.encoding import FORMATS, from_bytes
from txnwatch.sinks.event_log import read_events
from txnwatch.sinks.kafka import KafkaEventSink, ensure_topic
from txnwatch.state.errors import BrokerError, ConfigError, SinkError
from txnwatch.state.ids import is_topic_name
from txnwatch.state.incident import IncidentEvent
from txnwatch.streaming.cluster import Cluster

QUICK = {"reconnect.backoff.ms": "50", "reconnect.backoff.max.ms": "200"}


@pytest.fixture
def config(kafka: EmbeddedKafka) -> dict[str, str]:
    return {"bootstrap.servers": kafka.bootstrap_servers}


@pytest.fixture
def topic(config: dict[str, str]) -> str:
    name = unique("events")
    assert ensure_topic(config, name) is None
    return name


def deliver(config: dict[str, str], topic: str, events: list[IncidentEvent], encoding: str = "json") -> None:
    sink = KafkaEventSink(config, topic, FORMATS[encoding])
    sink.deliver(events)
    sink.close()


def raw_records(config: dict[str, str], topic: str, count: int) -> list[Message]:
    consumer = Consumer({**config, "group.id": "raw", "log_level": 2})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return consumer.consume(count, timeout=10.0)
    finally:
        consumer.close()


def put(config: dict[str, str], topic: str, *records: tuple[str | None, bytes | None]) -> None:
    producer = Producer({**config, "log_level": 2})
    for key, value in records:
        producer.produce(topic, key=key, value=value)
    assert producer.flush(10.0) == 0


def test_the_topic_is_made_compacted_with_one_partition(cluster: Cluster, topic: str) -> None:
    admin = admin_of(cluster)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(10.0)
    assert found["cleanup.policy"].value == "compact"
    described = admin.list_topics(topic, timeout=10.0).topics[topic]
    assert [(number, len(one.replicas)) for number, one in described.partitions.items()] == [(0, 1)]


@pytest.mark.parametrize("name", ["bad topic!", "x" * 250, ".."])
def test_a_name_that_no_topic_can_have_is_not_tried_again(config: dict[str, str], name: str) -> None:
    assert not is_topic_name(name)
    with pytest.raises(ConfigError, match=r"events topic .*invalid"):
        ensure_topic(config, name)


def test_the_longest_name_is_a_topics(config: dict[str, str]) -> None:
    name = unique("events._-Z9") + "x" * 249
    assert is_topic_name(name[:249])
    assert ensure_topic(config, name[:249]) is None


def test_a_topic_that_is_there_and_compacted_is_left_alone(config: dict[str, str], topic: str) -> None:
    deliver(config, topic, [an_event()])
    assert ensure_topic(config, topic) is None
    assert list(read_events(config, topic)) == [an_event()]


def test_a_topic_that_is_not_compacted_is_warned_of(config: dict[str, str], cluster: Cluster) -> None:
    name = unique("deleting")
    create_topic(cluster, name)
    warning = ensure_topic(config, name)
    assert warning is not None
    assert f"events topic {name!r} has cleanup.policy=delete: expected compact" in warning


def test_a_topic_compacted_and_deleted_is_not_warned_of(config: dict[str, str], cluster: Cluster) -> None:
    name = unique("both")
    create_topic(cluster, name, config={"cleanup.policy": "compact,delete"})
    assert ensure_topic(config, name) is None


def test_a_topic_can_be_read_as_soon_as_it_was_made(config: dict[str, str]) -> None:
    for _ in range(5):
        name = unique("new")
        ensure_topic(config, name)
        assert list(read_events(config, name)) == []


@pytest.mark.parametrize(
    ("encoding", "content_type"), [("json", "application/json"), ("avro", "application/avro")], ids=["json", "avro"]
)
def test_a_record_is_a_cloud_event_keyed_by_its_incident(
    config: dict[str, str], topic: str, encoding: str, content_type: str
) -> None:
    events = a_life("a-hash", cluster_id="kc1")
    deliver(config, topic, events, encoding)
    records = raw_records(config, topic, 3)
    assert [record.key() for record in records] == [b"a-hash"] * 3
    assert records[0].headers() == [
        ("ce_specversion", b"1.0"),
        ("ce_id", b"a-hash-1"),
        ("ce_source", b"/kafka/kc1"),
        ("ce_type", b"io.txnwatch.hanging.opened.v1"),
        ("ce_subject", b"orders/3/99"),
        ("ce_time", b"2023-11-14T22:13:21.234Z"),
        ("content-type", content_type.encode()),
    ]
    assert [dict(record.headers() or [])["ce_id"] for record in records] == [b"a-hash-1", b"a-hash-2", b"a-hash-3"]
    assert dict(records[2].headers() or [])["ce_type"] == b"io.txnwatch.hanging.resolved.v1"
    assert [from_bytes(record.value() or b"") for record in records] == events


def test_json_and_avro_are_read_side_by_side(config: dict[str, str], topic: str) -> None:
    first, second = a_life("json"), a_life("avro")
    deliver(config, topic, first, "json")
    deliver(config, topic, second, "avro")
    assert list(read_events(config, topic)) == [*first, *second]


def test_a_bad_record_is_handed_over_as_an_error_with_its_place_and_the_rest_is_read(
    config: dict[str, str], topic: str
) -> None:
    deliver(config, topic, [an_event("before")])
    put(config, topic, ("k", b"{not json"), ("k", b'{"incident_id":"half"}'), ("k", b"\xc3\x01truncated"), ("k", b"[]"))
    deliver(config, topic, [an_event("after")])
    found = list(read_events(config, topic))
    assert [found[0], found[-1]] == [an_event("before"), an_event("after")]
    bad = found[1:-1]
    assert all(isinstance(one, SinkError) for one in bad)
    assert [str(one).partition(": ")[0] for one in bad] == [f"{topic}-0@{offset}" for offset in (1, 2, 3, 4)]


def test_a_record_that_is_passed_over_is_no_clean_end(
    kafka: EmbeddedKafka, config: dict[str, str], topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["events", "--bootstrap-server", kafka.bootstrap_servers, "--events-topic", topic]
    deliver(config, topic, [an_event("whole")])
    assert main(command) == 0
    producer = Producer(config)
    producer.produce(topic, key="bad", value=b"no event")
    producer.flush(10.0)
    assert main(command) == 1
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 2
    assert "passing over a record" in told.err


def test_a_deleted_incident_is_passed_over(config: dict[str, str], topic: str) -> None:
    deliver(config, topic, [an_event("kept")])
    put(config, topic, ("kept", None))
    assert list(read_events(config, topic)) == [an_event("kept")]


def test_following_goes_on_with_what_comes_later(config: dict[str, str], topic: str) -> None:
    events = a_life("incident")
    deliver(config, topic, events[:1])
    following = read_events(config, topic, follow=True)
    assert isinstance(following, Iterator)
    assert next(following) == events[0]
    deliver(config, topic, events[1:])
    assert [next(following), next(following)] == events[1:]
    following.close()  # type: ignore[attr-defined]


def test_a_topic_that_is_not_there_is_a_broker_error_that_says_what_to_do(config: dict[str, str]) -> None:
    name = unique("no-such-topic")
    with pytest.raises(BrokerError, match=rf"events topic '{name}': .*has `txnwatch run` been started here\?"):
        list(read_events(config, name))


def test_an_event_that_waited_long_is_never_put_behind_a_later_one_of_its_incident(
    kafka: EmbeddedKafka, config: dict[str, str], topic: str
) -> None:
    # Compaction keeps the record with the highest offset, whatever its sequence: an earlier event must not follow.
    events = a_life("incident")
    host, port = kafka.bootstrap_servers.split(":")
    with Forwarder((host, int(port))) as forwarder:
        impatient = {**QUICK, "bootstrap.servers": forwarder.address, "message.timeout.ms": "3000"}
        sink = KafkaEventSink(impatient, topic, timeout_s=0.2)
        started = time.monotonic()
        while time.monotonic() < started + 2.5:
            refusal(sink, events[:1])
        while time.monotonic() < started + 4.5:  # librdkafka looks once a second for what has waited too long
            if "timed out" in refusal(sink, events):
                break
        forwarder.start()
        eventually(lambda: delivers(sink, events), 15.0, "the sink to take what it refused")
        sink.close()
    assert list(read_events(config, topic)) == events


def refusal(sink: KafkaEventSink, events: list[IncidentEvent]) -> str:
    with pytest.raises(SinkError) as refused:
        sink.deliver(events)
    return str(refused.value)
