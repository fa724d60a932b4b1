"""Connections to secured listeners of a real broker, and to servers that are none: each failure has its message."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from support.answers import listed
from support.bad_inputs import BadInputs
from support.certificates import Authority
from support.servers import Clusters, create_coordinators
from support.waiting import eventually
from txnwatch.librdkafka import librdkafka_config
from txnwatch.sinks.delivery.event_log import EventLog
from txnwatch.state.model.errors import AuthorizationError, BrokerError, ConfigError
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security, security_of
from txnwatch.streaming.source.options import parse_options
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

NAME = "secured"
LISTENERS = {"SASL": "SASL_PLAINTEXT", "TLS": "SSL", "MUTUAL": "SSL", "BOTH": "SASL_SSL"}
USER, PASSWORD = "alice", 'pass"word; with = \\ signs'
DOUBT = r"\(is security.protocol=PLAINTEXT right for this listener\?\)"
Properties = dict[str, str]


def jaas(module: str, **options: str) -> str:
    escaped = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in options.items()}
    return " ".join([f"{module} required", *(f'{name}="{value}"' for name, value in escaped.items())]) + ";"


def plain(**options: str) -> str:
    return jaas("org.apache.kafka.common.security.plain.PlainLoginModule", **options)


def scram(**options: str) -> str:
    return jaas("org.apache.kafka.common.security.scram.ScramLoginModule", **options)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ours").create()


@pytest.fixture(scope="module")
def secured(
    clusters: Clusters, tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[EmbeddedKafka]:
    keys = authority.issue("broker", "IP:127.0.0.1")
    properties = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.mutual.ssl.client.auth": "required",
        "connections.max.idle.ms": "2000",
    }
    for listener in ("sasl", "both"):
        users = plain(**{f"user_{USER}": PASSWORD})
        properties[f"listener.name.{listener}.plain.sasl.jaas.config"] = users.replace("\\", "\\\\")
        properties[f"listener.name.{listener}.scram-sha-256.sasl.jaas.config"] = scram()
    directory = tmp_path_factory.mktemp(NAME)
    kafka = clusters.start(NAME, lambda: EmbeddedKafka(directory, listeners=LISTENERS, properties=properties))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 2})
    credentials = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    wanted = UserScramCredentialUpsertion(USER, credentials, PASSWORD.encode())
    admin.alter_user_scram_credentials([wanted])[USER].result(10.0)
    create_coordinators(kafka)
    yield kafka
    clusters.end(NAME)


@pytest.fixture
def trust(authority: Authority) -> Properties:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.certificate)}


@pytest.fixture
def client_keys(authority: Authority) -> Properties:
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(authority.issue("client", "DNS:client"))}


def with_plain(protocol: str, username: str = USER, password: str = PASSWORD) -> Properties:
    return {
        "security.protocol": protocol,
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": plain(username=username, password=password),
    }


def with_scram(protocol: str, username: str = USER, password: str = PASSWORD, bits: int = 256) -> Properties:
    return {
        "security.protocol": protocol,
        "sasl.mechanism": f"SCRAM-SHA-{bits}",
        "sasl.jaas.config": scram(username=username, password=password),
    }


WITH_TLS = {"security.protocol": "SSL"}
GOOD = {
    "SASL/PLAIN": ("SASL", with_plain("SASL_PLAINTEXT")),
    "SASL/SCRAM-SHA-256": ("SASL", with_scram("SASL_PLAINTEXT")),
    "TLS": ("TLS", WITH_TLS),
    "TLS with a client certificate": ("MUTUAL", WITH_TLS),
    "SASL/PLAIN over TLS": ("BOTH", with_plain("SASL_SSL")),
    "SASL/SCRAM-SHA-256 over TLS": ("BOTH", with_scram("SASL_SSL")),
}


def endpoint_of(kafka: EmbeddedKafka, listener: str) -> str:
    return kafka.bootstrap_servers if listener == "PLAINTEXT" else kafka.listener(listener)


def connect_to(endpoint: str | Endpoint, properties: Mapping[str, str], timeout_s: float = 5.0) -> None:
    """Connects, asks for metadata, and lets go."""
    where = Endpoint.parse(endpoint) if isinstance(endpoint, str) else endpoint
    with contextlib.closing(Cluster([where], security_of(properties), timeout_s=timeout_s)) as cluster:
        cluster.refresh()


@pytest.mark.parametrize(("listener", "properties"), GOOD.values(), ids=GOOD.keys())
def test_the_right_settings_reach_the_cluster_and_its_partitions(
    secured: EmbeddedKafka, trust: Properties, client_keys: Properties, listener: str, properties: Properties
) -> None:
    endpoint = Endpoint.parse(secured.listener(listener))
    with contextlib.closing(Cluster([endpoint], security_of({**trust, **client_keys, **properties}))) as cluster:
        assert cluster.refresh().brokers == {1: endpoint}, "a listener advertises itself"
        partition = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
        assert listed(cluster, partition).leader == 1


@pytest.mark.parametrize(("listener", "properties"), GOOD.values(), ids=GOOD.keys())
def test_the_same_settings_serve_librdkafka(
    secured: EmbeddedKafka, trust: Properties, client_keys: Properties, listener: str, properties: Properties
) -> None:
    given = {f"kafka.{name}": value for name, value in {**trust, **client_keys, **properties}.items()}
    servers = {"kafka.bootstrap.servers": secured.listener(listener), "subscribePattern": ".*"}
    admin = AdminClient({**librdkafka_config(parse_options({**given, **servers})), "log_level": 2})
    assert TRANSACTION_STATE_TOPIC in admin.list_topics(timeout=10.0).topics


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (with_plain("SASL_PLAINTEXT", password="guessed"), f"refused user '{USER}': .*[Ii]nvalid username or password"),
        (with_plain("SASL_PLAINTEXT", username="mallory"), "refused user 'mallory': .*[Ii]nvalid username or password"),
        (with_scram("SASL_PLAINTEXT", password="guessed"), f"refused user '{USER}': .*invalid credentials"),
        (with_scram("SASL_PLAINTEXT", username="mallory"), "refused user 'mallory': .*invalid credentials"),
        (
            with_scram("SASL_PLAINTEXT", bits=512),
            "refused SASL mechanism SCRAM-SHA-512: UNSUPPORTED_SASL_MECHANISM, it offers PLAIN, SCRAM-SHA-256",
        ),
    ],
    ids=["PLAIN password", "PLAIN user", "SCRAM password", "SCRAM user", "mechanism"],
)
def test_wrong_credentials_are_refused_with_the_brokers_message(
    secured: EmbeddedKafka, properties: Properties, message: str, bad_inputs: BadInputs
) -> None:
    with pytest.raises(AuthorizationError, match=message) as raised:
        connect_to(secured.listener("SASL"), properties)
    bad_inputs.keep("Logins", raised.value, before="wrong: ")


@pytest.mark.parametrize(
    ("listener", "properties", "reason"),
    [
        ("SASL", with_plain("SASL_PLAINTEXT", password="guessed"), "[Ii]nvalid username or password"),
        ("TLS", WITH_TLS, "certificate verify failed"),
        ("PLAINTEXT", WITH_TLS, "connecting to a PLAINTEXT broker listener"),
        ("TLS", {}, DOUBT),
        ("SASL", {}, DOUBT),
    ],
    ids=["password", "authority", "TLS to plain", "plain to TLS", "plain to SASL"],
)
def test_a_reader_of_the_events_topic_names_why_it_cannot_connect(
    secured: EmbeddedKafka, listener: str, properties: Properties, reason: str
) -> None:
    given = {f"kafka.{name}": value for name, value in properties.items()}
    servers = {"kafka.bootstrap.servers": endpoint_of(secured, listener), "subscribePattern": ".*"}
    with pytest.raises(BrokerError, match=f"events topic 'txnwatch.events': .*{reason}") as raised:
        EventLog(librdkafka_config(parse_options({**given, **servers})), "txnwatch.events", timeout_s=3.0)
    assert "guessed" not in str(raised.value)


def test_a_password_is_never_in_the_message(secured: EmbeddedKafka) -> None:
    with pytest.raises(AuthorizationError) as refused:
        connect_to(secured.listener("SASL"), with_plain("SASL_PLAINTEXT", password="the-guessed-one"))
    assert "the-guessed-one" not in str(refused.value)


def test_an_authority_that_did_not_sign_the_broker(
    secured: EmbeddedKafka, tmp_path: Path, bad_inputs: BadInputs
) -> None:
    stranger = Authority(tmp_path, "stranger").create()
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(stranger.certificate)}
    with pytest.raises(BrokerError, match=r"cannot connect to broker .*certificate verify failed") as raised:
        connect_to(secured.listener("TLS"), {**WITH_TLS, **trust})
    bad_inputs.keep("Brokers", raised.value)


def test_a_certificate_for_another_host(secured: EmbeddedKafka, trust: Properties, bad_inputs: BadInputs) -> None:
    """It is refused unless names are not checked."""
    by_name = Endpoint("localhost", Endpoint.parse(secured.listener("TLS")).port)
    with pytest.raises(BrokerError, match="certificate is not valid for 'localhost'") as raised:
        connect_to(by_name, {**WITH_TLS, **trust})
    bad_inputs.keep("Brokers", raised.value)
    connect_to(by_name, {**WITH_TLS, **trust, "ssl.endpoint.identification.algorithm": ""})


def test_no_certificate_where_one_is_required(secured: EmbeddedKafka, trust: Properties, bad_inputs: BadInputs) -> None:
    with pytest.raises(BrokerError, match=r"(?i)certificate.required|bad.certificate") as raised:
        connect_to(secured.listener("MUTUAL"), {**WITH_TLS, **trust})
    bad_inputs.keep("Brokers", raised.value)


@pytest.mark.parametrize(
    ("content", "found"), [(None, "No such file"), ("no certificate", "NO_CERTIFICATE_OR_CRL_FOUND|PEM|no start line")]
)
def test_a_certificate_file_that_cannot_be_used_is_a_config_error_that_names_it(
    secured: EmbeddedKafka, tmp_path: Path, content: str | None, found: str
) -> None:
    path = tmp_path / "authority.pem"
    if content is not None:
        path.write_text(content)
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)}
    with pytest.raises(ConfigError, match=rf"expected PEM certificates in {path}, found: .*({found})"):
        connect_to(secured.listener("TLS"), {**WITH_TLS, **trust})


@pytest.mark.parametrize(
    ("listener", "properties", "error", "message"),
    [
        ("TLS", {}, BrokerError, rf"not a Kafka broker: .*{DOUBT}"),
        (
            "SASL",
            {},
            BrokerError,
            r"closed the connection \(is security.protocol=PLAINTEXT right for this listener\?\)",
        ),
        ("PLAINTEXT", WITH_TLS, BrokerError, r"\(is security.protocol=SSL right for this listener\?\)"),
        (
            "PLAINTEXT",
            with_plain("SASL_PLAINTEXT"),
            AuthorizationError,
            r"ILLEGAL_SASL_STATE \(is security.protocol=SASL_PLAINTEXT right for this listener\?\)",
        ),
    ],
    ids=["plain to TLS", "plain to SASL", "TLS to plain", "SASL to plain"],
)
def test_the_wrong_protocol_for_a_listener_is_an_error_in_time(
    secured: EmbeddedKafka,
    trust: Properties,
    listener: str,
    properties: Properties,
    error: type[BrokerError],
    message: str,
    bad_inputs: BadInputs,
) -> None:
    endpoint = endpoint_of(secured, listener)
    started = time.monotonic()
    with pytest.raises(error, match=message) as raised:
        connect_to(endpoint, {**trust, **properties}, timeout_s=5.0)
    assert time.monotonic() - started < 4.0, "it fails at once and does not wait"
    bad_inputs.keep("Brokers", raised.value, before="the wrong protocol: ")


@pytest.mark.parametrize("listener", ["PLAINTEXT", "TLS"])
def test_a_connection_the_broker_closed_for_idleness_is_made_again_unnoticed(
    secured: EmbeddedKafka, trust: Properties, listener: str
) -> None:
    endpoint = Endpoint.parse(endpoint_of(secured, listener))
    security = Security() if listener == "PLAINTEXT" else security_of({**WITH_TLS, **trust})
    with contextlib.closing(Cluster([endpoint], security)) as cluster:
        cluster.refresh()
        connection = cluster.node(1)
        assert connection.is_open
        eventually(lambda: not connection.is_open, 20.0, "the broker to close an idle connection")
        partition = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
        assert listed(cluster, partition).leader == 1
