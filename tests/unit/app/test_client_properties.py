"""The file of client properties, as Kafka's own tools read it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from txnwatch.setting_sources import client_properties
from txnwatch.state.model.errors import ConfigError

PROPERTIES = """# as Kafka's own tools read it
security.protocol=SASL_SSL
sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required \\
    username="gr\\u00fcn" password="a:b=c";
"""


def test_client_properties_are_read_as_java_does(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(PROPERTIES)
    assert client_properties(path) == {
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="grün" password="a:b=c";',
    }


def test_without_a_properties_file_there_are_no_properties() -> None:
    assert client_properties(None) == {}


@pytest.mark.parametrize("content", [None, r"key=\u12"], ids=["absent", "half an escape"])
def test_a_properties_file_that_cannot_be_read_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "client.properties"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=f"^--command-config {re.escape(str(path))}: expected a Java properties file"):
        client_properties(path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("secrity.protocol", "; did you mean security.protocol?"),
        ("Security.Protocol", "; did you mean security.protocol?"),
        ("sasl.mechansim", "; did you mean sasl.mechanism?"),
        ("bootstrap.server", "; did you mean bootstrap.servers?"),
        ("sasl.mechanisms", ", which is librdkafka's name; Java's is sasl.mechanism"),
        (
            "ssl.ca.location",
            ", which is librdkafka's name; Java's is ssl.truststore.location, with ssl.truststore.type=PEM",
        ),
        ("sasl.enabled.mechanisms.of.brokers", "; txnwatch knows no such setting of security"),
    ],
)
def test_a_name_that_was_meant_for_kafka_and_is_none_is_an_error(tmp_path: Path, name: str, said: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"{name}=SECRET\n")
    with pytest.raises(ConfigError) as found:
        client_properties(path)
    expected = f"--command-config {path}: expected a property of Kafka's Java client, found {name!r}{said}"
    assert str(found.value) == expected


@pytest.mark.parametrize(
    "name",
    [
        "ssl.engine.factory.class",
        "sasl.password",
        "config.providers.file.class",
        "schema.registry.basic.auth.user.info",
        "share.acquire.mode",
        "confluent.monitoring.interceptor.bootstrap.servers",
    ],
)
def test_a_name_of_a_java_client_or_of_another_program_is_no_error(tmp_path: Path, name: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"{name}=value\n")
    assert client_properties(path) == {name: "value"}
