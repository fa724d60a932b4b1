"""Every way in works on both of txnwatch's connections: its own, and librdkafka's for the events topic."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from support.certificates import Authority
from support.servers import Clusters, create_coordinators
from support.token_server import CLIENT
from support.ways import SESSION_MS, WAYS, Broker
from txnwatch.librdkafka import librdkafka_config
from txnwatch.state.model.errors import AuthorizationError, BrokerError, ConfigError
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.tokens import HELD_TOKENS
from txnwatch.streaming.source.options import SourceOptions, parse_options
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

NAME = "ways-in"
WITH_TLS = {"security.protocol": "SSL"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp(NAME))
    with made.tokens:
        yield made


@pytest.fixture(scope="module")
def secured(clusters: Clusters, broker: Broker) -> Iterator[EmbeddedKafka]:
    started = clusters.start(NAME, broker.kafka)
    broker.add_users(started)
    create_coordinators(started)
    yield started
    clusters.end(NAME)


def options_for(secured: EmbeddedKafka, listener: str, properties: Mapping[str, str]) -> SourceOptions:
    options = {f"kafka.{name}": value for name, value in properties.items()}
    return parse_options({**options, "kafka.bootstrap.servers": secured.listener(listener), "subscribePattern": ".*"})


def connect(options: SourceOptions) -> set[str]:
    with contextlib.closing(Cluster(options.bootstrap, options.security)) as cluster:
        return set(cluster.refresh().topics)


def test_every_way_has_a_test(broker: Broker) -> None:
    assert tuple(broker.ways()) == WAYS


@pytest.mark.parametrize("name", WAYS)
def test_a_way_in_works_on_both_connections(broker: Broker, secured: EmbeddedKafka, name: str) -> None:
    way = broker.ways()[name]
    options = options_for(secured, way.listener, way.properties)
    assert TRANSACTION_STATE_TOPIC in connect(options)
    admin = AdminClient({**librdkafka_config(options), "log_level": 2})
    assert TRANSACTION_STATE_TOPIC in admin.list_topics(timeout=10.0).topics


def test_a_truststore_with_a_wrong_password_is_a_config_error_on_both_connections(
    broker: Broker, secured: EmbeddedKafka
) -> None:
    properties = {**WITH_TLS, **broker.trust("PKCS12"), "ssl.truststore.password": "guess"}
    options = options_for(secured, "TLS", properties)
    with pytest.raises(ConfigError, match="a store that the password does not open"):
        connect(options)
    with pytest.raises(ConfigError, match="a store that the password does not open"):
        librdkafka_config(options)


def test_an_expired_client_certificate_is_named(broker: Broker, secured: EmbeddedKafka) -> None:
    expired = broker.authority.issue("expired", "DNS:client", days=-1)
    keys = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(expired)}
    with pytest.raises(BrokerError, match=rf"\(expired: CN=expired, valid until .* UTC, of ssl.keystore in {expired}"):
        connect(options_for(secured, "MUTUAL", {**WITH_TLS, **broker.trust(), **keys}))


def test_a_renewed_certificate_is_used_by_the_next_connection(
    broker: Broker, secured: EmbeddedKafka, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.pem"
    stranger = Authority(tmp_path, "stranger").create()
    keys.write_text(stranger.issue("unknown", "DNS:client").read_text())
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keys)}
    options = options_for(secured, "MUTUAL", {**WITH_TLS, **broker.trust(), **settings})
    with pytest.raises(BrokerError):
        connect(options)
    keys.write_text(broker.client_keys.read_text())
    assert TRANSACTION_STATE_TOPIC in connect(options)


def test_a_client_that_the_token_endpoint_refuses_is_an_error_without_the_secret(
    broker: Broker, secured: EmbeddedKafka
) -> None:
    options = options_for(secured, "TOKEN", broker.trust() | broker.client_credentials("a-wrong-one"))
    with pytest.raises(AuthorizationError, match=f"HTTP 401 for client '{CLIENT}': invalid_client") as refused:
        connect(options)
    assert "a-wrong-one" not in str(refused.value)


def test_a_token_that_the_broker_refuses_is_an_authorization_error(broker: Broker, secured: EmbeddedKafka) -> None:
    options = options_for(secured, "TOKEN", broker.ways()["OAUTHBEARER, token file"].properties)
    broker.token_file.write_text(f"{broker.tokens.token()[:-8]}AAAAAAAA")
    HELD_TOKENS.clear()
    with pytest.raises(AuthorizationError, match="refused user 'of the token in"):
        connect(options)


def test_a_session_that_ends_is_authenticated_again_with_a_new_token(broker: Broker, secured: EmbeddedKafka) -> None:
    """The broker closes a connection that is used after its session: SESSION_MS, or the end of the token."""
    options = options_for(secured, "TOKEN", broker.client_credentials() | broker.trust())
    broker.tokens.life_s = 8.0
    HELD_TOKENS.clear()
    given = broker.tokens.answers
    producer = Producer({**librdkafka_config(options), "log_level": 2, "message.timeout.ms": 30_000})
    refused: list[KafkaError] = []
    with contextlib.closing(Cluster(options.bootstrap, options.security)) as cluster:
        until = time.monotonic() + 2.5 * SESSION_MS / 1000
        while time.monotonic() < until or broker.tokens.answers < given + 2:
            cluster.refresh()
            producer.produce("written-with-tokens", b"x", on_delivery=lambda error, _: refused.append(error))
            producer.flush(30.0)
            time.sleep(0.2)
    broker.tokens.life_s = 300.0
    assert refused, "something was produced"
    assert set(refused) == {None}
    assert broker.tokens.answers >= given + 2


def test_a_token_that_cannot_be_renewed_is_used_until_it_expires(broker: Broker, secured: EmbeddedKafka) -> None:
    options = options_for(secured, "TOKEN", broker.client_credentials() | broker.trust())
    HELD_TOKENS.clear()
    connect(options)
    ((source, held),) = HELD_TOKENS.items()
    broker.tokens.fails = True
    try:
        HELD_TOKENS[source] = replace(held, obtained_s=0.0)
        connect(options)
        HELD_TOKENS[source] = replace(held, expires_s=time.time())
        with pytest.raises(BrokerError, match="HTTP 503"):
            connect(options)
    finally:
        broker.tokens.fails = False
    connect(options)
