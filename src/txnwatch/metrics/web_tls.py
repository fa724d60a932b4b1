"""The TLS of the metrics server: the section `tls_server_config` of the web configuration file.

Law: a file that changes on the disk is used from the next connection on. It is read into a new context, because a
context keeps each authority that was ever loaded into it.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

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
        known = _KNOWN[info.field_name]
        if value not in known:
            raise ValueError(f"expected one of {', '.join(known)}, found {value!r}")
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
        self._tls = tls
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
        context.minimum_version = _VERSIONS[self._tls.min_version]
        context.maximum_version = _VERSIONS[self._tls.max_version]
        if self._tls.ciphers:
            context.set_ciphers(self._tls.ciphers)
        if self._client_ca is not None:
            context.load_verify_locations(self._client_ca)
        context.verify_mode = _CLIENT_AUTH[self._tls.client_auth_type]
        context.load_cert_chain(self._certificate, self._key, password="")
        return context

    def _stamp(self) -> tuple[tuple[int, int, int], ...]:
        paths = (self._certificate, self._key, self._client_ca)
        found = (path.stat() for path in paths if path is not None)
        return tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in found)


def _is_available(suite: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(suite)
    except ssl.SSLError:
        return False
    return True
