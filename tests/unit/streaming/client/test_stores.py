"""Java's stores: what is read from them, and why one cannot be used."""

from __future__ import annotations

from pathlib import Path

import jks
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

from support.bad_inputs import BadInputs
from support.one_certificate import self_signed
from txnwatch.state.model.errors import ConfigError
from txnwatch.streaming.client.tls import Store, Tls

KEY = ec.generate_private_key(ec.SECP256R1())
OTHER_KEY = ec.generate_private_key(ec.SECP256R1())


CERTIFICATE = self_signed("ours", KEY)
PEM_TEXT = CERTIFICATE.public_bytes(Encoding.PEM).decode()
DER_KEY = KEY.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
PEM_KEY = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
SECRET = BestAvailableEncryption(b"secret")


def jks_store(*, key: bool, trusted: bool, key_password: str = "secret") -> bytes:
    der = CERTIFICATE.public_bytes(Encoding.DER)
    entries: list[object] = [jks.TrustedCertEntry.new("our-ca", der)] if trusted else []
    if key:
        entry = jks.PrivateKeyEntry.new("our-key", [der], DER_KEY)
        entry.encrypt(key_password)
        entries.append(entry)
    return bytes(jks.KeyStore.new("jks", entries).saves("secret"))


def p12_store(*, key: bool, trusted: bool) -> bytes:
    return pkcs12.serialize_key_and_certificates(
        b"our-key", KEY if key else None, CERTIFICATE if key else None, [CERTIFICATE] if trusted else None, SECRET
    )


def written(directory: Path, data: bytes | str) -> str:
    path = directory / "store"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
@pytest.mark.parametrize("make", [jks_store, p12_store])
def test_a_store_of_either_kind_is_read_under_both_names_as_in_java(tmp_path: Path, kind: str, make: object) -> None:
    assert callable(make)
    trust = Store("ssl.truststore", kind, written(tmp_path, make(key=False, trusted=True)), "secret")
    assert trust.trusted() == PEM_TEXT
    keys = Store("ssl.keystore", kind, written(tmp_path, make(key=True, trusted=False)), "secret")
    chain, key = keys.chain_and_key()
    assert chain == PEM_TEXT
    assert key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()) == DER_KEY
    Tls(trust=None, keys=keys).context()


def test_a_jks_truststore_needs_no_password_as_in_java(tmp_path: Path) -> None:
    assert Store("ssl.truststore", "JKS", written(tmp_path, jks_store(key=False, trusted=True))).trusted() == PEM_TEXT


def test_a_key_may_have_a_password_of_its_own(tmp_path: Path) -> None:
    path = written(tmp_path, jks_store(key=True, trusted=False, key_password="inner"))
    Store("ssl.keystore", "JKS", path, "secret", key_password="inner").chain_and_key()
    with pytest.raises(ConfigError, match=r"found: a private key 'our-key' that ssl.key.password does not open$"):
        Store("ssl.keystore", "JKS", path, "secret").chain_and_key()


UNUSABLE: dict[str, tuple[str, bytes | str, str | None, str]] = {
    "JKS, wrong password": (
        "JKS", jks_store(key=True, trusted=True), "guess", "a store that the password does not open$",
    ),
    "PKCS12, wrong password": (
        "PKCS12", p12_store(key=True, trusted=True), "guess", "a store that the password does not open, or a damaged",
    ),
    "PKCS12, no password": ("PKCS12", p12_store(key=True, trusted=True), None, "a store and no password, or a damaged"),
    "JKS, damaged": ("JKS", jks_store(key=True, trusted=True)[:50], "secret", "a damaged JKS store"),
    "PEM for JKS": ("JKS", PEM_TEXT, "secret", r"neither JKS nor PKCS12 \(is ssl.\w+store.type=PEM right\?\)"),
    "PEM for PKCS12": ("PKCS12", PEM_TEXT, "secret", r"neither JKS nor PKCS12 \(is ssl.\w+store.type=PEM right\?\)"),
    "JKS for PEM": ("PEM", jks_store(key=True, trusted=True), None, r"no PEM, but JKS .*store.type=JKS right\?\)"),
    "PKCS12 for PEM": ("PEM", p12_store(key=True, trusted=True), None, r"no PEM, but PKCS12 .*type=PKCS12 right\?\)"),
    "empty": ("JKS", b"", "secret", "neither JKS nor PKCS12$"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "data", "password", "problem"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_store_that_cannot_be_used_is_named_with_the_reason(
    tmp_path: Path, kind: str, data: bytes | str, password: str | None, problem: str, bad_inputs: BadInputs
) -> None:
    path = written(tmp_path, data)
    for name in ("ssl.truststore", "ssl.keystore"):
        store = Store(name, kind, path, password)
        expected = f"^{name}: expected {kind} certificates in {path}, found: {problem}"
        with pytest.raises(ConfigError, match=expected) as raised:
            store.trusted() if name == "ssl.truststore" else store.chain_and_key()
    bad_inputs.keep("Certificates and keys", raised.value, before="a store: ")


@pytest.mark.parametrize(("make", "kind"), [(jks_store, "JKS"), (p12_store, "PKCS12")])
def test_a_store_without_the_needed_entry_names_the_others(tmp_path: Path, make: object, kind: str) -> None:
    assert callable(make)
    path = written(tmp_path, make(key=False, trusted=True))
    with pytest.raises(ConfigError, match="found: no private key, only the certificate of: "):
        Store("ssl.keystore", kind, path, "secret").chain_and_key()
    path = written(tmp_path, make(key=True, trusted=False))
    with pytest.raises(ConfigError, match="found: no trusted certificate, only the private key of: our-key"):
        Store("ssl.truststore", kind, path, "secret").trusted()


def test_a_key_of_another_certificate_is_an_error(tmp_path: Path) -> None:
    other = OTHER_KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    path = written(tmp_path, PEM_TEXT + other)
    with pytest.raises(ConfigError, match=f"certificates in {path}, found: KEY_VALUES_MISMATCH"):
        Tls(keys=Store("ssl.keystore", "PEM", path)).context()


def test_expired_certificates_are_named_with_file_and_date(tmp_path: Path) -> None:
    old = self_signed("old", KEY, days=-1)
    path = written(tmp_path, old.public_bytes(Encoding.PEM).decode() + PEM_KEY)
    found = Tls(Store("ssl.truststore", "PEM", path), Store("ssl.keystore", "PEM", path)).expired()
    until = f"{old.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    assert found == [f"CN=old, valid until {until}, of ssl.{name} in {path}" for name in ("keystore", "truststore")]
    assert Tls(Store("ssl.truststore", "PEM", certificates=PEM_TEXT)).expired() == []
