"""Renewed certificate files make the clients of the events topic new, once they can be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from support.one_certificate import self_signed
from txnwatch import app
from txnwatch.app import CertificateFiles
from txnwatch.cli.watch_process import Reload
from txnwatch.streaming.client.tls import Store, Tls


def keys() -> str:
    """A key and its certificate as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return text + self_signed("me", key).public_bytes(Encoding.PEM).decode()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(app, "LOOK_S", 0.0)
    path = tmp_path / "keys.pem"
    path.write_text(keys())
    return path


def files_of(path: Path) -> CertificateFiles:
    tls = Tls(keys=Store("ssl.keystore", "PEM", str(path)))
    tls.context()
    return CertificateFiles(tls)


def test_files_are_renewed_when_they_can_be_used(path: Path) -> None:
    files = files_of(path)
    assert not files.are_renewed()
    path.write_text("half a fi")
    assert not files.are_renewed()
    path.write_text(keys())
    assert files.are_renewed()
    files.use()
    assert not files.are_renewed()


def test_a_watch_without_certificates_has_none_to_renew() -> None:
    assert not CertificateFiles(Tls()).are_renewed()


def test_renewed_files_start_the_query_again_without_a_signal(path: Path) -> None:
    reload = Reload(pytest.fail)
    reload.certificates = files_of(path)
    assert not reload.apply(None)  # type: ignore[arg-type]
    path.write_text(keys())
    assert reload.apply(None)  # type: ignore[arg-type]
    assert reload.is_due
