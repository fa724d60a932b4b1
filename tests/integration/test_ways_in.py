"""Every way in works on both of txnwatch's connections: its own, and librdkafka's for the events topic."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from support.certificates import Authority
from support.servers import Clusters, create_coordinators
from support.ways import Broker
from txnwatch.embedded.kafka import EmbeddedKafka
from txnwatch.librdkafka import librdkafka_config
from txnwatch.state.model.errors import BrokerError, ConfigError
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.source.options import SourceOptions, parse_options

NAME = "ways-in"
WAYS = (
    *("TLS, JKS truststore and keystore", "TLS, PKCS12 truststore and keystore", "TLS, PEM truststore and keystore"),
    *("TLS, inline PEM", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
)
WITH_TLS = {"security.protocol": "SSL"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Broker:
    return Broker(tmp_path_factory.mktemp(NAME))


@pytest.fixture(scope="module")
def kafka(clusters: Clusters, broker: Broker) -> Iterator[EmbeddedKafka]:
    started = clusters.start(NAME, broker.kafka)
    broker.add_users(started)
    create_coordinators(started)
    yield started
    clusters.end(NAME)


def options_for(kafka: EmbeddedKafka, listener: str, properties: Mapping[str, str]) -> SourceOptions:
    options = {f"kafka.{name}": value for name, value in properties.items()}
    return parse_options({**options, "kafka.bootstrap.servers": kafka.listener(listener), "subscribePattern": ".*"})


def connect(options: SourceOptions) -> set[str]:
    with contextlib.closing(Cluster(options.bootstrap, options.security)) as cluster:
        return set(cluster.refresh().topics)


def test_every_way_has_a_test(broker: Broker) -> None:
    assert tuple(broker.ways()) == WAYS


@pytest.mark.parametrize("name", WAYS)
def test_a_way_in_works_on_both_connections(broker: Broker, kafka: EmbeddedKafka, name: str) -> None:
    way = broker.ways()[name]
    options = options_for(kafka, way.listener, way.properties)
    assert TRANSACTION_STATE_TOPIC in connect(options)
    admin = AdminClient({**librdkafka_config(options), "log_level": 2})
    assert TRANSACTION_STATE_TOPIC in admin.list_topics(timeout=10.0).topics


def test_a_truststore_with_a_wrong_password_is_a_config_error_on_both_connections(
    broker: Broker, kafka: EmbeddedKafka
) -> None:
    properties = {**WITH_TLS, **broker.trust("PKCS12"), "ssl.truststore.password": "guess"}
    options = options_for(kafka, "TLS", properties)
    with pytest.raises(ConfigError, match="a store that the password does not open"):
        connect(options)
    with pytest.raises(ConfigError, match="a store that the password does not open"):
        librdkafka_config(options)


def test_an_expired_client_certificate_is_named(broker: Broker, kafka: EmbeddedKafka) -> None:
    expired = broker.authority.issue("expired", "DNS:client", days=-1)
    keys = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(expired)}
    with pytest.raises(BrokerError, match=rf"\(expired: CN=expired, valid until .* UTC, of ssl.keystore in {expired}"):
        connect(options_for(kafka, "MUTUAL", {**WITH_TLS, **broker.trust(), **keys}))


def test_a_renewed_certificate_is_used_by_the_next_connection(
    broker: Broker, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.pem"
    stranger = Authority(tmp_path, "stranger").create()
    keys.write_text(stranger.issue("unknown", "DNS:client").read_text())
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keys)}
    options = options_for(kafka, "MUTUAL", {**WITH_TLS, **broker.trust(), **settings})
    with pytest.raises(BrokerError):
        connect(options)
    keys.write_text(broker.client_keys.read_text())
    assert TRANSACTION_STATE_TOPIC in connect(options)
