"""Java's binary stores, JKS and PKCS12: certificates as PEM, and the private key.

As in Java, a store of one of the two types is read under the name of the other: keytool writes PKCS12 to every new
`.jks` file. If a keystore has several private keys, the first in the order of the aliases is used.
"""

from __future__ import annotations

import ssl
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, load_der_private_key, pkcs12

from txnwatch.streaming.client.pem import UnusableStoreError

_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_DER_SEQUENCE = b"\x30"


def is_jks(data: bytes) -> bool:
    """Whether the data begins like a JKS store."""
    return data.startswith(_JKS_MAGIC)


def is_pkcs12(data: bytes) -> bool:
    """Whether the data begins like a PKCS12 store."""
    return data.startswith(_DER_SEQUENCE)


def trusted_in(data: bytes, password: str | None) -> str:
    """The trusted certificates of a store.

    Raises:
        UnusableStoreError: the password is wrong, or there is no certificate.
    """
    if is_jks(data):
        store = _jks(data, password)
        found = [entry.cert for entry in store.certs.values()]
        others = sorted(store.private_keys)
    else:
        pfx = _pkcs12(data, password)
        found = [one.certificate.public_bytes(Encoding.DER) for one in pfx.additional_certs]
        others = [_alias(pfx.cert)] if pfx.key is not None else []
    if not found:
        raise UnusableStoreError(f"no trusted certificate{_only('private key', others)}")
    return _as_pem(found)


def key_in(data: bytes, password: str | None, key_password: str | None) -> tuple[str, PrivateKeyTypes]:
    """The certificate chain and the private key of a store.

    Raises:
        UnusableStoreError: a password is wrong, or there is no private key.
    """
    return _jks_key(data, password, key_password) if is_jks(data) else _pkcs12_key(data, password)


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
        raise UnusableStoreError("a JKS store and no reader for it: pip install 'txnwatch[jks]'") from exc
    try:
        return jks.KeyStore.loads(data, password, try_decrypt_keys=password is not None)
    except jks.KeystoreSignatureException as exc:
        raise UnusableStoreError("a store that the password does not open") from exc
    except (jks.util.KeystoreException, ValueError, IndexError) as exc:
        raise UnusableStoreError(f"a damaged JKS store ({type(exc).__name__})") from exc


def _pkcs12_key(data: bytes, password: str | None) -> tuple[str, PrivateKeyTypes]:
    pfx = _pkcs12(data, password)
    if pfx.key is None or pfx.cert is None:
        raise UnusableStoreError(f"no private key{_only('certificate', [_alias(one) for one in pfx.additional_certs])}")
    chain = [one.certificate.public_bytes(Encoding.DER) for one in (pfx.cert, *pfx.additional_certs)]
    return _as_pem(chain), pfx.key


def _pkcs12(data: bytes, password: str | None) -> pkcs12.PKCS12KeyAndCertificates:
    try:
        return pkcs12.load_pkcs12(data, password.encode() if password is not None else None)
    except (ValueError, UnsupportedAlgorithm) as exc:
        problem = "a store that the password does not open" if password is not None else "a store and no password"
        raise UnusableStoreError(f"{problem}, or a damaged PKCS12 store") from exc


def _alias(one: pkcs12.PKCS12Certificate | None) -> str:
    return one.friendly_name.decode(errors="replace") if one is not None and one.friendly_name else "without an alias"


def _only(kind: str, aliases: list[str]) -> str:
    return f", only the {kind} of: {', '.join(aliases)}" if aliases else ", the store is empty"


def _as_pem(certificates: list[bytes]) -> str:
    return "".join(ssl.DER_cert_to_PEM_cert(der) for der in certificates)
