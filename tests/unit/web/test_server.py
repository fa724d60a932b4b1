"""The HTTP server: idle clients delay nobody, and the web configuration file is enforced."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Lock, current_thread

import bcrypt
import pytest
from prometheus_client import CollectorRegistry, Gauge

from support.certificates import Authority
from txnwatch.config import RunSettings
from txnwatch.state.model.errors import ConfigError
from txnwatch.web.server import WebServer
from txnwatch.web.web_config import read_web_config

ROOT = Path(__file__).parents[3]
SECRET = "kanarienvogel"
HASH = bcrypt.hashpw(SECRET.encode(), bcrypt.gensalt(4)).decode()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    found = Authority(tmp_path_factory.mktemp("certificates"), "ca").create()
    found.issue("server", "IP:127.0.0.1")
    found.issue("client", "DNS:client")
    Authority(found.directory, "other").create().issue("stranger", "DNS:stranger")
    return found


def a_server(config: Path | None = None, registry: CollectorRegistry | None = None) -> WebServer:
    served = CollectorRegistry() if registry is None else registry
    return WebServer(served, "127.0.0.1", 0, lambda: True, read_web_config(config))


def port_of(server: WebServer) -> int:
    return int(server.url.rpartition(":")[2])


def get(server: WebServer, path: str = "/metrics", authorization: str | None = None) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=10.0)) as connection:
        connection.request("GET", path, headers={"Authorization": authorization} if authorization else {})
        return connection.getresponse().status


def get_secured(server: WebServer, context: ssl.SSLContext, authorization: str | None = None) -> int:
    port = port_of(server)
    with closing(http.client.HTTPSConnection("127.0.0.1", port, timeout=10.0, context=context)) as connection:
        connection.request("GET", "/metrics", headers={"Authorization": authorization} if authorization else {})
        return connection.getresponse().status


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def web_config(directory: Path, text: str) -> Path:
    path = directory / "web.yml"
    path.write_text(text)
    return path


def test_it_listens_on_loopback_unless_a_flag_changes_it() -> None:
    assert RunSettings(bootstrap_server="k:9092").http_host == "127.0.0.1"


@pytest.mark.parametrize("config", [None, "tls"])
def test_idle_clients_do_not_delay_others(authority: Authority, config: str | None) -> None:
    path = web_config(authority.directory, TLS) if config else None
    with closing(a_server(path)) as server, ExitStack() as idle:
        for _ in range(10):
            connected = idle.enter_context(socket.create_connection(("127.0.0.1", port_of(server))))
            connected.send(b"G" if config is None else b"\x16")
        since = time.monotonic()
        if config is None:
            assert [get(server, path) for path in ("/-/healthy", "/-/ready", "/metrics")] == [200, 200, 200]
        else:
            assert get_secured(server, trusting(authority)) == 200
        assert time.monotonic() - since < 10.0


def test_an_idle_client_is_disconnected() -> None:
    with closing(a_server()) as server, socket.create_connection(("127.0.0.1", port_of(server)), 10.0) as idle:
        since = time.monotonic()
        assert idle.recv(1) == b""
        assert 3.0 < time.monotonic() - since < 8.0


def test_one_thread_collects_the_metrics() -> None:
    registry, threads = CollectorRegistry(), set[str]()
    gauge = Gauge("test", "a test", registry=registry)
    gauge.set_function(lambda: (threads.add(current_thread().name), 1.0)[1])
    with closing(a_server(registry=registry)) as server:
        assert [get(server) for _ in range(5)] == [200] * 5
    assert len(threads) == 1


USERS = f"basic_auth_users:\n  watch: {HASH}\n  other: {HASH}\n"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[WebServer]:
    with closing(a_server(web_config(tmp_path, USERS))) as server:
        yield server


@pytest.mark.parametrize("path", ["/metrics", "/-/healthy", "/-/ready", "/elsewhere"])
def test_every_path_asks_for_a_user(guarded: WebServer, path: str) -> None:
    assert get(guarded, path) == 401


def test_a_user_with_the_right_password_gets_an_answer_each_time(guarded: WebServer) -> None:
    assert [get(guarded, authorization=basic("watch", SECRET)) for _ in range(3)] == [200] * 3
    assert get(guarded, authorization=basic("other", SECRET)) == 200
    assert get(guarded, authorization=basic("watch", f"{SECRET}2")) == 401


@pytest.mark.parametrize(
    "authorization",
    [
        basic("watch", ""),
        basic("watch", f"{SECRET}\0"),
        basic("watch", SECRET + "x" * 100),
        basic("nobody", SECRET),
        basic("", ""),
        f"Basic {base64.b64encode(SECRET.encode()).decode()}",
        f"Basic {base64.b64encode(b'watch:' + bytes([255])).decode()}",
        "Basic !!!",
        "Basic é",
        "Basic",
        f"Bearer {SECRET}",
    ],
)
def test_anybody_else_is_refused(guarded: WebServer, authorization: str) -> None:
    assert get(guarded, authorization=authorization) == 401


def test_passwords_are_checked_one_after_another(guarded: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a client with wrong passwords would keep every core busy."""
    running, was_alone = Lock(), list[bool]()
    check = bcrypt.checkpw

    def checked(password: bytes, hashed: bytes) -> bool:
        is_alone = running.acquire(blocking=False)
        was_alone.append(is_alone)
        time.sleep(0.05)
        if is_alone:
            running.release()
        return check(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", checked)
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda number: get(guarded, authorization=basic("watch", str(number))), range(8)))
    assert answers == [401] * 8
    assert was_alone == [True] * 8


def test_a_password_that_is_cut_is_no_password(tmp_path: Path) -> None:
    long = "x" * 72
    hashed = bcrypt.hashpw(long.encode(), bcrypt.gensalt(4)).decode()
    with closing(a_server(web_config(tmp_path, f"basic_auth_users: {{watch: {hashed}}}"))) as server:
        assert get(server, authorization=basic("watch", long)) == 200
        assert get(server, authorization=basic("watch", f"{long}y")) == 401


TLS = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.pem\n"
MUTUAL = f"{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"


def trusting(authority: Authority, client: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.certificate)
    if client is not None:
        context.load_cert_chain(authority.directory / f"{client}.pem")
    return context


def test_tls_and_users_together(authority: Authority) -> None:
    with closing(a_server(web_config(authority.directory, TLS + USERS))) as server:
        assert server.url.startswith("https://127.0.0.1:")
        assert get_secured(server, trusting(authority), basic("watch", SECRET)) == 200
        assert get_secured(server, trusting(authority)) == 401
        with pytest.raises(ssl.SSLCertVerificationError):
            get_secured(server, ssl.create_default_context())
        with pytest.raises((http.client.HTTPException, OSError)):
            get(server)


def test_a_client_certificate_is_required(authority: Authority) -> None:
    with closing(a_server(web_config(authority.directory, MUTUAL))) as server:
        assert get_secured(server, trusting(authority, "client")) == 200
        for refused in (trusting(authority), trusting(authority, "stranger")):
            with pytest.raises((http.client.HTTPException, OSError)):
                get_secured(server, refused)


def test_a_client_certificate_is_verified_only_if_one_is_given(authority: Authority) -> None:
    if_given = MUTUAL.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven")
    with closing(a_server(web_config(authority.directory, if_given))) as server:
        assert get_secured(server, trusting(authority)) == 200
        assert get_secured(server, trusting(authority, "client")) == 200
        with pytest.raises((http.client.HTTPException, OSError)):
            get_secured(server, trusting(authority, "stranger"))


def test_the_lowest_version_is_enforced(authority: Authority) -> None:
    older = trusting(authority)
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    with closing(a_server(web_config(authority.directory, TLS))) as server:
        assert get_secured(server, older) == 200
    with closing(a_server(web_config(authority.directory, f"{TLS}  min_version: TLS13\n"))) as server:
        assert get_secured(server, trusting(authority)) == 200
        with pytest.raises(OSError, match=r"(?i)version|reset|EOF"):
            get_secured(server, older)


def test_the_highest_version_is_enforced(authority: Authority) -> None:
    newer = trusting(authority)
    newer.minimum_version = ssl.TLSVersion.TLSv1_3
    with closing(a_server(web_config(authority.directory, f"{TLS}  max_version: TLS12\n"))) as server:
        assert get_secured(server, trusting(authority)) == 200
        with pytest.raises(OSError, match=r"(?i)version|reset|EOF"):
            get_secured(server, newer)


def test_only_the_cipher_suites_of_the_file_are_used_with_tls_1_2(authority: Authority) -> None:
    suites = "  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, TLS_AES_128_GCM_SHA256]\n"
    listed, other = trusting(authority), trusting(authority)
    for context in (listed, other):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    listed.set_ciphers("ECDHE-ECDSA-AES128-SHA")
    other.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    with closing(a_server(web_config(authority.directory, TLS))) as server:
        assert get_secured(server, other) == 200
    with closing(a_server(web_config(authority.directory, TLS + suites))) as server:
        assert get_secured(server, listed) == 200
        assert get_secured(server, trusting(authority)) == 200
        with pytest.raises(OSError, match=r"(?i)handshake|reset|EOF"):
            get_secured(server, other)


@pytest.mark.parametrize(
    "suite",
    [
        *(f"TLS_ECDHE_ECDSA_WITH_{rest}" for rest in ("AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "AES_256_CBC_SHA")),
        *(f"TLS_ECDHE_RSA_WITH_{rest}" for rest in ("AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "AES_128_CBC_SHA")),
        *(f"TLS_ECDHE_{key}_WITH_CHACHA20_POLY1305_SHA256" for key in ("RSA", "ECDSA")),
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    ],
)
def test_each_cipher_suite_of_the_format_is_known(authority: Authority, suite: str) -> None:
    found = read_web_config(web_config(authority.directory, f"{TLS}  cipher_suites: [{suite}]\n")).tls
    assert found is not None
    names = [one["name"] for one in found.context.get_ciphers() if one["protocol"] != "TLSv1.3"]
    short = suite.removeprefix("TLS_").replace("_WITH_", "-").replace("AES_", "AES").replace("_CBC", "")
    assert names == [short.replace("_", "-").removesuffix("-SHA256" if "POLY" in suite else "")]


def test_the_headers_of_the_file_are_in_every_answer(tmp_path: Path) -> None:
    headers = "http_server_config:\n  headers:\n    X-Frame-Options: deny\n    X-XSS-Protection: ''\n"
    with closing(a_server(web_config(tmp_path, USERS + headers))) as server:
        url = ("127.0.0.1", port_of(server))
        for path, authorization in (("/metrics", basic("watch", SECRET)), ("/-/ready", ""), ("/none", "")):
            with closing(http.client.HTTPConnection(*url, timeout=10.0)) as connection:
                connection.request("GET", path, headers={"Authorization": authorization})
                answer = connection.getresponse()
            assert answer.headers["X-Frame-Options"] == "deny", path
            assert answer.headers["X-XSS-Protection"] is None
        server.protect(read_web_config(None))
        with closing(http.client.HTTPConnection(*url, timeout=10.0)) as connection:
            connection.request("GET", "/metrics")
            assert connection.getresponse().headers["X-Frame-Options"] is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tls_server_config: {cert_file: a}", "tls_server_config.key_file: expected Field required"),
        (f"{TLS}  cipher_suites: [x]", "tls_server_config.cipher_suites: expected some of TLS_ECDHE_.*, found 'x'"),
        (f"{TLS}  cipher_suites: [TLS_AES_128_GCM_SHA256]", "expected a suite of TLS 1.2 in cipher_suites, or min_ver"),
        (f"{TLS}  max_version: TLS11", "max_version: expected one of TLS12, TLS13, found 'TLS11'"),
        (f"{TLS}  min_version: TLS13\n  max_version: TLS12", "expected a max_version from TLS13 on, found TLS12"),
        ("http_server_config: {headers: {Server: x}}", "headers: expected some of Content-.*, found 'Server'"),
        ("http_server_config: {headers: {X-Frame-Options: x}}", "expected deny or sameorigin for X-Frame-Options"),
        ('http_server_config: {headers: {X-XSS-Protection: "1\\r\\n"}}', "expected printable ASCII for X-XSS-"),
        (f"{TLS}  min_version: TLS10", "min_version: expected one of TLS12, TLS13, found 'TLS10'"),
        (f"{TLS}  client_auth_type: RequestClientCert", "client_auth_type: expected one of NoClientCert, Verify"),
        (f"{TLS}  client_ca_file: ca.pem", "tls_server_config: expected client_ca_file and a client_auth_type"),
        (f"{TLS}  client_auth_type: RequireAndVerifyClientCert", "tls_server_config: expected client_ca_file and"),
        (TLS, "tls_server_config: expected files that can be read, found .*server.pem: No such file"),
        (f"basic_auth_users: {{watch: {SECRET}}}", "expected a bcrypt hash for user 'watch', found other text"),
        ("basic_auth_users: {watch: 1}", "basic_auth_users.watch: expected a valid string"),
        (f"- {SECRET}", "expected a valid dictionary"),
        (f"a: {SECRET}: {{", "expected YAML, found other text"),
    ],
)
def test_an_invalid_file_is_an_error_without_its_secrets(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        read_web_config(web_config(tmp_path, text))
    assert "http_web_config_file" in str(raised.value)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("section", "key"),
    [
        *(("tls_server_config", key) for key in ("cert", "key", "client_ca", "client_allowed_sans")),
        *(("tls_server_config", key) for key in ("prefer_server_cipher_suites", "curve_preferences")),
        ("http_server_config", "http2"),
        (None, "rate_limit"),
    ],
)
def test_a_key_that_is_not_supported_is_refused_and_named_in_the_docs(
    tmp_path: Path, section: str | None, key: str
) -> None:
    text = f"{section}: {{{key}: {SECRET}}}" if section is not None else f"{key}: {SECRET}"
    name = key if section is None else f"{section}.{key}"
    with pytest.raises(ConfigError, match=rf"{name}: a key that is not supported here") as raised:
        read_web_config(web_config(tmp_path, text))
    assert SECRET not in str(raised.value)
    assert f"`{name}`" in (ROOT / "docs" / "hardening.md").read_text()


def test_a_file_that_is_no_certificate_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "server.pem").write_text(SECRET)
    with pytest.raises(ConfigError, match="expected a certificate and its key in PEM") as raised:
        read_web_config(web_config(tmp_path, TLS))
    assert SECRET not in str(raised.value)


def test_no_file_and_an_empty_file_protect_nothing(tmp_path: Path) -> None:
    assert read_web_config(None).users is None
    assert read_web_config(web_config(tmp_path, "")).tls is None
    with pytest.raises(ConfigError, match="No such file"):
        read_web_config(tmp_path / "none")
