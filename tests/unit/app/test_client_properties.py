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
