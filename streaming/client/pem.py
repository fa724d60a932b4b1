"""PEM text: its blocks, as Kafka reads them, and private keys as OpenSSL's readers take them.

A value of a properties file may have its line breaks lost, because Kafka's own parser ignores white space in a block.
OpenSSL's does not, so every block is wrapped again.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from cryptography.hazmat.primitives.serialization import load_pem_private_key as load_key

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
    found = [block.text for block in blocks(text) if block.label == "CERTIFICATE"]
    if not found:
        raise UnusableStoreError("no PEM certificate")
    return "".join(found)


def private_key_of(text: str, password: str | None) -> PrivateKeyTypes:
    """The private key of a text.

    Raises:
        UnusableStoreError: there is none, or the password does not open it.
    """
    found = [block.text for block in blocks(text) if block.label.endswith("PRIVATE KEY")]
    if not found:
        raise UnusableStoreError("no private key in PEM")
    key = found[0]
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
