"""The web configuration file of the metrics server: TLS, basic authentication and headers.

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
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from txnwatch.metrics.web_tls import TlsFiles, TlsSettings
from txnwatch.state.model.errors import ConfigError

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

    _hashes: Mapping[str, str] = field(repr=False)
    _salt: bytes = field(default_factory=lambda: os.urandom(32), repr=False)
    _accepted: set[bytes] = field(default_factory=set, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _checking: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def accept(self, user: str, password: str) -> bool:
        """Whether the password is the user's; an accepted pair is remembered, because bcrypt is slow by design.

        Other pairs are checked one after another: a client with wrong passwords keeps one core busy, not all.
        """
        given = f"{len(user)}:{user}:{password}".encode()
        proof = hmac.new(self._salt, given, hashlib.sha256).digest()
        with self._lock:
            if proof in self._accepted:
                return True
        with self._checking:
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
    """How the metrics server is protected; by default it is not. Every answer has `headers`."""

    tls: TlsFiles | None = None
    users: Users | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


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
    users = Users(found.basic_auth_users) if found.basic_auth_users else None
    return WebConfig(files, users, found.http_server_config.headers)


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
