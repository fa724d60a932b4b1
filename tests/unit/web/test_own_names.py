"""The name in the Host header: a web page of somebody else must not read the metrics of this machine."""

from __future__ import annotations

import http.client
import socket
from contextlib import closing

import pytest
from prometheus_client import CollectorRegistry

from support.page_world import PageWorld
from txnwatch.page.site_files import OwnHosts
from txnwatch.web.server import WebServer

PATHS = ("/metrics", "/-/healthy", "/-/ready")
FOREIGN = ("evil.example", "evil.example:9464", "localhost.evil.example", "127.0.0.1.evil.example", "")


def answer(server: WebServer, path: str, host: str) -> int:
    port = int(server.url.rpartition(":")[2])
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10.0)) as connection:
        connection.putrequest("GET", path, skip_host=True)
        connection.putheader("Host", host)
        connection.endheaders()
        return connection.getresponse().status


def a_server(address: str, *names: str) -> WebServer:
    site = PageWorld().site
    site.hosts = OwnHosts(names)
    return WebServer(CollectorRegistry(), address, 0, lambda: True, site=site)


@pytest.mark.parametrize("path", PATHS)
def test_on_the_loopback_address_only_a_request_with_an_own_name_is_answered(path: str) -> None:
    own = ("127.0.0.1:9464", "[::1]:9464", "localhost", socket.gethostname(), "watch.example")
    with closing(a_server("127.0.0.1", "watch.example")) as server:
        assert [answer(server, path, host) for host in FOREIGN] == [421] * len(FOREIGN)
        assert [answer(server, path, host) for host in own] == [200] * len(own)


def test_a_server_without_a_page_has_names_too() -> None:
    with closing(WebServer(CollectorRegistry(), "localhost", 0, lambda: True)) as server:
        assert [answer(server, "/metrics", host) for host in ("evil.example", "localhost")] == [421, 200]


@pytest.mark.parametrize("path", PATHS)
def test_on_another_address_prometheus_and_the_probes_may_use_any_name(path: str) -> None:
    with closing(a_server("0.0.0.0")) as server:
        assert answer(server, path, "txnwatch.monitoring.svc:9464") == 200
        assert answer(server, "/api/v1/status", "txnwatch.monitoring.svc:9464") == 421, "but not for the page"
