"""A whole answer of another server: its size has a bound before and after it is uncompressed, and a part is none."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from support.certificates import Authority
from support.http_receiver import Says, receiving
from txnwatch.http_client import CertificateOfClient, HttpClient, parse_address
from txnwatch.state.model.errors import ConfigError, SinkError

MOST = 1_000
GZIP = {"Content-Encoding": "gzip"}


def read(answer: Says) -> tuple[int, bytes | None]:
    with receiving() as receiver:
        receiver.answers = [answer]
        found = HttpClient(parse_address(f"{receiver.url}/facts")).read([("X-A", "b")], MOST)
        (got,) = receiver.received
    assert (got.method, got.path, got.headers["x-a"]) == ("GET", "/facts", "b")
    return found


def test_the_whole_body_is_read() -> None:
    assert read(Says(200, {}, b"x" * MOST)) == (200, b"x" * MOST)
    assert read(Says(200, GZIP, gzip.compress(b"x" * MOST))) == (200, b"x" * MOST)
    assert read(Says(200, {}, b"")) == (200, b"")


@pytest.mark.parametrize("status", [204, 301, 401, 404, 503])
def test_of_another_status_no_body_is_read(status: int) -> None:
    assert read(Says(status, {"Location": "https://elsewhere/"})) == (status, None)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Says(200, {}, b"x" * (MOST + 1)), "at most 1000 bytes, found more"),
        (Says(200, GZIP, gzip.compress(b"x" * (MOST + 1))), "at most 1000 bytes, found more"),
        (Says(200, GZIP, gzip.compress(b"x" * (50 << 20))), "at most 1000 bytes, found more"),
        (Says(200, GZIP, gzip.compress(b"abc" * 99)[:-9]), "found a part of it"),
        (Says(200, GZIP, b"not compressed"), "incorrect header check"),
    ],
    ids=["too large", "too large inside", "a bomb", "a part", "not compressed"],
)
def test_what_is_too_large_or_no_whole_answer_is_an_error(answer: Says, expected: str) -> None:
    with pytest.raises(SinkError, match=expected):
        read(answer)


def test_a_server_that_asks_for_a_certificate_gets_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours").create()
    own = authority.issue("page", "DNS:page")
    address = parse_address("https://localhost/")
    HttpClient(address, authority.certificate, CertificateOfClient(own, own.with_suffix(".key"))).check()
    with pytest.raises(ConfigError, match=r"key_file .*none\.key: expected certificates in PEM"):
        HttpClient(address, None, CertificateOfClient(own, tmp_path / "none.key")).check()
