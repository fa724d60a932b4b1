"""The web configuration file of the HTTP server: TLS, basic authentication and headers.

The format is that of Prometheus and its exporters (exporter-toolkit). A key that is not supported here is an error,
because a server without a protection that the file asks for would be worse than none.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import bcrypt
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from txnwatch.state.model.errors import ConfigError

# The TLS of the HTTP server: the section `tls_server_config` of the web configuration file.
#
# Law: a file that changes on the disk is used from the next connection on. It is read into a new context, because a
# context keeps each authority that was ever loaded into it.

_CLIENT_AUTH: Final = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_VERSIONS: Final = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_KNOWN: Final[Mapping[str, Mapping[str, object]]] = {
    "client_auth_type": _CLIENT_AUTH,
    "min_version": _VERSIONS,
    "max_version": _VERSIONS,
}

# The suites that Go has and does not call insecure: its names and those of OpenSSL. Python 3.11 cannot choose among the
# suites of TLS 1.3, and neither can Go.
_SUITES_OF_TLS12: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
}
_SUITES_OF_TLS13: Final = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")


class TlsSettings(BaseModel):
    """The section of the file; paths are relative to the directory of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    cert_file: Path
    key_file: Path
    client_auth_type: str = "NoClientCert"
    client_ca_file: Path | None = None
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    cipher_suites: tuple[str, ...] = ()

    @property
    def ciphers(self) -> str:
        """The suites of TLS 1.2 as OpenSSL names them; empty for OpenSSL's default."""
        return ":".join(_SUITES_OF_TLS12[name] for name in self.cipher_suites if name in _SUITES_OF_TLS12)

    @field_validator("client_auth_type", "min_version", "max_version")
    @classmethod
    def _is_known(cls, value: str, info: Any) -> str:  # noqa: ANN401 - pydantic's ValidationInfo
        values = _KNOWN[info.field_name]
        if value not in values:
            raise ValueError(f"expected one of {', '.join(values)}, found {value!r}")
        return value

    @field_validator("cipher_suites")
    @classmethod
    def _are_suites(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in _SUITES_OF_TLS12 and name not in _SUITES_OF_TLS13:
                raise ValueError(
                    f"expected some of {', '.join((*_SUITES_OF_TLS12, *_SUITES_OF_TLS13))}, found {name!r}"
                )
            if name in _SUITES_OF_TLS12 and not _is_available(_SUITES_OF_TLS12[name]):
                raise ValueError(f"expected cipher suites of this machine's OpenSSL, found {name!r}")
        return names

    @model_validator(mode="after")
    def _fit(self) -> TlsSettings:
        verifies = self.client_auth_type != "NoClientCert"
        if verifies != (self.client_ca_file is not None):
            raise ValueError("expected client_ca_file and a client_auth_type that verifies, or neither")
        if self.min_version > self.max_version:
            raise ValueError(f"expected a max_version from {self.min_version} on, found {self.max_version}")
        if self.cipher_suites and not self.ciphers and self.min_version == "TLS12":
            raise ValueError("expected a suite of TLS 1.2 in cipher_suites, or min_version TLS13, found neither")
        return self


class TlsFiles:
    """The server's TLS context; `refresh` makes a new one if a file was changed."""

    def __init__(self, tls: TlsSettings, directory: Path) -> None:
        self.settings = tls
        self._certificate, self._key = directory / tls.cert_file, directory / tls.key_file
        self._client_ca = directory / tls.client_ca_file if tls.client_ca_file is not None else None
        self._loaded = self._stamp()
        self.context = self._load()

    def refresh(self) -> None:
        """Reads the files again if one has changed; while they cannot be used together, the old ones stay."""
        try:
            now = self._stamp()
            if now != self._loaded:
                self.context = self._load()
                self._loaded = now
        except (OSError, ssl.SSLError):
            return  # a renewal writes two files, one after the other

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[self.settings.min_version]
        context.maximum_version = _VERSIONS[self.settings.max_version]
        if self.settings.ciphers:
            context.set_ciphers(self.settings.ciphers)
        if self._client_ca is not None:
            context.load_verify_locations(self._client_ca)
        context.verify_mode = _CLIENT_AUTH[self.settings.client_auth_type]
        context.load_cert_chain(self._certificate, self._key, password="")
        return context

    def _stamp(self) -> tuple[tuple[int, int, int], ...]:
        paths = (self._certificate, self._key, self._client_ca)
        files = (path.stat() for path in paths if path is not None)
        return tuple((status.st_mtime_ns, status.st_size, status.st_ino) for status in files)


def _is_available(suite: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(suite)
    except ssl.SSLError:
        return False
    return True


# The whole file: its TLS, its users and its headers.

_LONGEST_PASSWORD: Final = 72  # bytes; bcrypt reads no more
_REMEMBERED: Final = 100
# The headers that a file may set, and their values; empty for any value.
_HEADERS: Final = {
    "Content-Security-Policy": (),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-Content-Type-Options": ("nosniff",),
    "X-XSS-Protection": (),
    "Strict-Transport-Security": (),
}
_HASH: Final = re.compile(r"\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}")


class _Http(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    headers: dict[str, str] = Field(default_factory=dict)

    @field_validator("headers")
    @classmethod
    def _are_known(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if name not in _HEADERS:
                raise ValueError(f"expected some of {', '.join(_HEADERS)}, found {name!r}")
            allowed = _HEADERS[name]
            if value and allowed and value not in allowed:
                raise ValueError(f"expected {' or '.join(allowed)} for {name}, found {value!r}")
            if not (value.isascii() and value.isprintable()):
                raise ValueError(f"expected printable ASCII for {name}, found {value!r}")
        return {name: value for name, value in headers.items() if value}


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    tls_server_config: TlsSettings | None = None
    http_server_config: _Http = _Http()
    basic_auth_users: dict[str, str] = Field(default_factory=dict, repr=False)

    @field_validator("basic_auth_users")
    @classmethod
    def _are_hashes(cls, users: dict[str, str]) -> dict[str, str]:
        for user, hashed in users.items():
            if _HASH.fullmatch(hashed) is None:
                raise ValueError(f"expected a bcrypt hash for user {user!r}, found other text")
        return users


@dataclass
class Users:
    """The users of basic authentication: names with bcrypt hashes."""

    hashes: Mapping[str, str] = field(repr=False)
    _salt: bytes = field(default_factory=lambda: os.urandom(32), repr=False)
    _accepted: set[bytes] = field(default_factory=set, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _checking: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def accept(self, user: str, password: str) -> bool:
        """Whether the password is the user's; an accepted pair is remembered, because bcrypt is slow by design.

        Other pairs are checked one after another: a client with wrong passwords keeps one core busy, not all.
        """
        if self.has_accepted(user, password):
            return True
        with self._checking:
            is_accepted = self._check(user, password.encode())
        if is_accepted:
            with self._lock:
                if len(self._accepted) >= _REMEMBERED:
                    self._accepted.clear()
                self._accepted.add(self._proof(user, password))
        return is_accepted

    def has_accepted(self, user: str, password: str) -> bool:
        """Whether the pair is remembered; takes no time."""
        with self._lock:
            return self._proof(user, password) in self._accepted

    def _proof(self, user: str, password: str) -> bytes:
        given = f"{len(user)}:{user}:{password}".encode()
        return hmac.new(self._salt, given, hashlib.sha256).digest()

    def _check(self, user: str, password: bytes) -> bool:
        """An unknown user takes as long as a known one. A password that bcrypt would cut is refused."""
        hashed = self.hashes.get(user) or next(iter(self.hashes.values()))
        fits = bcrypt.checkpw(password[:_LONGEST_PASSWORD].replace(b"\0", b" "), hashed.encode())
        return fits and user in self.hashes and len(password) <= _LONGEST_PASSWORD and b"\0" not in password


@dataclass(frozen=True)
class WebConfig:
    """How the HTTP server is protected; by default it is not. Every answer has `headers`."""

    tls: TlsFiles | None = None
    users: Users | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def admits_as(self, other: WebConfig) -> bool:
        """Whether both admit the same clients: the same users, and the same settings of TLS."""
        return self._admission == other._admission

    @property
    def _admission(self) -> tuple[object, object]:
        return self.users and self.users.hashes, self.tls and self.tls.settings


def read_web_config(path: Path | None) -> WebConfig:
    """The web configuration in a file; paths in it are relative to its directory.

    Raises:
        ConfigError: the file, or a file that it names, cannot be read or is invalid.
    """
    if path is None:
        return WebConfig()
    where = f"http_web_config_file {path}"
    content = _reading(lambda: yaml.safe_load(path.read_text(encoding="utf-8")), where)
    try:
        file = _File.model_validate({} if content is None else content)
    except ValidationError as exc:
        raise ConfigError(f"{where}: {'; '.join(_problem(error) for error in exc.errors())}") from None
    tls = file.tls_server_config
    files = _reading(lambda: TlsFiles(tls, path.parent), f"{where}: tls_server_config") if tls is not None else None
    users = Users(file.basic_auth_users) if file.basic_auth_users else None
    return WebConfig(files, users, file.http_server_config.headers)


def _reading(read: Callable[[], Any], where: str) -> Any:  # noqa: ANN401 - YAML can be anything
    try:
        return read()
    except (yaml.YAMLError, UnicodeDecodeError):  # the message of YAML has a part of the file
        raise ConfigError(f"{where}: expected YAML, found other text") from None
    except ssl.SSLError as exc:
        message = f"{where}: expected a certificate and its key in PEM, the key without a password, found: {exc.reason}"
        raise ConfigError(message) from exc
    except OSError as exc:
        named = f" {exc.filename}" if exc.filename is not None else ""
        raise ConfigError(f"{where}: expected files that can be read, found{named}: {exc.strerror}") from exc


def _problem(error: Any) -> str:  # noqa: ANN401 - pydantic's ErrorDetails
    key = ".".join(str(part) for part in error["loc"] if part != "[key]")
    if error["type"] == "extra_forbidden":
        return f"{key}: a key that is not supported here"
    message = str(error["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    return f"{key}: {message if message.startswith('expected') else f'expected {message}'}".removeprefix(": ")
