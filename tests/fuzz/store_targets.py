"""The reader of stores that are PEM: certificates and keys in a file or in a property."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import CertificateBuilder, Name

from fuzz.target import Target
from txnwatch.streaming.client.tls import UnusableStoreError, blocks, certificates_of, private_key_of

_PASSWORD = "sesame"
_KEY = Ed25519PrivateKey.from_private_bytes(b"\1" * 32)


def _certificate() -> bytes:
    name, begin, end = Name([]), datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    builder = CertificateBuilder(name, name, _KEY.public_key(), 1, begin, end)
    return builder.sign(_KEY, None).public_bytes(Encoding.PEM)


def _key(encryption: NoEncryption | BestAvailableEncryption) -> bytes:
    return _KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def _read(data: bytes) -> None:
    text = data.decode(errors="replace")
    found = blocks(text)
    assert blocks("".join(block.text for block in found)) == found, "a block that is written again is the same block"
    with contextlib.suppress(UnusableStoreError):
        certificates_of(text)
    private_key_of(text, _PASSWORD)


TARGETS = [
    Target(
        "pem",
        "certificates and a private key as PEM",
        _read,
        (UnusableStoreError,),
        [_certificate() + _key(NoEncryption()), _certificate() + _key(BestAvailableEncryption(_PASSWORD.encode()))],
    ),
]
