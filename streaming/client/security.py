"""Security of a connection: the logins by SASL, and Java client properties to TLS and SASL.

kafka-python's mechanisms compute the messages of a login, except those of Kerberos (docs/decisions/0035).

Operators already have a client properties file (`--command-config`), so its keys are used here too. The same keys with
the prefix `kafka.` are the source's options, as in Spark's Kafka source. A setting that cannot be used is an error that
names the remedy.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.oauth import AbstractTokenProvider

from txnwatch.state.model.errors import AuthorizationError, BrokerError, ConfigError, WireError, install_command
from txnwatch.state.text import shown_url
from txnwatch.streaming.client.notations import jaas_options
from txnwatch.streaming.client.tls import Tls, tls_of
from txnwatch.streaming.client.tokens import (
    AWS_MSK_IAM,
    OAUTHBEARER,
    ClientCredentials,
    TokenFile,
    TokenSource,
    current,
    msk_iam_of,
)

# Checks the SASL messages of a server before kafka-python's mechanisms compute with them.
#
# The mechanisms raise any error on a message that they do not expect. A server that is not logged in to could also make
# them compute for hours: the iteration count of SCRAM has limits. Fewer than 4096 iterations make a password easy to
# guess from the messages, and Kafka's Java client refuses them too (RFC 5802). A million takes about half a second.

FEWEST_ITERATIONS, MOST_ITERATIONS = 4_096, 1_000_000
_SHOWN: Final = 60
# Extensions may follow. One with the name of an attribute would replace its value.
_EXTENSIONS: Final = rb"(?:,(?![rsive]=)[A-Za-z]=[\x20-\x2b\x2d-\x7e]+)*"
_BASE64: Final = rb"([A-Za-z0-9+/]+={0,2})"
_SERVER_FIRST = re.compile(rb"r=([\x21-\x2b\x2d-\x7e]+),s=" + _BASE64 + rb",i=([0-9]{1,20})" + _EXTENSIONS)
_SERVER_FINAL = re.compile(rb"(?:v=" + _BASE64 + rb"|e=([\x20-\x2b\x2d-\x7e]+))" + _EXTENSIONS)


class Exchange(Protocol):
    """The messages of one authentication; kafka-python's class SaslMechanism has the same methods."""

    def auth_bytes(self) -> bytes:
        """Our next message."""

    def receive(self, message: bytes) -> None:
        """Takes the server's answer.

        Raises:
            WireError: the message cannot be used.
            AuthorizationError: the message refuses us.
        """

    def is_done(self) -> bool:
        """Whether no more messages follow."""


class NoDataExchange:
    """PLAIN and OAUTHBEARER: a server that accepts us has no data to send.

    A server of OAUTHBEARER may send the reason of its refusal. The next message of the mechanism asks for its error.
    """

    def __init__(self, mechanism: str, computed: Any, *, has_reason: bool) -> None:
        self._mechanism = mechanism
        self._computed = computed
        self._has_reason = has_reason

    def auth_bytes(self) -> bytes:
        """See Exchange."""
        return bytes(self._computed.auth_bytes())

    def receive(self, message: bytes) -> None:
        """See Exchange."""
        if message and not self._has_reason:
            raise WireError(f"{self._mechanism} answer", 0, _shown(message), "no data")
        self._has_reason = False
        self._computed.receive(b"" if not message else b"refused")

    def is_done(self) -> bool:
        """See Exchange."""
        return bool(self._computed.is_done())


class ScramExchange:
    """SCRAM: the server's first message has nonce, salt and iteration count, its final message has a signature."""

    def __init__(self, mechanism: str, computed: Any) -> None:
        self._mechanism = mechanism
        self._computed = computed
        self._nonce = b""
        self._check = self._check_first

    def auth_bytes(self) -> bytes:
        """See Exchange."""
        sent = bytes(self._computed.auth_bytes())
        if not self._nonce:
            self._nonce = sent.rpartition(b",r=")[2]
        return sent

    def receive(self, message: bytes) -> None:
        """See Exchange."""
        self._check(message)
        self._check = self._check_final
        try:
            self._computed.receive(message)
        except ValueError as exc:
            what = "the signature of a server that knows the password"
            raise WireError(f"{self._mechanism} server-final-message", 0, "another signature", what) from exc

    def is_done(self) -> bool:
        """See Exchange."""
        return bool(self._computed.is_done())

    def _check_first(self, message: bytes) -> None:
        name = f"{self._mechanism} server-first-message"
        match = _SERVER_FIRST.fullmatch(message)
        if match is None:
            raise WireError(name, 0, _shown(message), "r=nonce,s=salt,i=iterations")
        if not match[1].startswith(self._nonce) or match[1] == self._nonce:
            raise WireError(name, match.start(1), "another nonce", "our nonce with the server's nonce behind it")
        _check_base64(name, match.start(2), match[2])
        iterations = int(match[3])
        if not FEWEST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            expected = f"{FEWEST_ITERATIONS} to {MOST_ITERATIONS} iterations"
            raise WireError(name, match.start(3), iterations, expected)

    def _check_final(self, message: bytes) -> None:
        name = f"{self._mechanism} server-final-message"
        match = _SERVER_FINAL.fullmatch(message)
        if match is None:
            raise WireError(name, 0, _shown(message), "v=signature")
        if match[2] is not None:
            raise AuthorizationError(f"{name}: the server refused us: {match[2].decode('ascii')[:_SHOWN]}")
        _check_base64(name, match.start(1), match[1])


def _check_base64(name: str, position: int, text: bytes) -> None:
    try:
        base64.b64decode(text, validate=True)
    except ValueError as exc:
        raise WireError(name, position, _shown(text), "base64") from exc


def _shown(message: bytes) -> str:
    return f"{len(message)} bytes {message[:_SHOWN]!r}"


# The logins: by a password, or by a token.

PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Login(Protocol):
    """How a connection authenticates; hashable and picklable.

    Attributes:
        mechanism: the mechanism on the wire.
        user: for messages.
    """

    @property
    def mechanism(self) -> str: ...  # noqa: D102 - see the class
    @property
    def user(self) -> str: ...  # noqa: D102 - see the class

    def exchange(self, host: str, protocol: str) -> Exchange:
        """The messages of one authentication."""


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    """A Login by user and password: PLAIN or SCRAM."""

    mechanism: str
    user: str
    password: str = field(repr=False)

    def exchange(self, host: str, protocol: str) -> Exchange:
        """See Login."""
        computed = get_sasl_mechanism(self.mechanism)(
            host=host,
            security_protocol=protocol,
            sasl_mechanism=self.mechanism,
            sasl_plain_username=self.user,
            sasl_plain_password=self.password,
        )
        if self.mechanism == "PLAIN":
            return NoDataExchange(self.mechanism, computed, has_reason=False)
        return ScramExchange(self.mechanism, computed)


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """A Login by a token.

    Attributes:
        extensions: SASL extensions (KIP-342), by name.
    """

    source: TokenSource
    extensions: tuple[tuple[str, str], ...] = ()

    @property
    def mechanism(self) -> str:
        """See Login."""
        return OAUTHBEARER

    @property
    def user(self) -> str:
        """See Login."""
        return self.source.user

    def exchange(self, host: str, protocol: str) -> Exchange:
        """See Login."""
        del host, protocol
        provider = _Provider(current(self.source).text, dict(self.extensions))
        computed = get_sasl_mechanism(self.mechanism)(sasl_oauth_token_provider=provider)
        return NoDataExchange(self.mechanism, computed, has_reason=True)


class _Provider(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str, extensions: dict[str, str]) -> None:
        super().__init__()
        self._token = token
        self._extensions = extensions

    def token(self) -> str:
        """The token."""
        return self._token

    def extensions(self) -> dict[str, str]:
        """The SASL extensions."""
        return self._extensions


# SASL GSSAPI: the login by Kerberos, with the library of MIT Kerberos through the package `gssapi` (an extra).
#
# With a keytab, the library gets and renews the ticket itself. Without one, it uses the ticket cache of the user.

GSSAPI: Final = "GSSAPI"
_CACHE: Final = "MEMORY:txnwatch"
_WITHOUT_LAYER: Final = 1  # RFC 4752: authentication only; TLS protects the connection
_LIMITS = struct.Struct(">BBH")


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """A Login by Kerberos.

    Attributes:
        service: the first part of the brokers' principals.
        principal, keytab: ours; None for the ticket cache.
    """

    service: str
    principal: str | None = None
    keytab: str | None = None

    @property
    def mechanism(self) -> str:
        """See Login."""
        return GSSAPI

    @property
    def user(self) -> str:
        """See Login; the brokers' default rules keep the first part of the principal."""
        return self.principal.partition("@")[0].partition("/")[0] if self.principal is not None else "of the ticket"

    def exchange(self, host: str, protocol: str) -> Exchange:
        """See Login.

        Raises:
            ConfigError: the package `gssapi` is not installed.
            BrokerError: Kerberos gives no ticket.
        """
        del protocol
        return _Exchange(self, host)


class _Exchange:
    """The messages of one authentication (RFC 4752), as kafka-python's class SaslMechanism has them."""

    def __init__(self, login: KerberosLogin, host: str) -> None:
        self._gssapi = _library()
        self._is_done = False
        self._is_last = False
        self._where = f"Kerberos for {login.service}@{host}"
        try:
            self._context = self._new_context(login, host)
            self._next: bytes | None = self._context.step()
        except self._gssapi.exceptions.GSSError as exc:
            raise self._error(exc) from exc

    def _new_context(self, login: KerberosLogin, host: str) -> Any:
        gssapi = self._gssapi
        credentials = None
        if login.keytab is not None:
            name = gssapi.Name(login.principal, gssapi.NameType.kerberos_principal)
            store = {"client_keytab": login.keytab, "ccache": _CACHE}
            credentials = gssapi.Credentials(name=name, usage="initiate", store=store)
        service = gssapi.Name(f"{login.service}@{host}", gssapi.NameType.hostbased_service)
        return gssapi.SecurityContext(name=service, creds=credentials, usage="initiate", mech=gssapi.MechType.kerberos)

    def auth_bytes(self) -> bytes:
        """The next message to the broker."""
        self._is_done = self._is_last
        return self._next or b""

    def receive(self, message: bytes) -> None:
        """Takes the broker's answer."""
        if self._is_done:
            return
        try:
            if not self._context.complete:
                self._next = self._context.step(message)
                return
            offered, *_ = _LIMITS.unpack(self._context.unwrap(message).message)
            if not offered & _WITHOUT_LAYER:
                raise BrokerError(f"{self._where}: the broker demands a security layer, which Kafka does not have")
            self._next = self._context.wrap(_LIMITS.pack(_WITHOUT_LAYER, 0, 0), False).message
            self._is_last = True
        except (self._gssapi.exceptions.GSSError, struct.error) as exc:
            raise self._error(exc) from exc

    def is_done(self) -> bool:
        """Whether the last message was sent."""
        return self._is_done

    def _error(self, exc: Exception) -> BrokerError:
        return BrokerError(f"{self._where}: {' '.join(str(exc).split())}")


def _library() -> Any:
    try:
        import gssapi  # noqa: PLC0415 - an extra
    except (ImportError, OSError) as exc:
        why = "the package gssapi is missing" if isinstance(exc, ModuleNotFoundError) else str(exc)
        raise ConfigError(
            f"sasl.mechanism GSSAPI needs `{install_command('kerberos')}` and the libraries of MIT Kerberos: {why}"
        ) from exc
    return gssapi


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


def _check_class(key: str, properties: Mapping[str, str], names: frozenset[str]) -> None:
    name = properties.get(key, "")
    if name and name.rpartition(".")[2] not in names:
        raise ConfigError(f"{key}: expected a class named {' or '.join(sorted(names))}, found {name!r}")


# The security of a connection: TLS, a login, both or none.

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


def own_principal(security: Security) -> str | None:
    """The principal of a connection by the client's own settings; None if these do not have it.

    The brokers may map it to another name. No answer of Kafka says which one they see.

    Raises:
        ConfigError, BrokerError: the keystore cannot be used.
    """
    match security.login:
        case PasswordLogin(user=user) | KerberosLogin(user=user, principal=str()):
            return f"User:{user}"
        case None:
            subject = security.tls.subject() if security.uses_tls else None
            return f"User:{subject}" if subject is not None else "User:ANONYMOUS"
    return None  # of a token or a ticket, which only the issuer and the brokers read


def principal_of(security: Security) -> str:
    """The principal that the brokers see, as far as the client's settings show it."""
    if security.login is not None:
        return f"User:{security.login.user}"
    is_named = security.uses_tls and security.tls.keys is not None
    return "User:<subject of the client certificate>" if is_named else "User:ANONYMOUS"
