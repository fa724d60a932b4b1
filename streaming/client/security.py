"""Security settings of a connection: Java client properties to a TLS context and a SASL mechanism.

Operators already have a client properties file (`--command-config`), so its keys are used here too. The same keys with
the prefix `kafka.` are the source's options, as in Spark's Kafka source. A setting that Python cannot read (JKS stores,
login modules of other mechanisms) is an error that names the remedy.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from txnwatch.state.model.errors import ConfigError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_ESCAPED = re.compile(r"\\(.)")
_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


@dataclass(frozen=True, slots=True)
class Security:
    """What a connection needs besides host and port; hashable and picklable, without open resources.

    Attributes:
        protocol: one of PROTOCOLS.
        ca_file, ca_text: trusted certificates in PEM, as a path or inline; the system's if neither is given.
        certificate_file: client certificate chain and key in one PEM file.
        verify_host: whether the broker's certificate must name its host.
    """

    protocol: str = "PLAINTEXT"
    ca_file: str | None = None
    ca_text: str | None = None
    certificate_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify_host: bool = True
    mechanism: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def uses_tls(self) -> bool:
        """Whether the connection uses TLS."""
        return self.protocol in {"SSL", "SASL_SSL"}

    @property
    def uses_sasl(self) -> bool:
        """Whether the connection authenticates by SASL."""
        return self.protocol.startswith("SASL_")

    def tls_context(self) -> ssl.SSLContext:
        """The TLS context for one connection.

        Raises:
            ConfigError: a certificate file is missing or is not PEM.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca_file, cadata=self.ca_text)
            context.check_hostname = self.verify_host
            if self.certificate_file is not None:
                # if no password is given, OpenSSL asks for one on the terminal
                context.load_cert_chain(self.certificate_file, password=self.key_password or "")
        except (OSError, ssl.SSLError) as exc:
            named = " and ".join(filter(None, (self.ca_file, self.certificate_file))) or "inline certificates"
            raise ConfigError(f"TLS set-up: expected PEM certificates in {named}, found: {exc}") from exc
        return context


def security_of(properties: Mapping[str, str]) -> Security:
    """The security settings among Java client properties; other keys are ignored.

    Raises:
        ConfigError: a value is unknown, incomplete, or of a kind that Python cannot read.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(f"security.protocol: expected one of {', '.join(PROTOCOLS)}, found {protocol!r}")
    uses_tls = protocol in {"SSL", "SASL_SSL"}
    for unread in ("ssl.keystore.key", "ssl.keystore.certificate.chain"):
        if unread in properties:
            raise ConfigError(f"{unread}: expected a PEM file in ssl.keystore.location, found inline text")
    mechanism, username, password = _sasl(properties) if protocol.startswith("SASL_") else (None, None, None)
    return Security(
        protocol=protocol,
        ca_file=_pem_path(properties, "ssl.truststore") if uses_tls else None,
        ca_text=properties.get("ssl.truststore.certificates"),
        certificate_file=_pem_path(properties, "ssl.keystore") if uses_tls else None,
        key_password=properties.get("ssl.key.password"),
        verify_host=properties.get("ssl.endpoint.identification.algorithm", "https") != "",
        mechanism=mechanism,
        username=username,
        password=password,
    )


def _pem_path(properties: Mapping[str, str], store: str) -> str | None:
    location = properties.get(f"{store}.location")
    if location is None:
        return None
    kind = properties.get(f"{store}.type", "JKS").upper()
    if kind != "PEM":
        raise ConfigError(
            f"{store}.type: expected PEM, found {kind} for {location}. Export it once, for example with "
            f"`keytool -exportcert -rfc`, and set {store}.type=PEM"
        )
    return location


def _sasl(properties: Mapping[str, str]) -> tuple[str, str, str]:
    mechanism = properties.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        raise ConfigError(f"sasl.mechanism: expected one of {', '.join(MECHANISMS)}, found {mechanism!r}")
    jaas = properties.get("sasl.jaas.config", "")
    options = {
        name: bare or _ESCAPED.sub(r"\1", double or single) for name, double, single, bare in _JAAS_OPTION.findall(jaas)
    }
    username = options.get("username", properties.get("sasl.username"))
    password = options.get("password", properties.get("sasl.password"))
    if not username or password is None:
        raise ConfigError('sasl.jaas.config: expected a login module with username="..." and password="..."')
    return mechanism, username, password
