"""Certificates for tests, made by the openssl program: authorities, and what they sign."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority; `certificate` is what its clients trust."""

    directory: Path
    name: str

    @property
    def certificate(self) -> Path:
        """The authority's own certificate, PEM."""
        return self.directory / f"{self.name}.pem"

    @property
    def _key(self) -> Path:
        return self.directory / f"{self.name}.key"

    def create(self) -> Authority:
        """Makes key and certificate."""
        _private_key(self._key)
        # What Python 3.13 and later ask of an authority; without it nothing else would be tested.
        extensions = [
            *("-addext", "basicConstraints=critical,CA:TRUE"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        ]
        _openssl(
            *("req", "-x509", "-new", "-key", self._key, "-subj", f"/CN={self.name}", "-days", "2"),
            *(*extensions, "-out", self.certificate),
        )
        return self

    def issue(self, name: str, alternative: str, days: int = 2) -> Path:
        """Key and certificate in one PEM file; `alternative` is a subject alternative name as openssl writes it.

        A negative number of days makes a certificate that is expired.
        """
        key, request, signed = (self.directory / f"{name}.{end}" for end in ("key", "csr", "crt"))
        settings = self.directory / f"{name}.ext"
        settings.write_text(f"subjectAltName={alternative}\nauthorityKeyIdentifier=keyid\n")
        _private_key(key)
        _openssl("req", "-new", "-key", key, "-subj", f"/CN={name}", "-out", request)
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial"),
            *("-days", str(days), "-extfile", settings, "-out", signed),
        )
        whole = self.directory / f"{name}.pem"
        whole.write_text(key.read_text() + signed.read_text() + self.certificate.read_text())
        return whole

    def encrypt(self, name: str, password: str) -> Path:
        """The key of an issued certificate, encrypted with a password."""
        encrypted = self.directory / f"{name}.encrypted.key"
        source = self.directory / f"{name}.key"
        _openssl("pkey", "-in", source, "-aes256", "-passout", f"pass:{password}", "-out", encrypted)
        return encrypted


def _private_key(path: Path) -> None:
    _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
