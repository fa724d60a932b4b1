"""Confluent framing against a real registry: what confluent-kafka writes others read, and an absence loses nothing."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from shutil import copy
from threading import Thread
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import ConfigCompatibilityLevel, Schema, SchemaRegistryClient, ServerConfig
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from support.certificates import Authority
from support.forwarder import Forwarder
from support.incidents import a_life, an_event
from support.log_lines import LogLines
from support.registry import SchemaRegistry
from support.tls_front import TlsFront
from support.topics import unique
from txnwatch.sinks.delivery.encoding import FORMATS, RegistryCodec, schema_text, to_json
from txnwatch.sinks.delivery.event_log import EventLog, read_events
from txnwatch.sinks.delivery.events_topic import KafkaEventsTopic, ensure_topic
from txnwatch.sinks.delivery.outbox import TopicOutbox
from txnwatch.state.model.errors import BadEventError, BrokerError, ConfigError, RegistryUnavailableError, SinkError
from txnwatch_demo.embedded.real_servers import EmbeddedKafka


@pytest.fixture
def config(kafka: EmbeddedKafka) -> dict[str, str]:
    return {"bootstrap.servers": kafka.bootstrap_servers}


@pytest.fixture
def topic(config: dict[str, str]) -> str:
    name = unique("events")
    ensure_topic(config, name)
    return name


_OPEN: list[RegistryCodec] = []


def codec_of(registry: SchemaRegistry, topic: str) -> RegistryCodec:
    return a_codec({"url": registry.url, "timeout": 30.0}, topic)  # a busy machine


def a_codec(client_config: dict[str, Any], topic: str) -> RegistryCodec:
    _OPEN.append(RegistryCodec(client_config, topic))
    return _OPEN[-1]


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    yield
    while _OPEN:
        _OPEN.pop().close()


def test_a_consumer_with_confluents_deserializer_reads_every_field(
    config: dict[str, str], topic: str, registry: SchemaRegistry
) -> None:
    events = a_life("incident")
    KafkaEventsTopic(config, topic, codec_of(registry, topic).encoding).publish(events)
    consumer = Consumer({**config, "group.id": unique("reader")})
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = consumer.consume(3, timeout=10.0)
    consumer.close()
    context = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient({"url": registry.url}) as client:
        read = AvroDeserializer(client)
        assert [read(record.value(), context) for record in records] == [json.loads(to_json(event)) for event in events]
    magic, schema_id = struct.unpack(">bI", (records[0].value() or b"")[:5])
    assert magic == 0
    published = json.loads(json.loads(registry.get(f"/schemas/ids/{schema_id}"))["schema"])
    assert published == json.loads(schema_text())
    assert dict(records[0].headers() or [])["content-type"] == b"application/vnd.confluent.avro"
    assert f"{topic}-value" in json.loads(registry.get("/subjects"))


def test_all_three_encodings_are_read_side_by_side(
    config: dict[str, str], topic: str, registry: SchemaRegistry
) -> None:
    codec = codec_of(registry, topic)
    lives = []
    for encoding in (codec.encoding, FORMATS["json"], FORMATS["avro"]):
        lives.extend(a_life(unique("incident")))
        KafkaEventsTopic(config, topic, encoding).publish(lives[-3:])
    assert list(read_events(config, topic, decode=codec_of(registry, topic).decode)) == lives


def test_without_a_registry_its_records_are_errors_that_name_what_is_missing(
    config: dict[str, str], topic: str, registry: SchemaRegistry
) -> None:
    KafkaEventsTopic(config, topic, codec_of(registry, topic).encoding).publish([an_event()])
    (found,) = read_events(config, topic)
    assert isinstance(found, SinkError)
    assert "set --schema-registry-url" in str(found)


@pytest.mark.parametrize("value", [b"\x00", b"\x00\x00\x00\x00", b"\x00\xff\xff\xff\x01rest"])
def test_a_frame_that_cannot_be_read_is_a_bad_record(registry: SchemaRegistry, value: bytes) -> None:
    with pytest.raises(SinkError) as refused:
        codec_of(registry, "events").decode(value)
    assert not isinstance(refused.value, RegistryUnavailableError)


def test_a_truncated_body_is_a_bad_record(registry: SchemaRegistry) -> None:
    codec = codec_of(registry, unique("events"))
    with pytest.raises(SinkError) as refused:
        codec.decode(codec.encode(an_event())[:-3])
    assert not isinstance(refused.value, RegistryUnavailableError)


def away(registry: SchemaRegistry, topic: str) -> tuple[Forwarder, RegistryCodec]:
    forwarder = Forwarder(("127.0.0.1", registry.port))
    return forwarder, a_codec({"url": f"http://{forwarder.address}/apis/ccompat/v7", "timeout": 30.0}, topic)


def test_a_registry_that_is_away_loses_nothing_and_raises_nothing(
    config: dict[str, str], topic: str, registry: SchemaRegistry
) -> None:
    events, logged = a_life("incident"), LogLines()
    forwarder, codec = away(registry, topic)
    with forwarder:
        outbox = TopicOutbox(KafkaEventsTopic(config, topic, codec.encoding), logged)
        outbox.put(events[:2])
        outbox.deliver(0)
        assert outbox.waiting == 2
        assert "schema registry" in logged[0]
        outbox.put(events[2:])
        forwarder.start()
        outbox.deliver(60_000)
        assert outbox.waiting == 0
    assert list(read_events(config, topic, decode=codec_of(registry, topic).decode)) == events


@pytest.mark.long
def test_a_registry_that_hangs_costs_a_batch_two_seconds(tmp_path: Path) -> None:
    with SchemaRegistry(tmp_path) as own:
        own.process.pause()
        with pytest.raises(RegistryUnavailableError, match=r"127\.0\.0\.1"):
            a_codec({"url": own.url}, "events").encode(an_event())
        own.process.resume()


def test_a_record_that_cannot_be_decoded_now_is_not_skipped(
    config: dict[str, str], topic: str, registry: SchemaRegistry
) -> None:
    events = a_life("incident")
    KafkaEventsTopic(config, topic, FORMATS["json"]).publish(events[:1])
    forwarder, codec = away(registry, topic)
    with forwarder:
        log = EventLog(config, topic, codec.decode)
        assert list(log.history()) == events[:1]
        KafkaEventsTopic(config, topic, codec_of(registry, topic).encoding).publish(events[1:])
        assert list(log.new_records()) == []
        with pytest.raises(BrokerError, match="schema registry"):
            list(read_events(config, topic, decode=codec.decode))
        forwarder.start()
        found: list[object] = []
        while len(found) < 2:
            found.extend(log.new_records())
        assert found == events[1:]
        log.close()


def test_the_registry_itself_refuses_a_schema_that_breaks_the_contract(registry: SchemaRegistry) -> None:
    topic = unique("events")
    codec_of(registry, topic).encode(an_event())
    broken = json.loads(schema_text())
    broken["fields"] = [field for field in broken["fields"] if field["name"] != "cluster_id"]
    with SchemaRegistryClient({"url": registry.url}) as client:
        assert client.test_compatibility(f"{topic}-value", Schema(schema_text(), "AVRO"))
        client.set_config(f"{topic}-value", ServerConfig(compatibility=ConfigCompatibilityLevel.FULL))
        assert client.test_compatibility(f"{topic}-value", Schema(schema_text(), "AVRO"))
        assert not client.test_compatibility(f"{topic}-value", Schema(json.dumps(broken), "AVRO"))


class _Guarded(BaseHTTPRequestHandler):
    seen: list[str | None] = []  # noqa: RUF012 - one server a test

    def do_POST(self) -> None:
        self.seen.append(self.headers["Authorization"])
        self.send_response(401)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def guarded() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Guarded)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("how", ["in the url", "as a property"])
def test_a_user_is_sent_and_a_refusal_shows_no_password(guarded: str, how: str) -> None:
    client_config = (
        {"url": f"http://me:secret@{guarded}"}
        if how == "in the url"
        else {"url": f"http://{guarded}", "basic.auth.user.info": "me:secret"}
    )
    with pytest.raises(RegistryUnavailableError, match="401") as refused:
        a_codec(client_config, "events").encode(an_event())
    assert _Guarded.seen[-1] == "Basic bWU6c2VjcmV0"
    assert "secret" not in str(refused.value)


UNKNOWN = b"\x00\x7f\xff\xff\xffno schema of this id"


def an_authority(directory: Path) -> Authority:
    directory.mkdir()
    found = Authority(directory, "ca").create()
    found.issue("server", "IP:127.0.0.1")
    found.issue("client", "DNS:client")
    return found


def test_renewed_certificate_files_are_used_from_the_next_request_on(registry: SchemaRegistry, tmp_path: Path) -> None:
    first, second = (an_authority(tmp_path / name) for name in ("first", "second"))
    trusted, mine = (Path(copy(first.directory / name, tmp_path)) for name in ("ca.pem", "client.pem"))
    with TlsFront(registry.port, first) as front:
        files = {"ssl.ca.location": str(trusted), "ssl.certificate.location": str(mine)}
        codec = a_codec({"url": f"{front.url}/apis/ccompat/v7", "timeout": 30.0, **files}, unique("events"))
        written = codec.encode(an_event())
        front.use(second)
        with pytest.raises(RegistryUnavailableError):
            codec.decode(UNKNOWN)
        mine.write_text("half of a file")
        assert codec.decode(written) == an_event(), "the former client stays"
        for name in ("ca.pem", "client.pem"):
            copy(second.directory / name, tmp_path)
        with pytest.raises(BadEventError, match="HTTP 404"):
            codec.decode(UNKNOWN)
        assert codec.decode(written) == an_event()


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_certificate_file_that_cannot_be_used_is_an_error_that_names_it(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=r"schema registry https://registry: expected certificates .*/ca\.pem, found"):
        RegistryCodec({"url": "https://registry", "ssl.ca.location": str(file)}, "events")


def test_a_record_of_another_client_does_not_stop_the_reading(
    config: dict[str, str], topic: str, registry: SchemaRegistry
) -> None:
    producer = Producer(config)
    producer.produce(topic, key="k", value=UNKNOWN)
    producer.produce(topic, key=an_event().incident_id, value=to_json(an_event()))
    producer.flush(10.0)
    bad, good = read_events(config, topic, decode=codec_of(registry, topic).decode)
    assert isinstance(bad, SinkError)
    assert good == an_event()
