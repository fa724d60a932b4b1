"""Truststores and keystores under the names of Kafka's Java client: files of three types, and inline PEM (KIP-651).

A store is a value without open resources; `open` reads it each time, so that a renewed file is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from txnwatch.state.model.errors import ConfigError
from txnwatch.streaming.client.java_stores import is_jks, is_pkcs12, key_in, trusted_in
from txnwatch.streaming.client.pem import UnusableStoreError, certificates_of, private_key_of

PEM, JKS, PKCS12 = "PEM", "JKS", "PKCS12"
TYPES = (PEM, JKS, PKCS12)
_INLINE = "the inline text"
_T = TypeVar("_T")


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
        return self._checked(lambda: trusted_in(self._data(), self.password))

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
        return self._checked(lambda: key_in(self._data(), self.password, self.key_password))

    @property
    def stamp(self) -> tuple[int, ...]:
        """What changes with the file: its inode, its size and its time; empty if there is no file."""
        try:
            found = Path(self.location).stat() if self.location is not None else None
        except OSError:
            return ()
        return (found.st_ino, found.st_size, found.st_mtime_ns) if found is not None else ()

    @property
    def place(self) -> str:
        """The file, or that the content is inline, for messages."""
        return self.location if self.location is not None else _INLINE

    def _of_pem_file(self) -> tuple[str, PrivateKeyTypes]:
        text = self._text()
        return certificates_of(text), private_key_of(text, self.key_password)

    def _checked(self, read: Callable[[], _T]) -> _T:
        try:
            return read()
        except OSError as exc:
            problem = exc.strerror or type(exc).__name__
        except UnusableStoreError as exc:
            problem = str(exc)
        raise ConfigError(f"{self.name}: expected {self.kind} certificates in {self.place}, found: {problem}")

    def _text(self) -> str:
        data = self._read()
        if is_jks(data) or is_pkcs12(data):
            kind = JKS if is_jks(data) else PKCS12
            raise UnusableStoreError(f"no PEM, but {kind} or another binary form (is {self.name}.type={kind} right?)")
        return data.decode(errors="replace")

    def _data(self) -> bytes:
        data = self._read()
        if not is_jks(data) and not is_pkcs12(data):
            hint = f" (is {self.name}.type=PEM right?)" if b"-----BEGIN" in data else ""
            raise UnusableStoreError(f"neither JKS nor PKCS12{hint}")
        return data

    def _read(self) -> bytes:
        assert self.location is not None
        return Path(self.location).read_bytes()


def truststore_of(properties: Mapping[str, str]) -> Store | None:
    """The truststore among client properties; None if the system's authorities are trusted.

    Raises:
        ConfigError: settings are unknown or contradict each other.
    """
    name = "ssl.truststore"
    inline = properties.get(f"{name}.certificates")
    if inline is None and f"{name}.location" not in properties:
        return None
    return _store(name, properties, inline, None)


def keystore_of(properties: Mapping[str, str]) -> Store | None:
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
