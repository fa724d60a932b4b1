"""Security settings of a connection: Java client properties to TLS and SASL.

Operators already have a client properties file (`--command-config`), so its keys are used here too. The same keys with
the prefix `kafka.` are the source's options, as in Spark's Kafka source. A setting that cannot be used is an error that
names the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from txnwatch.state.model.errors import ConfigError
from txnwatch.state.text import shown_url
from txnwatch.streaming.client.notations import jaas_options
from txnwatch.streaming.client.sasl import (
    GSSAPI,
    PASSWORD_MECHANISMS,
    KerberosLogin,
    Login,
    PasswordLogin,
)
from txnwatch.streaming.client.tls import Tls, tls_of
from txnwatch.streaming.client.tokens import (
    AWS_MSK_IAM,
    OAUTHBEARER,
    ClientCredentials,
    TokenFile,
    TokenLogin,
    msk_iam_of,
)

# Java client properties to a SASL login.

MECHANISMS: Final = (*PASSWORD_MECHANISMS, OAUTHBEARER, GSSAPI, AWS_MSK_IAM)
_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_HANDLER: Final = "sasl.login.callback.handler.class"
_RETRIEVER: Final = "sasl.oauthbearer.jwt.retriever.class"
# The last part of the class names: the package differs between versions of Kafka.
_MSK_HANDLER: Final = "IAMOAuthBearerLoginCallbackHandler"
_HANDLERS: Final = frozenset({"OAuthBearerLoginCallbackHandler", _MSK_HANDLER})
_RETRIEVERS: Final = frozenset({"DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever"})
_CREDENTIALS: Final = "sasl.oauthbearer.client.credentials"
_EXTENSION: Final = "extension_"


def login_of(properties: Mapping[str, str]) -> Login:
    """The login among client properties.

    Raises:
        ConfigError: the mechanism is unknown, or a value is missing.
    """
    mechanism = properties.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        raise ConfigError(f"sasl.mechanism: expected one of {', '.join(MECHANISMS)}, found {mechanism!r}")
    options = jaas_options(properties)
    if mechanism == AWS_MSK_IAM:
        return TokenLogin(msk_iam_of(properties, options))
    if mechanism == OAUTHBEARER:
        return _token_login(properties, options)
    if mechanism == GSSAPI:
        return _kerberos_login(properties, options)
    return _password_login(mechanism, properties, options)


def _password_login(mechanism: str, properties: Mapping[str, str], options: Mapping[str, str]) -> PasswordLogin:
    username = options.get("username", properties.get("sasl.username"))
    password = options.get("password", properties.get("sasl.password"))
    if not username or password is None:
        raise ConfigError('sasl.jaas.config: expected a login module with username="..." and password="..."')
    return PasswordLogin(mechanism, username, password)


def _token_login(properties: Mapping[str, str], options: Mapping[str, str]) -> TokenLogin:
    _check_class(_HANDLER, properties, _HANDLERS)
    _check_class(_RETRIEVER, properties, _RETRIEVERS)
    if properties.get(_HANDLER, "").endswith(f".{_MSK_HANDLER}"):
        return TokenLogin(msk_iam_of(properties, options))
    url = properties.get(_URL, "")
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path:
        return TokenLogin(TokenFile(unquote(parts.path)), _extensions(options))
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f"{_URL}: expected https://host/path or file:///path, found {shown_url(url)!r}")
    client_id = properties.get(f"{_CREDENTIALS}.client.id", options.get("clientId"))
    secret = properties.get(f"{_CREDENTIALS}.client.secret", options.get("clientSecret"))
    if not client_id or secret is None:
        raise ConfigError('sasl.jaas.config: expected a login module with clientId="..." and clientSecret="..."')
    source = ClientCredentials(
        url,
        client_id,
        secret,
        properties.get("sasl.oauthbearer.scope", options.get("scope")),
        properties.get("sasl.oauthbearer.header.urlencode", "false").lower() == "true",
        tls_of(options) if parts.scheme == "https" else tls_of({}),
    )
    return TokenLogin(source, _extensions(options))


def _kerberos_login(properties: Mapping[str, str], options: Mapping[str, str]) -> KerberosLogin:
    service = properties.get("sasl.kerberos.service.name", options.get("serviceName"))
    if not service:
        raise ConfigError(
            "sasl.kerberos.service.name: expected the name of the brokers' service for GSSAPI, found none"
        )
    if options.get("useKeyTab", "false").lower() != "true":
        return KerberosLogin(service)
    keytab, principal = options.get("keyTab"), options.get("principal")
    if not keytab or not principal:
        raise ConfigError('sasl.jaas.config: expected keyTab="..." and principal="..." with useKeyTab=true')
    return KerberosLogin(service, principal, keytab.removeprefix("FILE:"))


def _extensions(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name.removeprefix(_EXTENSION), value) for name, value in options.items() if name.startswith(_EXTENSION)
    )


def _check_class(key: str, properties: Mapping[str, str], known: frozenset[str]) -> None:
    found = properties.get(key, "")
    if found and found.rpartition(".")[2] not in known:
        raise ConfigError(f"{key}: expected a class named {' or '.join(sorted(known))}, found {found!r}")


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
