"""The events topic as others meet it: how it is made, what a record looks like, how it is read back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource

from contract.sink_contract import delivers
from support.forwarder import Forwarder
from support.heartbeats import a_heartbeat
from support.incidents import a_life, an_event, id_of
from support.topics import admin_of, create_topic, unique
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.sinks.delivery.encoding import FORMATS, from_bytes, read_keys, to_json
from txnwatch.sinks.delivery.event_log import read_events
from txnwatch.sinks.delivery.events_topic import KafkaEventsTopic, ensure_topic
from txnwatch.state.model.errors import BadEventError, BrokerError, ConfigError, SinkError, SkipReason
from txnwatch.state.model.incident import IncidentEvent, Overwritten
from txnwatch.state.model.values import is_topic_name
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

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
    sink = KafkaEventsTopic(config, topic, FORMATS[encoding])
    sink.publish(events)
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


def test_a_compacted_topic_that_exists_is_not_changed(config: dict[str, str], topic: str) -> None:
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


def test_a_topic_with_several_partitions_is_warned_of(config: dict[str, str], cluster: Cluster) -> None:
    name = unique("wide")
    create_topic(cluster, name, partitions=3, config={"cleanup.policy": "compact"})
    assert (ensure_topic(config, name) or "").startswith(f"events topic {name!r} has 3 partitions: expected 1; ")


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
    assert [record.key() for record in records] == [id_of("a-hash").encode()] * 3
    assert records[0].headers() == [
        ("ce_specversion", b"1.0"),
        ("ce_id", f"{id_of('a-hash')}-1".encode()),
        ("ce_source", b"/kafka/kc1"),
        ("ce_type", b"io.txnwatch.hanging.opened.v1"),
        ("ce_subject", b"orders/3/99"),
        ("ce_time", b"2023-11-14T22:13:21.234Z"),
        ("content-type", content_type.encode()),
    ]
    assert [dict(record.headers() or [])["ce_id"] for record in records] == [
        event.event_id.encode() for event in events
    ]
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
    output = capsys.readouterr()
    assert len(output.out.splitlines()) == 2
    assert "skipped a record" in output.err


def test_a_tombstone_is_recognized_and_ends_nothing(config: dict[str, str], topic: str) -> None:
    deliver(config, topic, [an_event("kept")])
    put(config, topic, (id_of("kept"), None), ("another's", None))
    assert list(read_events(config, topic)) == [an_event("kept"), Overwritten(id_of("kept"))]


def test_following_continues_with_later_events(config: dict[str, str], topic: str) -> None:
    events = a_life("incident")
    deliver(config, topic, events[:1])
    following = read_events(config, topic, follow=True)
    assert isinstance(following, Iterator)
    assert next(following) == events[0]
    deliver(config, topic, events[1:])
    assert [next(following), next(following)] == events[1:]
    following.close()  # type: ignore[attr-defined]


def test_a_missing_topic_is_a_broker_error_that_has_what_to_do(config: dict[str, str]) -> None:
    name = unique("no-such-topic")
    hint = r"has `txnwatch run` been started on this cluster\?"
    with pytest.raises(BrokerError, match=rf"events topic '{name}': .*{hint}"):
        list(read_events(config, name))


def test_an_event_with_an_unknown_delivery_is_never_produced_after_a_later_one_of_its_incident(
    kafka: EmbeddedKafka, config: dict[str, str], topic: str
) -> None:
    # Compaction keeps the record with the highest offset, whatever its sequence: an earlier event must not follow.
    events = a_life("incident")
    host, port = kafka.bootstrap_servers.split(":")
    with Forwarder((host, int(port))) as forwarder:
        impatient = {**QUICK, "bootstrap.servers": forwarder.address, "message.timeout.ms": "3000"}
        sink = KafkaEventsTopic(impatient, topic, timeout_s=0.2)
        started = time.monotonic()
        while time.monotonic() < started + 2.5:
            refusal(sink, events[:1])
        while time.monotonic() < started + 4.5:  # librdkafka looks once a second for what has waited too long
            if "timed out" in refusal(sink, events):
                break
        forwarder.start()
        eventually(lambda: delivers(sink.publish, events), 15.0, "the sink to take what it refused")
        sink.close()
    assert list(read_events(config, topic)) == events


def refusal(sink: KafkaEventsTopic, events: list[IncidentEvent]) -> str:
    with pytest.raises(SinkError) as refused:
        sink.publish(events)
    return str(refused.value)


def a_key_file(directory: Path, *keys: str) -> Path:
    path = directory / f"keys-{len(keys)}-{keys[0][:1]}"
    path.write_text("\n".join(keys))
    path.chmod(0o600)
    return path


def test_with_a_key_only_what_was_signed_with_it_is_an_event(
    config: dict[str, str], topic: str, tmp_path: Path
) -> None:
    ours = read_keys(a_key_file(tmp_path, "a" * 64))
    theirs = read_keys(a_key_file(tmp_path, "b" * 64))
    for name, keys in (("ours", ours), ("unsigned", None), ("theirs", theirs)):
        with closing(KafkaEventsTopic(config, topic, keys=keys)) as sink:
            sink.publish([an_event(name)])
    signed = raw_records(config, topic, 3)[0]
    producer = Producer(config)  # the signed record again, under another key
    headers = [(name, value) for name, value in signed.headers() or []]
    producer.produce(topic, key=id_of("copied"), value=signed.value(), headers=headers)
    producer.flush(10.0)
    found = list(read_events(config, topic, keys=ours))
    assert found[0] == an_event("ours")
    assert [(one.why, one.key) for one in found[1:] if isinstance(one, BadEventError)] == [
        (SkipReason.UNSIGNED, id_of("unsigned")),
        (SkipReason.BAD_SIGNATURE, id_of("theirs")),
        (SkipReason.BAD_SIGNATURE, id_of("copied")),
    ]
    assert len([one for one in read_events(config, topic) if isinstance(one, IncidentEvent)]) == 3, "without a key"


def test_a_signed_record_of_another_topic_is_none_here(config: dict[str, str], topic: str, tmp_path: Path) -> None:
    keys = read_keys(a_key_file(tmp_path, "a" * 64))
    with closing(KafkaEventsTopic(config, topic, keys=keys)) as sink:
        sink.publish([an_event()])
    (signed,) = raw_records(config, topic, 1)
    other = unique("events")
    ensure_topic(config, other)
    producer = Producer(config)
    producer.produce(other, key=signed.key(), value=signed.value(), headers=list(signed.headers() or []))
    producer.flush(10.0)
    (found,) = read_events(config, other, keys=keys)
    assert isinstance(found, BadEventError)
    assert found.why is SkipReason.BAD_SIGNATURE


def test_an_event_under_another_key_is_none(config: dict[str, str], topic: str) -> None:
    put(config, topic, (id_of("another"), to_json(an_event("one"))), ("no id", to_json(an_event("one"))))
    found = list(read_events(config, topic))
    assert [one.why for one in found if isinstance(one, BadEventError)] == [SkipReason.WRONG_KEY] * 2


def test_a_heartbeat_has_a_key_of_its_own(config: dict[str, str], topic: str) -> None:
    beat = a_heartbeat(instance="host:/\u00fc")
    with closing(KafkaEventsTopic(config, topic)) as sink:
        sink.beat(beat)
        sink.publish([an_event()])
    assert list(read_events(config, topic)) == [beat, an_event()]
    record = raw_records(config, topic, 1)[0]
    headers = dict(record.headers() or [])
    assert headers["ce_type"] == b"io.txnwatch.heartbeat.v1"
    assert (record.key() or b"").startswith(b"txnwatch.heartbeat:")


def test_removed_keys_get_tombstones(config: dict[str, str], topic: str) -> None:
    with closing(KafkaEventsTopic(config, topic)) as sink:
        sink.publish(a_life("over"))
        sink.bury([id_of("over"), a_heartbeat().key])
    records = raw_records(config, topic, 5)
    assert [(record.key(), record.value()) for record in records[3:]] == [
        (id_of("over").encode(), None),
        (a_heartbeat().key.encode(), None),
    ]
    assert list(read_events(config, topic)) == [*a_life("over"), Overwritten(id_of("over"))]


def test_a_tombstone_that_cannot_be_written_now_is_reported(kafka: EmbeddedKafka, topic: str) -> None:
    host, port = kafka.bootstrap_servers.split(":")
    with Forwarder((host, int(port))) as forwarder:
        sink = KafkaEventsTopic({**QUICK, "bootstrap.servers": forwarder.address}, topic)
        with pytest.raises(SinkError, match="1 of 1 tombstones not acknowledged"):
            sink.bury([id_of("over")])


@pytest.mark.parametrize("size", [900_000])
def test_the_largest_record_that_a_topic_takes_is_no_danger(config: dict[str, str], topic: str, size: int) -> None:
    put(config, topic, (id_of("x"), b"[" * size), (id_of("x"), b'{"a":' * (size // 5)))
    assert [one.why for one in read_events(config, topic) if isinstance(one, BadEventError)] == [
        SkipReason.UNDECODABLE
    ] * 2
