"""What confluent-kafka's clients are told: the connection as `--command-config` has it, and how events are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from txnwatch.config import registry_config
from txnwatch.sinks.encoding import from_bytes
from txnwatch.sinks.registry import RegistryCodec
from txnwatch.state.incident import IncidentEvent
from txnwatch.streaming.options import SourceOptions
from txnwatch.streaming.security import Security


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


def decoder(registry: RegistryCodec | None) -> Callable[[bytes], IncidentEvent]:
    """What reads events back: all three encodings where there is a registry."""
    return registry.decode if registry is not None else from_bytes
