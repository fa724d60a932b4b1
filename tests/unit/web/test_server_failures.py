"""An error of txnwatch itself: one answer fails and the others do not, and a server that has ended starts again."""

from __future__ import annotations

import asyncio
import http.client
import socket
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from support.page_client import get
from support.waiting import eventually
from txnwatch.metrics.collector import Metrics
from txnwatch.page.site_files import OwnHosts
from txnwatch.state.model.values import TimestampMs
from txnwatch.web import server as server_module
from txnwatch.web.connections import Connections
from txnwatch.web.server import WebServer


class FailingSite:
    """A site whose work fails the first time, and one of whose paths always fails."""

    def __init__(self) -> None:
        self.hosts = OwnHosts()
        self.starts = 0

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/good", _good), Route("/bad", _bad)]

    async def work(self, _: Callable[[Callable[[], Any]], Any]) -> None:
        self.starts += 1
        if self.starts == 1:
            raise ValueError("planted")
        await asyncio.Event().wait()

    def end(self) -> None:
        """Has no streams."""


async def _good(_: Request) -> Response:
    return PlainTextResponse("good")


async def _bad(_: Request) -> Response:
    raise ValueError("s3cret")


def a_server(site: FailingSite, said: list[str]) -> WebServer:
    return WebServer(CollectorRegistry(), "127.0.0.1", 0, lambda: True, site=site, report=said.append)


def test_a_server_that_has_ended_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    site, said, failures = FailingSite(), list[str](), [ValueError("planted")]
    site.starts, accept = 1, Connections.accept

    async def failing(connections: Connections, listening: socket.socket) -> None:
        if failures:
            raise failures.pop()
        await accept(connections, listening)

    monkeypatch.setattr(Connections, "accept", failing)

    def answers() -> bool:
        try:
            return get(server.url, "/good").status == 200
        except (http.client.HTTPException, OSError):
            return False

    with closing(a_server(site, said)) as server:
        assert eventually(lambda: site.starts == 3 and answers(), 10.0, "the second start")
    assert said == ["the HTTP server has ended, and starts again in 1 s: ValueError('planted')"]


def test_a_page_that_has_ended_starts_again_and_the_metrics_and_the_probes_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, said = FailingSite(), list[str]()
    assert server_module.SITE_PAUSE_S == 60.0
    monkeypatch.setattr(server_module, "SITE_PAUSE_S", 2.0)
    metrics = Metrics(lambda: TimestampMs(0))
    with closing(WebServer(metrics.registry, "127.0.0.1", 0, lambda: True, site=site, report=said.append)) as server:
        metrics.is_page_up = lambda: server.is_site_up
        assert eventually(lambda: said or None, 10.0, "the end of the page")
        assert "txnwatch_page_up 0.0" in get(server.url, "/metrics").text
        assert get(server.url, "/-/healthy").status == 200
        assert eventually(lambda: site.starts == 2, 10.0, "the second start")
        assert "txnwatch_page_up 1.0" in get(server.url, "/metrics").text
    assert said == ["the page has ended, and starts again in 2 s: ValueError('planted')"]
    assert not server.is_site_up


def test_one_answer_fails_and_no_text_of_its_error_is_shown() -> None:
    site, said = FailingSite(), list[str]()
    site.starts = 1
    with closing(a_server(site, said)) as server:
        answer = get(server.url, "/bad")
        assert answer.status == 500
        assert "s3cret" not in answer.text
        assert get(server.url, "/good").status == 200
    assert said == ["an answer of the HTTP server has failed: ValueError"]
