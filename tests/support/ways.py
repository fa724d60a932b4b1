"""One broker with a listener for every way in, and the client properties of each way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from support.certificates import Authority
from support.java_keys import PASSWORD, keystore, truststore
from support.token_server import AUDIENCE, CLIENT, CLIENT_SECRET, ISSUER, TOKEN_MARK, TokenServer
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

USER, SECRET = "alice", "alice-secret"
_SECURITY = "org.apache.kafka.common.security"
_PLAIN = f"{_SECURITY}.plain.PlainLoginModule required"
_SCRAM = f"{_SECURITY}.scram.ScramLoginModule required"
_TOKEN = f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required"
_VALIDATOR = f"{_SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler"
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_WITH_TOKEN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.login.callback.handler.class": f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
}
SESSION_MS = 3_000
# The names of all ways in, for the parameters of tests; `Broker.ways` has their properties.
WAYS = (
    *("TLS, JKS truststore and keystore", "TLS, PKCS12 truststore and keystore", "TLS, PEM truststore and keystore"),
    *("TLS, inline PEM", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    *("OAUTHBEARER, client credentials", "OAUTHBEARER, token file"),
)
WITH_KERBEROS = "GSSAPI, keytab"
_SCRAM_BITS = {"256": ScramMechanism.SCRAM_SHA_256, "512": ScramMechanism.SCRAM_SHA_512}


@dataclass(frozen=True, slots=True)
class Way:
    """One way to connect.

    Attributes:
        listener: of the broker.
        properties: of the client.
        secrets: texts that must not be shown.
    """

    listener: str
    properties: Mapping[str, str]
    secrets: tuple[str, ...]


class Broker:
    """The broker, and the files and servers that its clients need."""

    listeners: Mapping[str, str] = {"TLS": "SSL", "MUTUAL": "SSL", "LOGIN": "SASL_SSL", "TOKEN": "SASL_SSL"}

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.authority = Authority(directory, "ours").create()
        self.client_keys = self.authority.issue("client", "DNS:client")
        self._trusted = directory / "trusted.pem"
        self.trust_clients_of(self.authority)
        self.tokens = TokenServer(directory, self.authority.issue("tokens", "IP:127.0.0.1"))
        self.token_file = directory / "token"

    def kafka(self) -> EmbeddedKafka:
        """The broker before its start."""
        users = f'{_PLAIN} user_{USER}="{SECRET}";'
        properties = {
            "listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.token.sasl.enabled.mechanisms": "OAUTHBEARER",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.authority.issue("broker", "IP:127.0.0.1")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._trusted),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.login.plain.sasl.jaas.config": users,
            **{f"listener.name.login.scram-sha-{bits}.sasl.jaas.config": f"{_SCRAM};" for bits in _SCRAM_BITS},
            **self._token_listener(),
        }
        return EmbeddedKafka(
            self._directory / "kafka",
            listeners=self.listeners,
            properties=properties,
            system_properties={"org.apache.kafka.sasl.oauthbearer.allowed.urls": self.tokens.key_set.as_uri()},
        )

    def _token_listener(self) -> dict[str, str]:
        prefix = "listener.name.token"
        return {
            f"{prefix}.oauthbearer.sasl.jaas.config": f"{_TOKEN};",
            f"{prefix}.oauthbearer.sasl.server.callback.handler.class": _VALIDATOR,
            f"{prefix}.sasl.oauthbearer.jwks.endpoint.url": self.tokens.key_set.as_uri(),
            f"{prefix}.sasl.oauthbearer.expected.audience": AUDIENCE,
            f"{prefix}.sasl.oauthbearer.expected.issuer": ISSUER,  # brokers since 4.4 do not start without it
            f"{prefix}.connections.max.reauth.ms": str(SESSION_MS),
        }

    def trust_clients_of(self, *authorities: Authority) -> None:
        """Whose certificates clients may have, from the next start of the broker on."""
        self._trusted.write_text("".join(authority.certificate.read_text() for authority in authorities))

    def add_users(self, kafka: EmbeddedKafka) -> None:
        """Writes the credentials of SCRAM."""
        admin = _admin(kafka)
        for mechanism in _SCRAM_BITS.values():
            wanted = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), SECRET.encode())
            admin.alter_user_scram_credentials([wanted])[USER].result(10.0)

    def remove_users(self, kafka: EmbeddedKafka) -> None:
        """Removes the credentials of SCRAM: from now on the broker refuses new connections with them."""
        admin = _admin(kafka)
        for mechanism in _SCRAM_BITS.values():
            gone = UserScramCredentialDeletion(USER, mechanism)
            admin.alter_user_scram_credentials([gone])[USER].result(10.0)

    def trust(self, kind: str = "PEM") -> dict[str, str]:
        """The properties that trust the broker, by a file of this kind."""
        settings = {"ssl.truststore.type": kind, "ssl.truststore.location": str(self.authority.certificate)}
        if kind == "PEM":
            return settings
        path = truststore(self._directory / f"trust.{kind.lower()}", kind, self.authority.certificate)
        return {**settings, "ssl.truststore.location": str(path), "ssl.truststore.password": PASSWORD}

    def keys(self, kind: str) -> dict[str, str]:
        """The properties of the client certificate, in a file of this kind."""
        settings = {"ssl.keystore.type": kind, "ssl.keystore.location": str(self.client_keys)}
        if kind == "PEM":
            return settings
        path = keystore(self._directory / f"keys.{kind.lower()}", kind, self.client_keys)
        return {**settings, "ssl.keystore.location": str(path), "ssl.keystore.password": PASSWORD}

    def ways(self) -> dict[str, Way]:
        """Every way in, by the name that the documentation shows."""
        text = self.client_keys.read_text()
        key, chain = text[: text.index("-----BEGIN CERTIFICATE")], text[text.index("-----BEGIN CERTIFICATE") :]
        inline = {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": self.authority.certificate.read_text(),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": chain,
            "ssl.keystore.key": key,
        }
        tls, trust = {"security.protocol": "SSL"}, self.trust()
        by_kind = {
            f"TLS, {kind} truststore and keystore": Way("MUTUAL", tls | self.trust(kind) | self.keys(kind), secrets)
            for kind, secrets in (("JKS", (PASSWORD, key)), ("PKCS12", (PASSWORD, key)), ("PEM", (key,)))
        }
        return {
            **by_kind,
            "TLS, inline PEM": Way("MUTUAL", tls | inline, (key,)),
            "PLAIN": Way("LOGIN", _login("PLAIN", _PLAIN) | trust, (SECRET,)),
            "SCRAM-SHA-256": Way("LOGIN", _login("SCRAM-SHA-256", _SCRAM) | trust, (SECRET,)),
            "SCRAM-SHA-512": Way("LOGIN", _login("SCRAM-SHA-512", _SCRAM) | trust, (SECRET,)),
            "OAUTHBEARER, client credentials": Way(
                "TOKEN", self.client_credentials() | trust, (CLIENT_SECRET, TOKEN_MARK)
            ),
            "OAUTHBEARER, token file": Way(
                "TOKEN", self._token_file() | trust, (self.token_file.read_text(), TOKEN_MARK)
            ),
        }

    def client_credentials(self, secret: str = CLIENT_SECRET) -> dict[str, str]:
        """The properties of a login by client credentials."""
        options = {
            "clientId": CLIENT,
            "clientSecret": secret,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
        }
        shown = " ".join(f'{name}="{value}"' for name, value in options.items())
        return {**_WITH_TOKEN, "sasl.jaas.config": f"{_TOKEN} {shown};", _ENDPOINT: self.tokens.url}

    def _token_file(self) -> dict[str, str]:
        self.token_file.write_text(self.tokens.token())
        return {**_WITH_TOKEN, "sasl.jaas.config": f"{_TOKEN};", _ENDPOINT: self.token_file.as_uri()}


def _admin(kafka: EmbeddedKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 2})


def _login(mechanism: str, module: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} username="{USER}" password="{SECRET}";',
    }
