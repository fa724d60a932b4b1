"""Configuration of confluent-kafka's clients: the connection of `--command-config`, and the encoding of events."""

from __future__ import annotations

import secrets
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from txnwatch.config import CONFLUENT_AVRO, RunSettings
from txnwatch.setting_sources import expanded, registry_config
from txnwatch.sinks.delivery.encoding import FORMATS, Encoding, Keys, RegistryCodec, from_bytes, read_keys
from txnwatch.state.model.errors import ConfigError, MissingMechanismError
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.text import Grantee
from txnwatch.streaming.client.security import (
    GSSAPI,
    KerberosLogin,
    Login,
    PasswordLogin,
    Security,
    TokenLogin,
    principal_of,
)
from txnwatch.streaming.client.tls import Tls, encrypted
from txnwatch.streaming.client.tokens import current
from txnwatch.streaming.source.options import SourceOptions

# Names and values of librdkafka; the value of a callback is a function.
LibrdkafkaConfig = dict[str, Any]


def librdkafka_config(options: SourceOptions) -> LibrdkafkaConfig:
    """The connection options as properties of librdkafka.

    Raises:
        ConfigError: a truststore or a keystore cannot be used, or the mechanism is missing in confluent-kafka.
        BrokerError: a store could be used before, and cannot be used since it was changed.
    """
    security: Security = options.security
    config: LibrdkafkaConfig = {
        "bootstrap.servers": ",".join(str(endpoint) for endpoint in options.bootstrap),
        "security.protocol": security.protocol.lower(),
    }
    if security.uses_tls:
        config |= _tls_config(security.tls)
    if security.login is not None:
        config |= _sasl_config(security.login)
    return config


def _sasl_config(login: Login) -> LibrdkafkaConfig:
    config: LibrdkafkaConfig = {"sasl.mechanism": login.mechanism}
    if isinstance(login, PasswordLogin):
        config |= {"sasl.username": login.user, "sasl.password": login.password}
    elif isinstance(login, KerberosLogin):
        config |= _kerberos_config(login)
    elif isinstance(login, TokenLogin):
        config["oauth_cb"] = partial(_token, login)
    return config


def _kerberos_config(login: KerberosLogin) -> LibrdkafkaConfig:
    config: LibrdkafkaConfig = {"sasl.mechanism": GSSAPI, "sasl.kerberos.service.name": login.service}
    if login.keytab is not None:
        config |= {"sasl.kerberos.keytab": login.keytab, "sasl.kerberos.principal": login.principal}
    try:
        Producer({"builtin.features": "sasl_gssapi", "log_level": 0})
    except KafkaException as exc:
        raise MissingMechanismError(
            "sasl.mechanism GSSAPI: expected a confluent-kafka that is built with GSSAPI; its wheels have no GSSAPI; "
            "the events topic needs it (docs/configuration.md)",
            fix="build confluent-kafka from source, with GSSAPI",
        ) from exc
    return config


def _token(login: TokenLogin, _: str) -> tuple[str, float, str, dict[str, str]]:
    """The token of our own connections, for librdkafka, which asks again before it expires."""
    token = current(login.source)
    return token.text, token.expires_s, token.subject, dict(login.extensions)


def _tls_config(tls: Tls) -> dict[str, str]:
    """The content of the stores, because librdkafka does not read the files of a Java client."""
    config = {"ssl.endpoint.identification.algorithm": "https" if tls.verify_host else "none"}
    content = tls.content()
    if content.trusted is not None:
        config["ssl.ca.pem"] = content.trusted
    if content.chain is not None and content.key is not None:
        password = secrets.token_urlsafe(24)
        config["ssl.certificate.pem"] = content.chain
        config |= {"ssl.key.pem": encrypted(content.key, password), "ssl.key.password": password}
    return config


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


_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def mode_warning(path: Path) -> str | None:
    """A warning if other users have access to the file; None if not."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & _OTHERS:
        return None
    return f"--events-key-file {path} has mode {mode:04o}: a user who can read it can sign events; `chmod 600` it"


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


def grantee_of(settings: RunSettings, options: SourceOptions) -> Grantee:
    """The user of a run, for messages about a missing right."""
    return Grantee(
        settings.bootstrap_server, principal_of(options.security), is_configured=settings.command_config is not None
    )


def decoder(registry: RegistryCodec | None) -> Callable[[bytes], IncidentEvent]:
    """The decoder of events; with a registry it reads all three encodings."""
    return registry.decode if registry is not None else from_bytes
