"""Configuration of confluent-kafka's clients: the connection of `--command-config`, and the encoding of events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from txnwatch.client_properties import registry_config
from txnwatch.config import CONFLUENT_AVRO, EVENTS_TOPIC, RunSettings
from txnwatch.config_providers import expanded
from txnwatch.sinks.delivery.encoding import FORMATS, Encoding, from_bytes
from txnwatch.sinks.delivery.registry import RegistryCodec
from txnwatch.sinks.delivery.signature import Keys, mode_warning, read_keys
from txnwatch.sinks.incidents.commands import EventsFlags
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.text.redaction import without_credentials
from txnwatch.streaming.client.security import Security
from txnwatch.streaming.source.options import SourceOptions


def librdkafka_config(options: SourceOptions) -> dict[str, str]:
    """The connection options as properties of librdkafka."""
    security: Security = options.security
    config = {
        "bootstrap.servers": ",".join(str(endpoint) for endpoint in options.bootstrap),
        "security.protocol": security.protocol.lower(),
        "ssl.endpoint.identification.algorithm": "https" if security.verify_host else "none",
    }
    optional = {
        "ssl.ca.location": security.ca_file,
        "ssl.ca.pem": security.ca_text,
        "ssl.certificate.location": security.certificate_file,
        "ssl.key.location": security.certificate_file,
        "ssl.key.password": security.key_password,
        "sasl.mechanism": security.mechanism,
        "sasl.username": security.username,
        "sasl.password": security.password,
    }
    return {**config, **{name: value for name, value in optional.items() if value is not None}}


def registry_codec(url: str | None, properties: Mapping[str, str], topic: str) -> RegistryCodec | None:
    """The codec of the schema registry; None without a registry.

    Raises:
        ConfigError: the registry client is not installed, or rejects the settings.
    """
    return RegistryCodec(registry_config(url, properties), topic) if url is not None else None


@dataclass(frozen=True, slots=True)
class EventsTopic:
    """The topic of incident events: its name, and how its records are encoded and decoded.

    `decode` is for `read_events`; it reads all three encodings if there is a registry.
    """

    name: str
    encoding: Encoding
    decode: Callable[[bytes], IncidentEvent]
    keys: Keys | None = None


def events_keys(path: Path | None, warn: Callable[[str], None]) -> Keys | None:
    """The keys of `--events-key-file`, None without one; calls `warn` if other users may read the file.

    Raises:
        ConfigError: the file has no key, or cannot be read.
    """
    if path is None:
        return None
    keys = read_keys(path, lambda line: expanded(line, f"--events-key-file {path}"))
    warning = mode_warning(path)
    if warning is not None:
        warn(warning)
    return keys


def events_topic(
    name: str,
    events_format: str | None,
    registry_url: str | None,
    properties: Mapping[str, str],
    keys: Keys | None = None,
) -> EventsTopic:
    """The events topic of a run, or of a command that reads or writes the same topic.

    Args:
        name: the name of the topic.
        events_format: the encoding to write; None means Confluent framing if there is a registry, else JSON.
        registry_url: the schema registry; None without one.
        properties: the client properties; those of the registry are among them.
        keys: they sign the events that are written and verify those that are read.

    Raises:
        ConfigError: Confluent framing without a registry, or the registry client rejects the settings.
    """
    registry = registry_codec(registry_url, properties, name)
    chosen = events_format or ("json" if registry is None else CONFLUENT_AVRO)
    if chosen != CONFLUENT_AVRO:
        return EventsTopic(name, FORMATS[chosen], decoder(registry), keys)
    if registry is None:
        raise ConfigError(f"--events-format {chosen}: expected --schema-registry-url as well, found none")
    return EventsTopic(name, registry.encoding, registry.decode, keys)


def events_flags(settings: RunSettings) -> EventsFlags:
    """The event flags of a run for suggested commands, without the password in the registry's URL."""
    url = settings.schema_registry_url
    return EventsFlags(
        settings.events_topic if settings.events_topic != EVENTS_TOPIC else None,
        settings.events_format,
        without_credentials(url) if url is not None else None,
        str(settings.events_key_file.absolute()) if settings.events_key_file is not None else None,
    )


def decoder(registry: RegistryCodec | None) -> Callable[[bytes], IncidentEvent]:
    """The decoder of events; with a registry it reads all three encodings."""
    return registry.decode if registry is not None else from_bytes
