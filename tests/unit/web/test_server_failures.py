"""An error of txnwatch itself: one answer fails and the others do not, and a server that has ended starts again."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from support.page_client import get
from support.waiting import eventually
from txnwatch.web.server import WebServer


class FailingSite:
    """A site whose work fails the first time, and one of whose paths always fails."""

    def __init__(self) -> None:
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


def test_a_server_that_has_ended_starts_again() -> None:
    site, said = FailingSite(), list[str]()

    def answers() -> bool:
        try:
            return get(server.url, "/good").status == 200
        except (http.client.HTTPException, OSError):
            return False

    with closing(a_server(site, said)) as server:
        assert eventually(lambda: site.starts == 2 and answers(), 10.0, "the second start")
    assert said == ["the HTTP server has ended, and starts again in 1 s: ValueError('planted')"]


def test_one_answer_fails_and_no_text_of_its_error_is_shown() -> None:
    site, said = FailingSite(), list[str]()
    site.starts = 1
    with closing(a_server(site, said)) as server:
        answer = get(server.url, "/bad")
        assert answer.status == 500
        assert "s3cret" not in answer.text
        assert get(server.url, "/good").status == 200
    assert said == ["an answer of the HTTP server has failed: ValueError"]
