"""The TLS side of a connection: one context per settings and process, made again when a file has changed.

Law: settings that do not work at the start are a ConfigError. A file that worked before and does not now is a
BrokerError, which is tried again: somebody may be replacing the file at this moment.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import socket
import ssl
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_der_private_key,
    pkcs12,
)
from cryptography.hazmat.primitives.serialization import load_pem_private_key as load_key

from txnwatch.state.model.errors import BrokerError, ConfigError, install_command

# PEM text: its blocks, as Kafka reads them, and private keys as OpenSSL's readers take them.
#
# A value of a properties file may have its line breaks lost, because Kafka's own parser ignores white space in a block.
# OpenSSL's does not, so every block is wrapped again.

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_HEADER = re.compile(r"[\w-]+:[^\n]*\n")
_WIDTH = 64


class UnusableStoreError(ValueError):
    """Why a store cannot be used; the message has no secret."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block: its label, for example CERTIFICATE, and the whole block as PEM."""

    label: str
    text: str


def blocks(text: str) -> list[Block]:
    """All blocks of a text."""
    return [Block(label, _wrapped(label, body)) for label, body in _BLOCK.findall(text)]


def _wrapped(label: str, body: str) -> str:
    headers = "".join(_HEADER.findall(body)) if "Proc-Type" in body else ""  # an encrypted key in the old form
    data = textwrap.fill("".join((_HEADER.sub("", body) if headers else body).split()), _WIDTH)
    gap = "\n" if headers else ""
    return f"-----BEGIN {label}-----\n{headers}{gap}{data}\n-----END {label}-----\n"


def certificates_of(text: str) -> str:
    """The certificates of a text, one after the other.

    Raises:
        UnusableStoreError: there is none.
    """
    certificates = [block.text for block in blocks(text) if block.label == "CERTIFICATE"]
    if not certificates:
        raise UnusableStoreError("no PEM certificate")
    return "".join(certificates)


def private_key_of(text: str, password: str | None) -> PrivateKeyTypes:
    """The private key of a text.

    Raises:
        UnusableStoreError: there is none, or the password does not open it.
    """
    keys = [block.text for block in blocks(text) if block.label.endswith("PRIVATE KEY")]
    if not keys:
        raise UnusableStoreError("no private key in PEM")
    key = keys[0]
    is_encrypted = "ENCRYPTED" in key
    if is_encrypted and not password:
        raise UnusableStoreError("an encrypted private key and no ssl.key.password")
    try:
        return load_key(key.encode(), password.encode() if password and is_encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as exc:
        problem = "a private key that ssl.key.password does not open" if is_encrypted else "an invalid private key"
        raise UnusableStoreError(problem) from exc


def encrypted(key: PrivateKeyTypes, password: str) -> str:
    """A private key as PEM, encrypted."""
    encryption = BestAvailableEncryption(password.encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()


# Java's binary stores, JKS and PKCS12: certificates as PEM, and the private key.
#
# As in Java, a store of one of the two types is read under the name of the other: keytool writes PKCS12 to every new
# `.jks` file. If a keystore has several private keys, the first in the order of the aliases is used.

_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_DER_SEQUENCE = b"\x30"


def _is_jks(data: bytes) -> bool:
    """Whether the data begins like a JKS store."""
    return data.startswith(_JKS_MAGIC)


def _is_pkcs12(data: bytes) -> bool:
    """Whether the data begins like a PKCS12 store."""
    return data.startswith(_DER_SEQUENCE)


def _trusted_in(data: bytes, password: str | None) -> str:
    """The trusted certificates of a store.

    Raises:
        UnusableStoreError: the password is wrong, or there is no certificate.
    """
    if _is_jks(data):
        store = _jks(data, password)
        certificates = [entry.cert for entry in store.certs.values()]
        others = sorted(store.private_keys)
    else:
        pfx = _pkcs12(data, password)
        certificates = [cert.certificate.public_bytes(Encoding.DER) for cert in pfx.additional_certs]
        others = [_alias(pfx.cert)] if pfx.key is not None else []
    if not certificates:
        raise UnusableStoreError(f"no trusted certificate{_only('private key', others)}")
    return _as_pem(certificates)


def _key_in(data: bytes, password: str | None, key_password: str | None) -> tuple[str, PrivateKeyTypes]:
    """The certificate chain and the private key of a store.

    Raises:
        UnusableStoreError: a password is wrong, or there is no private key.
    """
    return _jks_key(data, password, key_password) if _is_jks(data) else _pkcs12_key(data, password)


def _jks_key(data: bytes, password: str | None, key_password: str | None) -> tuple[str, PrivateKeyTypes]:
    store = _jks(data, password)
    if not store.private_keys:
        raise UnusableStoreError(f"no private key{_only('certificate', sorted(store.certs))}")
    alias, entry = min(store.private_keys.items())
    if not entry.is_decrypted():
        _decrypt(alias, entry, key_password or password)
    chain = _as_pem([der for _, der in entry.cert_chain])
    return chain, load_der_private_key(entry.pkey_pkcs8, None)


def _decrypt(alias: str, entry: Any, password: str | None) -> None:
    from jks.util import KeystoreException  # noqa: PLC0415 - an extra

    try:
        entry.decrypt(password or "")
    except (KeystoreException, ValueError) as exc:
        raise UnusableStoreError(f"a private key {alias!r} that ssl.key.password does not open") from exc


def _jks(data: bytes, password: str | None) -> Any:
    try:
        import jks  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as exc:
        raise UnusableStoreError(f"a JKS store and no reader for it: {install_command('jks')}") from exc
    try:
        return jks.KeyStore.loads(data, password, try_decrypt_keys=password is not None)
    except jks.KeystoreSignatureException as exc:
        raise UnusableStoreError("a store that the password does not open") from exc
    except (jks.util.KeystoreException, ValueError, IndexError) as exc:
        raise UnusableStoreError(f"a damaged JKS store ({type(exc).__name__})") from exc


def _pkcs12_key(data: bytes, password: str | None) -> tuple[str, PrivateKeyTypes]:
    pfx = _pkcs12(data, password)
    if pfx.key is None or pfx.cert is None:
        raise UnusableStoreError(
            f"no private key{_only('certificate', [_alias(cert) for cert in pfx.additional_certs])}"
        )
    chain = [cert.certificate.public_bytes(Encoding.DER) for cert in (pfx.cert, *pfx.additional_certs)]
    return _as_pem(chain), pfx.key


def _pkcs12(data: bytes, password: str | None) -> pkcs12.PKCS12KeyAndCertificates:
    try:
        return pkcs12.load_pkcs12(data, password.encode() if password is not None else None)
    except (ValueError, UnsupportedAlgorithm) as exc:
        problem = "a store that the password does not open" if password is not None else "a store and no password"
        raise UnusableStoreError(f"{problem}, or a damaged PKCS12 store") from exc


def _alias(cert: pkcs12.PKCS12Certificate | None) -> str:
    return (
        cert.friendly_name.decode(errors="replace") if cert is not None and cert.friendly_name else "without an alias"
    )


def _only(kind: str, aliases: list[str]) -> str:
    return f", only the {kind} of: {', '.join(aliases)}" if aliases else ", the store is empty"


def _as_pem(certificates: list[bytes]) -> str:
    return "".join(ssl.DER_cert_to_PEM_cert(der) for der in certificates)


# Truststores and keystores under the names of Kafka's Java client: files of three types, and inline PEM (KIP-651).
#
# A store is a value without open resources; `open` reads it each time, so that a renewed file is used.

PEM, JKS, PKCS12 = "PEM", "JKS", "PKCS12"
TYPES = (PEM, JKS, PKCS12)
_INLINE = "the inline text"
_Store = TypeVar("_Store")


@dataclass(frozen=True, slots=True)
class Store:
    """The settings of one store.

    Attributes:
        name: the prefix of its settings, `ssl.truststore` or `ssl.keystore`.
        kind: one of TYPES.
        location: the file; None if the content is inline.
        password: of the file. PEM files have none.
        certificates, key: the content, if it is inline.
        key_password: of the private key; for JKS the password of the file if it is not given.
    """

    name: str
    kind: str
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    certificates: str | None = None
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)

    def trusted(self) -> str:
        """The trusted certificates as PEM.

        Raises:
            ConfigError: the store cannot be used; the message names the file and the reason.
        """
        if self.location is None:
            return self._checked(lambda: certificates_of(self.certificates or ""))
        if self.kind == PEM:
            return self._checked(lambda: certificates_of(self._text()))
        return self._checked(lambda: _trusted_in(self._data(), self.password))

    def chain_and_key(self) -> tuple[str, PrivateKeyTypes]:
        """The certificate chain as PEM, and its private key.

        Raises:
            ConfigError: the store cannot be used; the message names the file and the reason.
        """
        if self.location is None:
            chain, key = self.certificates or "", self.key or ""
            return self._checked(lambda: (certificates_of(chain), private_key_of(key, self.key_password)))
        if self.kind == PEM:
            return self._checked(self._of_pem_file)
        return self._checked(lambda: _key_in(self._data(), self.password, self.key_password))

    @property
    def stamp(self) -> tuple[int, ...]:
        """What changes with the file: its inode, its size and its time; empty if there is no file."""
        try:
            status = Path(self.location).stat() if self.location is not None else None
        except OSError:
            return ()
        return (status.st_ino, status.st_size, status.st_mtime_ns) if status is not None else ()

    @property
    def place(self) -> str:
        """The file, or that the content is inline, for messages."""
        return self.location if self.location is not None else _INLINE

    def _of_pem_file(self) -> tuple[str, PrivateKeyTypes]:
        text = self._text()
        return certificates_of(text), private_key_of(text, self.key_password)

    def _checked(self, read: Callable[[], _Store]) -> _Store:
        try:
            return read()
        except OSError as exc:
            problem = exc.strerror or type(exc).__name__
        except UnusableStoreError as exc:
            problem = str(exc)
        raise ConfigError(f"{self.name}: expected {self.kind} certificates in {self.place}, found: {problem}")

    def _text(self) -> str:
        data = self._read()
        if _is_jks(data) or _is_pkcs12(data):
            kind = JKS if _is_jks(data) else PKCS12
            raise UnusableStoreError(f"no PEM, but {kind} or another binary form (is {self.name}.type={kind} right?)")
        return data.decode(errors="replace")

    def _data(self) -> bytes:
        data = self._read()
        if not _is_jks(data) and not _is_pkcs12(data):
            hint = f" (is {self.name}.type=PEM right?)" if b"-----BEGIN" in data else ""
            raise UnusableStoreError(f"neither JKS nor PKCS12{hint}")
        return data

    def _read(self) -> bytes:
        assert self.location is not None
        return Path(self.location).read_bytes()


def _truststore_of(properties: Mapping[str, str]) -> Store | None:
    """The truststore among client properties; None if the system's authorities are trusted.

    Raises:
        ConfigError: settings are unknown or contradict each other.
    """
    name = "ssl.truststore"
    inline = properties.get(f"{name}.certificates")
    if inline is None and f"{name}.location" not in properties:
        return None
    return _store(name, properties, inline, None)


def _keystore_of(properties: Mapping[str, str]) -> Store | None:
    """The keystore among client properties; None without a client certificate.

    Raises:
        ConfigError: settings are unknown or contradict each other.
    """
    name = "ssl.keystore"
    chain, key = properties.get(f"{name}.certificate.chain"), properties.get(f"{name}.key")
    if (chain is None) != (key is None):
        given, missing = ("key", "certificate.chain") if chain is None else ("certificate.chain", "key")
        raise ConfigError(f"{name}.{given}: expected {name}.{missing} as well, found none")
    if chain is None and f"{name}.location" not in properties:
        return None
    return _store(name, properties, chain, key)


def _store(name: str, properties: Mapping[str, str], inline: str | None, key: str | None) -> Store:
    location = properties.get(f"{name}.location")
    if inline is not None and location is not None:
        raise ConfigError(f"{name}.location: expected either a file or inline text, found both")
    kind = properties.get(f"{name}.type", PEM if inline is not None else JKS).upper()
    if kind not in TYPES:
        raise ConfigError(f"{name}.type: expected one of {', '.join(TYPES)}, found {kind!r}")
    if inline is not None and kind != PEM:
        raise ConfigError(f"{name}.type: expected PEM for inline text, found {kind}")
    return Store(
        name,
        kind,
        location,
        password=properties.get(f"{name}.password"),
        certificates=inline,
        key=key,
        key_password=properties.get("ssl.key.password") if name == "ssl.keystore" else None,
    )


# The TLS of a connection: its settings, and its context, which is made again when a file has changed.

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
        cached = _CONTEXTS.get(self)
        if cached is not None and cached[0] == stamps:
            return cached[1]
        context = self._retried(self._new_context)
        _CONTEXTS[self] = (stamps, context)
        return context

    def content(self) -> Content:
        """The content of the stores, for a client that does not read them itself.

        Raises:
            ConfigError, BrokerError: as `context`.
        """
        return self._retried(self._content)

    def subject(self) -> str | None:
        """The subject of the client certificate, as Java writes it; None without one.

        Raises:
            ConfigError, BrokerError: as `context`.
        """
        chain = self.content().chain
        return x509.load_pem_x509_certificates(chain.encode())[0].subject.rfc4514_string() if chain else None

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
        named: list[str] = []
        with contextlib.suppress(ConfigError, ValueError):
            if self.keys is not None:
                named += _expired_in(self.keys, self.keys.chain_and_key()[0])
            if self.trust is not None:
                named += _expired_in(self.trust, self.trust.trusted())
        return named

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
    return Tls(_truststore_of(properties), _keystore_of(properties), verify_host)


_CONTEXTS: Final[dict[Tls, tuple[Stamps, ssl.SSLContext]]] = {}


def _load(context: ssl.SSLContext, chain: str, key: PrivateKeyTypes) -> None:
    """Gives the client certificate to OpenSSL, which reads only files: the key in it is encrypted."""
    password = secrets.token_urlsafe(24)
    with tempfile.NamedTemporaryFile(mode="w", suffix=".pem") as file:  # only its owner may read it
        file.write(chain + encrypted(key, password))
        file.flush()
        context.load_cert_chain(file.name, password=password)


def _unusable(store: Store, exc: ssl.SSLError) -> ConfigError:
    reason = exc.reason or str(exc)
    return ConfigError(f"{store.name}: expected {store.kind} certificates in {store.place}, found: {reason}")


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
