"""The TLS side of a connection: one context per settings and process, made again when a file has changed.

Law: settings that do not work at the start are a ConfigError. A file that worked before and does not now is a
BrokerError, which is tried again: somebody may be replacing the file at this moment.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from txnwatch.state.model.errors import BrokerError, ConfigError
from txnwatch.streaming.client.pem import encrypted
from txnwatch.streaming.client.stores import Store, keystore_of, truststore_of

_EXPIRED: Final = 10  # X509_V_ERR_CERT_HAS_EXPIRED
Stamps = tuple[tuple[int, ...], ...]
_T = TypeVar("_T")


class Content(NamedTuple):
    """The content of the stores: trusted certificates and the client's chain as PEM, and the client's private key."""

    trusted: str | None
    chain: str | None
    key: PrivateKeyTypes | None


@dataclass(frozen=True, slots=True)
class Tls:
    """The settings of TLS; hashable and picklable, without open resources.

    Attributes:
        trust: the trusted authorities; the system's if it is None.
        keys: the client certificate and its key.
        verify_host: whether the broker's certificate must name its host.
    """

    trust: Store | None = None
    keys: Store | None = None
    verify_host: bool = True

    @property
    def stamps(self) -> Stamps:
        """What changes with the files."""
        return tuple(store.stamp for store in (self.trust, self.keys) if store is not None)

    def context(self) -> ssl.SSLContext:
        """The TLS context for a new connection.

        Raises:
            ConfigError: a store cannot be used.
            BrokerError: a store could be used before, and cannot be used since it was changed.
        """
        stamps = self.stamps
        known = _CONTEXTS.get(self)
        if known is not None and known[0] == stamps:
            return known[1]
        context = self._retried(self._new_context)
        _CONTEXTS[self] = (stamps, context)
        return context

    def content(self) -> Content:
        """The content of the stores, for a client that does not read them itself.

        Raises:
            ConfigError, BrokerError: as `context`.
        """
        return self._retried(self._content)

    def _content(self) -> Content:
        trusted = self.trust.trusted() if self.trust is not None else None
        chain, key = self.keys.chain_and_key() if self.keys is not None else (None, None)
        return Content(trusted, chain, key)

    def _retried(self, read: Callable[[], _T]) -> _T:
        try:
            return read()
        except ConfigError as exc:
            if self not in _CONTEXTS:
                raise
            raise BrokerError(f"after a change of the file: {exc}") from exc

    def _new_context(self) -> ssl.SSLContext:
        content = self._content()
        try:
            context = ssl.create_default_context(cadata=content.trusted)
        except ssl.SSLError as exc:
            assert self.trust is not None
            raise _unusable(self.trust, exc) from exc
        context.check_hostname = self.verify_host
        if content.chain is not None and content.key is not None:
            try:
                _load(context, content.chain, content.key)
            except ssl.SSLError as exc:
                assert self.keys is not None
                raise _unusable(self.keys, exc) from exc
        return context

    def expired(self) -> list[str]:
        """Our certificates that are not valid any more, each with its file and its date."""
        found: list[str] = []
        with contextlib.suppress(ConfigError, ValueError):
            if self.keys is not None:
                found += _expired_in(self.keys, self.keys.chain_and_key()[0])
            if self.trust is not None:
                found += _expired_in(self.trust, self.trust.trusted())
        return found

    def doubt(self, exc: BaseException, host: str, port: int) -> str:
        """What a TLS error does not name: the expired certificates, ours or the broker's."""
        if not isinstance(exc, ssl.SSLError):
            return ""
        named = self.expired()
        if isinstance(exc, ssl.SSLCertVerificationError) and exc.verify_code == _EXPIRED and not named:
            named = _expired_of_broker(host, port)
        return f" (expired: {'; '.join(named)})" if named else ""


def tls_of(properties: Mapping[str, str]) -> Tls:
    """The settings of TLS among client properties.

    Raises:
        ConfigError: a value is unknown, or values contradict each other.
    """
    verify_host = properties.get("ssl.endpoint.identification.algorithm", "https") != ""
    return Tls(truststore_of(properties), keystore_of(properties), verify_host)


_CONTEXTS: Final[dict[Tls, tuple[Stamps, ssl.SSLContext]]] = {}


def _load(context: ssl.SSLContext, chain: str, key: PrivateKeyTypes) -> None:
    """Gives the client certificate to OpenSSL, which reads only files: the key in it is encrypted."""
    password = secrets.token_urlsafe(24)
    with tempfile.NamedTemporaryFile(mode="w", suffix=".pem") as file:  # only its owner may read it
        file.write(chain + encrypted(key, password))
        file.flush()
        context.load_cert_chain(file.name, password=password)


def _unusable(store: Store, exc: ssl.SSLError) -> ConfigError:
    found = exc.reason or str(exc)
    return ConfigError(f"{store.name}: expected {store.kind} certificates in {store.place}, found: {found}")


def _expired_in(store: Store, pem: str) -> list[str]:
    certificates = x509.load_pem_x509_certificates(pem.encode())
    return [f"{shown} of {store.name} in {store.place}" for shown in map(_expiry, certificates) if shown]


def _expiry(certificate: x509.Certificate) -> str | None:
    until = certificate.not_valid_after_utc
    if until >= datetime.now(UTC):
        return None
    return f"{certificate.subject.rfc4514_string() or 'a certificate'}, valid until {until:%Y-%m-%d %H:%M} UTC,"


def _expired_of_broker(host: str, port: int) -> list[str]:
    """The broker's certificate if it is expired; this connection sends nothing, so it need not be trusted."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with contextlib.suppress(OSError, ValueError):
        with (
            socket.create_connection((host, port), timeout=2.0) as plain,
            context.wrap_socket(plain, server_hostname=host) as asked,
        ):
            der = asked.getpeercert(binary_form=True)
        shown = _expiry(x509.load_der_x509_certificate(der)) if der is not None else None
        return [f"{shown} of the broker"] if shown else []
    return []
