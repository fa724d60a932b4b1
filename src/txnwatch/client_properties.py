"""The Java client properties of `--command-config`: those of the brokers, and those of the schema registry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from txnwatch.config_providers import check_paths, expanded, read_properties
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.text.redaction import is_secret_name
from txnwatch.streaming.client.sasl import jaas_options

_REGISTRY_PREFIX = "schema.registry."
_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_WEB: Final = ("https:", "http:")
_JAAS: Final = "sasl.jaas.config"


def client_properties(path: Path | None) -> dict[str, str]:
    """The Java client properties of `--command-config`, with the values of references; empty without a file.

    Raises:
        ConfigError: the file, or something that a value refers to, cannot be read.
    """
    if path is None:
        return {}
    where = f"--command-config {path}"
    try:
        properties = read_properties(path, where)
    except OSError as exc:
        raise ConfigError(f"{where}: expected a Java properties file, found: {exc}") from exc
    return {name: _value(name, value, f"{where}: {name}") for name, value in properties.items()}


def _value(name: str, text: str, where: str) -> str:
    value = expanded(text, where, is_secret=is_secret_name(name))
    check_paths(text, _paths(name, value), where)
    return value


def _paths(name: str, value: str) -> list[str]:
    """The paths of files in the value of a property."""
    if name.endswith(".location"):
        return [value]
    if name == _ENDPOINT and not value.startswith(_WEB):
        return [value.removeprefix("file://")]
    if name == _JAAS:
        options = jaas_options({_JAAS: value}).items()
        return [path.removeprefix("FILE:") for key, path in options if key == "keyTab" or key.endswith(".location")]
    return []


def registry_config(url: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The settings of confluent-kafka's registry client: the URL, and `schema.registry.*` of `--command-config`."""
    mine = {name.removeprefix(_REGISTRY_PREFIX): value for name, value in properties.items() if _is_registry(name)}
    return {**mine, "url": url}


def broker_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of `--command-config` for the brokers: all except `schema.registry.*`."""
    return {name: value for name, value in properties.items() if not _is_registry(name)}


def _is_registry(name: str) -> bool:
    return name.startswith(_REGISTRY_PREFIX)
