"""The search for secrets finds them in the forms in which a program shows them by mistake."""

from __future__ import annotations

import json
import urllib.parse
import zipfile
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path

import pytest

from support.canaries import Canaries

SECRET, KEY = "kanarienvogel-1", "-----BEGIN KEY-----\nMIIBkanarienvogel\nAgEA\n-----END KEY-----\n"
FORMS = {
    "a setting": f"sasl.password={SECRET}\n",
    "a URL": f"redis://me:{SECRET}@host:6379/0?db=1",
    "a form": urllib.parse.urlencode({"password": SECRET}),
    "Basic authentication": b64encode(f"prometheus:{SECRET}".encode()).decode(),
    "SASL PLAIN": b64encode(f"\0alice\0{SECRET}".encode()).decode(),
    "a Secret of Kubernetes": urlsafe_b64encode(SECRET.encode()).decode(),
    "JSON": f'{{"value": "{SECRET}!"}}',
    "a claim of a token": f"e30.{urlsafe_b64encode(json.dumps({'sub': 'me', 'jti': SECRET}).encode()).decode()}.c2ln",
    "a line of a key": "found: MIIBkanarienvogel",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_a_secret_is_found_in_each_form(form: str, tmp_path: Path) -> None:
    canaries = Canaries(SECRET, KEY)
    assert canaries.in_text(form) != []
    (tmp_path / "file").write_bytes(b"\xff\x00" + form.encode())
    assert canaries.in_files(tmp_path).keys() == {str(tmp_path / "file")}


BINARY = bytes(range(200, 216)) + b"\n\r" + bytes(14)
BINARY_FORMS = {
    "as it is": b"key: " + BINARY,
    "in base64": b64encode(b"key: " + BINARY),
    "in hexadecimal": f"0x{BINARY.hex()}".encode(),
    "in capital letters": BINARY.hex().upper().encode(),
}


def test_a_secret_is_found_in_a_compressed_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "state.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("000008.sst", f"{'x' * 1000}{SECRET}{'x' * 1000}")
    assert SECRET.encode() not in (tmp_path / "state.zip").read_bytes()
    assert Canaries(SECRET).in_files(tmp_path).keys() == {str(tmp_path / "state.zip")}


def test_of_a_link_the_text_is_searched(tmp_path: Path) -> None:
    installed, searched = tmp_path / "installed.jar", tmp_path / "searched"
    installed.write_text(SECRET)
    searched.mkdir()
    (searched / "link").symlink_to(installed)
    (searched / "other").symlink_to(f"/no/{SECRET}")
    assert Canaries(SECRET).in_files(searched).keys() == {str(searched / "other")}


@pytest.mark.parametrize("form", BINARY_FORMS.values(), ids=BINARY_FORMS.keys())
def test_a_binary_key_is_found_in_each_form(form: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xff\x00" + form)
    assert Canaries(BINARY).in_files(tmp_path).keys() == {str(tmp_path / "file")}


def test_what_is_no_secret_is_not_found() -> None:
    assert Canaries(SECRET, KEY).in_text("kanarienvogel -----BEGIN KEY----- prometheus:") == []
