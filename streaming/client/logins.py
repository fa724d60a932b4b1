"""Java client properties to a SASL login."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from txnwatch.state.model.errors import ConfigError
from txnwatch.state.text.redaction import shown_url
from txnwatch.streaming.client.client_credentials import ClientCredentials
from txnwatch.streaming.client.kerberos import GSSAPI, KerberosLogin
from txnwatch.streaming.client.msk import AWS_MSK_IAM, msk_iam_of
from txnwatch.streaming.client.sasl import PASSWORD_MECHANISMS, Login, PasswordLogin, jaas_options
from txnwatch.streaming.client.tls import tls_of
from txnwatch.streaming.client.tokens import OAUTHBEARER, TokenFile, TokenLogin

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
