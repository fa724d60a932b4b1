"""One request: its deadline, what it never follows or shows, and TLS."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.certificates import Authority
from support.http_receiver import Says, receiving
from txnwatch.http_client import HttpClient, parse_address
from txnwatch.state.model.errors import ConfigError, SinkError


@contextmanager
def saying(*parts: bytes, pause_s: float = 0.0) -> Iterator[int]:
    """A server that sends the parts, whatever it is asked, and then waits; its port."""
    done = threading.Event()

    def serve(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            for part in parts:
                try:
                    connection.sendall(part)
                except OSError:
                    return
                if done.wait(pause_s):
                    return
            done.wait(30.0)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,), daemon=True)
        thread.start()
        yield server.getsockname()[1]
        done.set()
        thread.join(5.0)


def client(url: str, ca_file: Path | None = None) -> HttpClient:
    return HttpClient(parse_address(url), ca_file)


def test_a_request_arrives_as_it_was_given_and_its_answer_comes_back() -> None:
    with receiving() as receiver:
        receiver.answers = [Says(429, {"Retry-After": "7"}, b"too much\x1b[31m")]
        reply = client(f"{receiver.url}/hooks?key=1").request("POST", [("X-Team", "a")], b"body")
        (got,) = receiver.received
    assert (got.method, got.path, got.body, got.headers["x-team"]) == ("POST", "/hooks?key=1", b"body", "a")
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert (reply.status, reply.headers["retry-after"], reply.text) == (429, "7", "too much\\x1b[31m")


def test_a_redirect_is_not_followed() -> None:
    with receiving() as other, receiving() as receiver:
        receiver.answers = [Says(307, {"Location": other.url})]
        assert client(receiver.url).request("POST", [], b"secret").status == 307
        assert other.received == []


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with receiving() as receiver:
        assert client(receiver.url).request("POST", []).status == 204


@pytest.mark.parametrize(
    ("parts", "pause_s"),
    [((), 0.0), ((b"H", b"T", b"T", b"P", *[b"/"] * 50), 0.05), ((b"HTTP/1.1 100 Continue\r\n\r\n",), 0.0)],
    ids=["silent", "a byte now and then", "never the last answer"],
)
def test_a_slow_server_holds_nobody_longer_than_the_timeout(parts: tuple[bytes, ...], pause_s: float) -> None:
    with saying(*parts, pause_s=pause_s) as port:
        begun = time.monotonic()
        with pytest.raises(SinkError, match=r"127\.0\.0\.1:\d+ has not answered within 0\.3 s"):
            client(f"http://127.0.0.1:{port}/secret").request("POST", [], b"x", timeout_s=0.3)
        assert time.monotonic() - begun < 5.0


def test_the_status_counts_also_if_the_rest_of_the_answer_never_comes() -> None:
    with saying(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nten bytes.") as port:
        assert client(f"http://127.0.0.1:{port}/").request("POST", [], timeout_s=0.3).status == 200


@pytest.mark.parametrize(
    "parts",
    [(b"not http at all\r\n\r\n",), (b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"x" * 200_000,), (b"\x16\x03\x01",)],
    ids=["no HTTP", "headers without end", "TLS"],
)
def test_what_is_no_answer_is_an_error_without_the_path(parts: tuple[bytes, ...]) -> None:
    with saying(*parts) as port, pytest.raises(SinkError) as error:
        client(f"http://127.0.0.1:{port}/secret").request("POST", [], timeout_s=1.0)
    assert "secret" not in str(error.value)


def test_an_answer_before_the_end_of_a_long_body_counts() -> None:
    def serve(server: socket.socket) -> None:
        connection, _ = server.accept()
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 20):
            pass
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        assert client(url).request("POST", [], b"x" * (8 << 20)).status == 413


def test_nobody_there_is_an_error_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(SinkError, match="refused"):
        client(f"http://127.0.0.1:{port}/").request("POST", [])


def test_a_certificate_is_verified_and_a_renewed_authority_needs_no_restart(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path, "ours").create(), Authority(tmp_path, "other").create()
    certificate = ours.issue("server", "DNS:localhost")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(other.certificate.read_bytes())
    with receiving(certificate, certificate.with_suffix(".key")) as receiver:
        sender = client(receiver.url, trusted)
        with pytest.raises(SinkError, match="CERTIFICATE_VERIFY_FAILED"):
            sender.request("POST", [])
        trusted.write_bytes(ours.certificate.read_bytes())
        assert sender.request("POST", [], b"x").status == 204
        by_address = client(f"https://127.0.0.1:{receiver.port}", trusted)
        with pytest.raises(SinkError, match="CERTIFICATE_VERIFY_FAILED"):
            by_address.request("POST", [])


def test_a_file_that_is_no_authority_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    for path in (tmp_path / "ca.pem", tmp_path / "missing.pem"):
        with pytest.raises(ConfigError, match="ca_file"):
            client("https://localhost/", path).check()


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/",
        "host:443",
        "https://:8443/x",
        "https://user:word@host/",
        "https://host/#part",
        "https://host:0/",
        "https://host:99999/",
        "https://ho st/",
        "https://host/\n",
        "https://h\u00f6st/",
        f"https://{'x' * 64}.org/",
    ],
)
def test_what_is_no_address_is_an_error_that_does_not_show_it(url: str) -> None:
    with pytest.raises(ValueError, match="expected https://host:port/path") as error:
        parse_address(url)
    assert url not in str(error.value)


@pytest.mark.parametrize(
    ("url", "is_plain"),
    [("https://a/", False), ("http://a/", True), ("http://127.0.0.1/", False), ("http://[::1]:80/", False)],
)
def test_plain_http_is_known_unless_it_stays_on_this_machine(url: str, *, is_plain: bool) -> None:
    assert parse_address(url).is_plain is is_plain
