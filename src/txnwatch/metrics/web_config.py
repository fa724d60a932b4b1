"""The web configuration file of the metrics server: TLS and basic authentication.

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

_CLIENT_AUTH: Final = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_VERSIONS: Final = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_LONGEST_PASSWORD: Final = 72  # bytes; bcrypt reads no more
_REMEMBERED: Final = 100
_HASH: Final = re.compile(r"\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}")


class _Tls(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    cert_file: Path
    key_file: Path
    client_auth_type: str = "NoClientCert"
    client_ca_file: Path | None = None
    min_version: str = "TLS12"

    @field_validator("client_auth_type", "min_version")
    @classmethod
    def _is_known(cls, value: str, info: Any) -> str:  # noqa: ANN401 - pydantic's ValidationInfo
        known = _CLIENT_AUTH if info.field_name == "client_auth_type" else _VERSIONS
        if value not in known:
            raise ValueError(f"expected one of {', '.join(known)}, found {value!r}")
        return value

    @model_validator(mode="after")
    def _has_both(self) -> _Tls:
        verifies = self.client_auth_type != "NoClientCert"
        if verifies != (self.client_ca_file is not None):
            raise ValueError("expected client_ca_file and a client_auth_type that verifies, or neither")
        return self


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    tls_server_config: _Tls | None = None
    basic_auth_users: dict[str, str] = Field(default_factory=dict, repr=False)

    @field_validator("basic_auth_users")
    @classmethod
    def _are_hashes(cls, users: dict[str, str]) -> dict[str, str]:
        for user, hashed in users.items():
            if _HASH.fullmatch(hashed) is None:
                raise ValueError(f"expected a bcrypt hash for user {user!r}, found other text")
        return users


class TlsFiles:
    """The server's TLS context; a certificate that is renewed on the disk is used from the next connection on."""

    def __init__(self, tls: _Tls, directory: Path) -> None:
        self._certificate, self._key = directory / tls.cert_file, directory / tls.key_file
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = _VERSIONS[tls.min_version]
        if tls.client_ca_file is not None:
            self.context.load_verify_locations(directory / tls.client_ca_file)
        self.context.verify_mode = _CLIENT_AUTH[tls.client_auth_type]
        self._loaded = self._stamp()
        self._load()

    def refresh(self) -> None:
        """Loads certificate and key again if a file has changed; while they do not fit together, the old ones stay."""
        try:
            now = self._stamp()
            if now != self._loaded:
                self._load()
                self._loaded = now
        except (OSError, ssl.SSLError):
            return  # a renewal writes two files, one after the other

    def _load(self) -> None:
        self.context.load_cert_chain(self._certificate, self._key, password="")

    def _stamp(self) -> tuple[tuple[int, int, int], ...]:
        found = (path.stat() for path in (self._certificate, self._key))
        return tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in found)


@dataclass
class Users:
    """The users of basic authentication: names with bcrypt hashes."""

    _hashes: Mapping[str, str] = field(repr=False)
    _salt: bytes = field(default_factory=lambda: os.urandom(32), repr=False)
    _accepted: set[bytes] = field(default_factory=set, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def accept(self, user: str, password: str) -> bool:
        """Whether the password is the user's; an accepted pair is remembered, because bcrypt is slow by design."""
        given = f"{len(user)}:{user}:{password}".encode()
        proof = hmac.new(self._salt, given, hashlib.sha256).digest()
        with self._lock:
            if proof in self._accepted:
                return True
        is_accepted = self._check(user, password.encode())
        if is_accepted:
            with self._lock:
                if len(self._accepted) >= _REMEMBERED:
                    self._accepted.clear()
                self._accepted.add(proof)
        return is_accepted

    def _check(self, user: str, password: bytes) -> bool:
        """An unknown user takes as long as a known one. A password that bcrypt would cut is refused."""
        hashed = self._hashes.get(user) or next(iter(self._hashes.values()))
        fits = bcrypt.checkpw(password[:_LONGEST_PASSWORD].replace(b"\0", b" "), hashed.encode())
        return fits and user in self._hashes and len(password) <= _LONGEST_PASSWORD and b"\0" not in password


@dataclass(frozen=True)
class WebConfig:
    """How the metrics server is protected; by default it is not."""

    tls: TlsFiles | None = None
    users: Users | None = None


def read_web_config(path: Path | None) -> WebConfig:
    """The web configuration in a file; paths in it are relative to its directory.

    Raises:
        ConfigError: the file, or a file that it names, cannot be read or is invalid.
    """
    if path is None:
        return WebConfig()
    where = f"metrics_web_config_file {path}"
    content = _reading(lambda: yaml.safe_load(path.read_text(encoding="utf-8")), where)
    try:
        found = _File.model_validate({} if content is None else content)
    except ValidationError as exc:
        raise ConfigError(f"{where}: {'; '.join(_problem(error) for error in exc.errors())}") from None
    tls = found.tls_server_config
    files = _reading(lambda: TlsFiles(tls, path.parent), f"{where}: tls_server_config") if tls is not None else None
    return WebConfig(files, Users(found.basic_auth_users) if found.basic_auth_users else None)


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
