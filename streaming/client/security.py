"""Security settings of a connection: Java client properties to TLS and SASL.

Operators already have a client properties file (`--command-config`), so its keys are used here too. The same keys with
the prefix `kafka.` are the source's options, as in Spark's Kafka source. A setting that cannot be used is an error that
names the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from txnwatch.state.model.errors import ConfigError
from txnwatch.streaming.client.logins import login_of
from txnwatch.streaming.client.sasl import Login
from txnwatch.streaming.client.tls import Tls, tls_of

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_WITH_TLS = frozenset({"SSL", "SASL_SSL"})


@dataclass(frozen=True, slots=True)
class Security:
    """What a connection needs besides host and port; hashable and picklable, without open resources.

    Attributes:
        protocol: one of PROTOCOLS.
        tls: its certificates, if the protocol uses TLS.
        login: how it authenticates, if the protocol uses SASL.
    """

    protocol: str = "PLAINTEXT"
    tls: Tls = field(default_factory=Tls)
    login: Login | None = None

    @property
    def uses_tls(self) -> bool:
        """Whether the connection uses TLS."""
        return self.protocol in _WITH_TLS

    @property
    def uses_sasl(self) -> bool:
        """Whether the connection authenticates by SASL."""
        return self.protocol.startswith("SASL_")


def security_of(properties: Mapping[str, str]) -> Security:
    """The security settings among Java client properties; other keys are ignored.

    Raises:
        ConfigError: a value is unknown or incomplete.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(f"security.protocol: expected one of {', '.join(PROTOCOLS)}, found {protocol!r}")
    return Security(
        protocol,
        tls_of(properties) if protocol in _WITH_TLS else Tls(),
        login_of(properties) if protocol.startswith("SASL_") else None,
    )


def principal_of(security: Security) -> str:
    """The principal that the brokers see, as far as the client's settings show it."""
    if security.login is not None:
        return f"User:{security.login.user}"
    is_named = security.uses_tls and security.tls.keys is not None
    return "User:<subject of the client certificate>" if is_named else "User:ANONYMOUS"
