"""A running server takes over changed certificates and another protection, from the next connection on."""

from __future__ import annotations

import contextlib
import http.client
import ssl
from contextlib import closing
from pathlib import Path

import bcrypt
import pytest
from prometheus_client import CollectorRegistry

from support.certificates import Authority
from support.page_client import a_stream
from support.page_world import a_calm_cluster, an_incident
from txnwatch.web.server import WebServer
from txnwatch.web.web_config import read_web_config

HASH = bcrypt.hashpw(b"a password", bcrypt.gensalt(4)).decode()
TLS = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.pem\n"
MUTUAL = f"{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    found = Authority(tmp_path, "ca").create()
    found.issue("server", "IP:127.0.0.1")
    found.issue("client", "DNS:client")
    Authority(tmp_path, "other").create().issue("stranger", "DNS:stranger")
    return found


def web_config(directory: Path, text: str) -> Path:
    path = directory / "web.yml"
    path.write_text(text)
    return path


def a_server(config: Path) -> WebServer:
    return WebServer(CollectorRegistry(), "127.0.0.1", 0, lambda: True, read_web_config(config))


def trusting(authority: Authority, client: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.certificate)
    if client is not None:
        context.load_cert_chain(authority.directory / f"{client}.pem")
    return context


def get_secured(server: WebServer, context: ssl.SSLContext) -> int:
    port = int(server.url.rpartition(":")[2])
    with closing(http.client.HTTPSConnection("127.0.0.1", port, timeout=10.0, context=context)) as connection:
        connection.request("GET", "/metrics")
        return connection.getresponse().status


def refuses(server: WebServer, authority: Authority, client: str | None) -> bool:
    try:
        return get_secured(server, trusting(authority, client)) != 200
    except (http.client.HTTPException, OSError):
        return True


def test_a_reload_that_requires_a_client_certificate_refuses_a_client_without_one(authority: Authority) -> None:
    """With asyncio's own server the context can be replaced, but the former `verify_mode` stays."""
    with closing(a_server(web_config(authority.directory, TLS))) as server:
        assert not refuses(server, authority, None)
        server.protect(read_web_config(web_config(authority.directory, MUTUAL)))
        assert refuses(server, authority, None)
        assert refuses(server, authority, "stranger")
        assert not refuses(server, authority, "client")
        server.protect(read_web_config(web_config(authority.directory, TLS)))
        assert not refuses(server, authority, None)


def test_a_reload_can_begin_and_end_tls(authority: Authority) -> None:
    with closing(a_server(web_config(authority.directory, ""))) as server:
        assert refuses(server, authority, None)
        server.protect(read_web_config(web_config(authority.directory, TLS)))
        assert not refuses(server, authority, None)
        server.protect(read_web_config(web_config(authority.directory, "")))
        assert refuses(server, authority, None)


def test_changed_authorities_of_clients_replace_the_former_ones_without_a_restart(authority: Authority) -> None:
    directory, authorities = authority.directory, authority.directory / "clients.pem"
    authorities.write_text(authority.certificate.read_text())
    path = web_config(directory, MUTUAL.replace("ca.pem", "clients.pem"))

    with closing(a_server(path)) as server:
        assert [refuses(server, authority, client) for client in ("client", "stranger")] == [False, True]
        authorities.write_text((directory / "other.pem").read_text())
        assert [refuses(server, authority, client) for client in ("client", "stranger")] == [True, False]
        authorities.write_text("half of a file")
        assert [refuses(server, authority, client) for client in ("client", "stranger")] == [True, False]


def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca").create()
    authority.issue("server", "IP:127.0.0.2")
    with closing(a_server(web_config(tmp_path, TLS))) as server:
        with pytest.raises(ssl.SSLCertVerificationError):
            get_secured(server, trusting(authority))
        authority.issue("server", "IP:127.0.0.1")
        assert get_secured(server, trusting(authority)) == 200
        (tmp_path / "server.pem").write_text("half of a file")
        assert get_secured(server, trusting(authority)) == 200


def test_a_stream_ends_when_its_user_is_no_longer_admitted(tmp_path: Path) -> None:
    """A page that is open must not show the next incident to a user who was removed."""
    world = a_calm_cluster()
    server = WebServer(CollectorRegistry(), "127.0.0.1", 0, lambda: True, site=world.site)
    with closing(server), a_stream(server.url) as stream, a_stream(server.url) as other:
        stream.until("snapshot")
        headers = "http_server_config:\n  headers:\n    X-Frame-Options: deny\n"
        server.protect(read_web_config(web_config(tmp_path, headers)))
        stream.until("beat")
        stream.until("beat")
        server.protect(read_web_config(web_config(tmp_path, f"basic_auth_users:\n  watch: '{HASH}'\n")))
        world.tell(an_incident("hang", 60))
        world.batch()
        for one in (stream, other):
            with contextlib.suppress(ConnectionResetError):
                assert all(kind != "delta" or "incidents" not in data["set"] for kind, data in one)
        with a_stream(server.url) as again:
            assert again.status == 401
