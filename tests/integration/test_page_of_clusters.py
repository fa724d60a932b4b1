"""`txnwatch page` asks real servers of watchers: with TLS, a login and a certificate, and when they go away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from prometheus_client import CollectorRegistry

from support.certificates import Authority
from support.page_client import get
from support.page_world import PageWorld, a_busy_cluster
from support.waiting import eventually
from support.watch import RunningPage
from txnwatch.web.server import WebServer
from txnwatch.web.web_config import read_web_config

SEEN_S = 15.0
CLOSED = "the connection was closed without an answer"  # the server says no more to who has no certificate
PASSWORD = "a secret: with a colon"
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()


@dataclass
class Serving:
    """The HTTP server of a watcher with an invented watch."""

    world: PageWorld
    server: WebServer

    @property
    def url(self) -> str:
        return self.server.url.replace("127.0.0.1", "localhost") if "https" in self.server.url else self.server.url


Serve = Callable[..., Serving]


@pytest.fixture
def watcher() -> Iterator[Serve]:
    """Serves the page of a watcher."""
    with ExitStack() as stack:

        def begin(world: PageWorld, port: int = 0, web: Path | None = None) -> Serving:
            config = read_web_config(web) if web is not None else None
            server = WebServer(CollectorRegistry(), "127.0.0.1", port, lambda: True, config, site=world.site)
            stack.callback(server.close)
            return Serving(world, server)

        yield begin


def entry(name: str, url: str, **more: object) -> str:
    given = "".join(f'{key} = "{value}"\n' for key, value in more.items())
    return f'[[cluster]]\nname = "{name}"\nwatchers = ["{url}"]\n{given}'


def status(page: RunningPage, name: str) -> dict[str, Any]:
    found: dict[str, Any] = get(page.url, f"/c/{name}/api/v1/status").json
    return found


def until(page: RunningPage, name: str, state: str, world: PageWorld | None = None) -> dict[str, Any]:
    """Waits for a state of one cluster, while its watcher goes on."""

    def found() -> dict[str, Any] | None:
        if world is not None:
            world.batch()
        now = status(page, name)
        return now if now["state"] == state else None

    return eventually(found, SEEN_S, lambda: f"{state} instead of {status(page, name)}")


def test_two_clusters_and_one_whose_watcher_goes_away_and_comes_back(watcher: Serve, tmp_path: Path) -> None:
    busy, calm = watcher(a_busy_cluster()), watcher(PageWorld())
    file = tmp_path / "clusters.toml"
    file.write_text(entry("eu", busy.url, bootstrap_server="kafka-1:9092") + entry("us", calm.url))
    with RunningPage("--clusters-file", str(file)) as page:
        calm.world.store.origin = busy.world.store.origin
        until(page, "eu", "incident", busy.world)
        until(page, "us", "clear", calm.world)
        rows = get(page.url, "/c/eu/api/v1/incidents").json["rows"]
        assert "--bootstrap-server kafka-1:9092" in rows[0]["steps"][0]["command"]
        port = int(calm.url.rpartition(":")[2])
        calm.server.close()
        assert "Connection refused" in until(page, "us", "unknown")["problem"]
        watcher(calm.world, port)
        until(page, "us", "clear", calm.world)
        assert page.stop() == 0
        assert not [line for line in page.lines if "Traceback" in line]


def test_tls_with_a_certificate_of_the_client_and_a_login(watcher: Serve, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours").create()
    own = authority.issue("watcher", "DNS:localhost")
    client = authority.issue("page", "DNS:page")
    web = tmp_path / "web.yml"
    web.write_text(
        f"tls_server_config:\n  cert_file: {own}\n  key_file: {own.with_suffix('.key')}\n"
        f"  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: {authority.certificate}\n"
        f"basic_auth_users:\n  page: {HASH}\n"
    )
    protected = watcher(PageWorld(), web=web)
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    tls = {"ca_file": authority.certificate, "cert_file": client, "key_file": client.with_suffix(".key")}
    login = {"user": "page", "password_file": password}
    file = tmp_path / "clusters.toml"
    names = {"whole": {**tls, **login}, "no-login": tls, "no-certificate": {**login, "ca_file": authority.certificate}}
    file.write_text(
        "".join(entry(name, protected.url, **more) for name, more in names.items()) + entry("no-ca", protected.url)
    )
    with RunningPage("--clusters-file", str(file)) as page:
        until(page, "whole", "clear", protected.world)
        assert "it asks for a login" in until(page, "no-login", "unknown")["problem"]
        assert "CERTIFICATE_VERIFY_FAILED" in until(page, "no-ca", "unknown")["problem"]
        assert until(page, "no-certificate", "unknown")["problem"] == f"{protected.url}: {CLOSED}"
        password.write_text("another")
        assert "it refuses the login" in until(page, "whole", "unknown")["problem"]
        assert page.stop() == 0
        assert PASSWORD not in "\n".join(page.lines)


def test_of_two_watchers_the_other_one_is_shown_when_one_goes_away(watcher: Serve) -> None:
    first, second = watcher(PageWorld()), watcher(PageWorld())
    flags = [part for one in (first, second) for part in ("--watcher", f"eu={one.url}")]
    with RunningPage(*flags) as page:
        until(page, "eu", "clear", first.world)

        def shown(url: str) -> bool:
            first.world.batch()
            second.world.batch()
            found = status(page, "eu")
            return found["state"] == "clear" and [one["url"] for one in found["watchers"] if one["is_shown"]] == [url]

        was, other = (first, second) if shown(first.url) else (second, first)
        with closing(was.server):
            pass
        eventually(lambda: shown(other.url), SEEN_S, "the other watcher")
        assert "Connection refused" in str(status(page, "eu")["detail"])
