"""What confluent-kafka's clients are told: the connection as `--command-config` has it, and how events are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from txnwatch.config import CONFLUENT_AVRO, EVENTS_TOPIC, RunSettings, registry_config
from txnwatch.sinks.delivery.encoding import FORMATS, Encoding, from_bytes
from txnwatch.sinks.delivery.registry import RegistryCodec
from txnwatch.sinks.delivery.signature import Keys, mode_warning, read_keys
from txnwatch.sinks.incidents.commands import EventsAt
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.streaming.client.security import Security
from txnwatch.streaming.source.options import SourceOptions


def librdkafka_config(options: SourceOptions) -> dict[str, str]:
    """The same connection for confluent-kafka."""
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
    """What speaks to the schema registry, if there is one.

    Raises:
        ConfigError: the registry client is not installed, or refuses the settings.
    """
    return RegistryCodec(registry_config(url, properties), topic) if url is not None else None


@dataclass(frozen=True, slots=True)
class EventsTopic:
    """The topic of incident events as a client has it: how its records are written and read.

    `read_events` is given `decode`, which reads all three encodings where there is a registry.
    """

    name: str
    encoding: Encoding
    decode: Callable[[bytes], IncidentEvent]
    keys: Keys | None = None


def events_keys(path: Path | None, warn: Callable[[str], None]) -> Keys | None:
    """The keys of `--events-key-file`, if there is one; `warn` is told where others may read the file.

    Raises:
        ConfigError: there is no key in it, or it cannot be read.
    """
    if path is None:
        return None
    keys, warning = read_keys(path), mode_warning(path)
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
    """The topic for a run, or for a command beside one.

    Args:
        name: the topic.
        events_format: what is written; None for Confluent framing where there is a registry, else JSON.
        registry_url: the schema registry, if there is one.
        properties: the client properties, for the registry's own among them.
        keys: what signs events, and verifies those that are read.

    Raises:
        ConfigError: Confluent framing without a registry, or one whose client refuses the settings.
    """
    registry = registry_codec(registry_url, properties, name)
    chosen = events_format or ("json" if registry is None else CONFLUENT_AVRO)
    if chosen != CONFLUENT_AVRO:
        return EventsTopic(name, FORMATS[chosen], decoder(registry), keys)
    if registry is None:
        raise ConfigError(f"--events-format {chosen}: expected --schema-registry-url as well, found none")
    return EventsTopic(name, registry.encoding, registry.decode, keys)


def told_at(settings: RunSettings) -> EventsAt:
    """Where a run's events are, for commands that are pasted; a password in the registry's address is kept out."""
    url = urlsplit(settings.schema_registry_url) if settings.schema_registry_url is not None else None
    return EventsAt(
        settings.events_topic if settings.events_topic != EVENTS_TOPIC else None,
        settings.events_format,
        url._replace(netloc=url.netloc.rpartition("@")[2]).geturl() if url is not None else None,
        str(settings.events_key_file.absolute()) if settings.events_key_file is not None else None,
    )


def decoder(registry: RegistryCodec | None) -> Callable[[bytes], IncidentEvent]:
    """What reads events back: all three encodings where there is a registry."""
    return registry.decode if registry is not None else from_bytes
