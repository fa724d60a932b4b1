"""A certificate for a test, made without a program."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID


def self_signed(name: str, key: EllipticCurvePrivateKey, days: int = 1) -> x509.Certificate:
    """A certificate of an authority that is valid for some days from now, or was until some days ago."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    until = datetime.now(UTC) + timedelta(days=days)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, until - timedelta(days=90), until)
    return builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(key, SHA256())
