"""The page over a slow link, without a stream, with users, and without any other host."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from prometheus_client import CollectorRegistry

from support.browsers import Tab, a_tab
from support.forwarder import Forwarder
from support.page_client import a_stream
from support.page_world import PageWorld, a_busy_cluster, a_calm_cluster, now_ms
from txnwatch.page.live_picture import MOST
from txnwatch.state.model.values import TimestampMs
from txnwatch.web.server import WebServer
from txnwatch.web.web_config import WebConfig, read_web_config

Serve = Callable[[PageWorld], str]
SILENT = "The watcher does not answer."
LOG_IN = "The server asks for a user: load the page again and log in."
STATES = """() => {
    const page = document.documentElement
    window.seen = [page.dataset.state]
    const note = () => { if (window.seen.at(-1) !== page.dataset.state) window.seen.push(page.dataset.state) }
    new MutationObserver(note).observe(page, {attributes: true, attributeFilter: ["data-state"]})
}"""


def seen(tab: Tab) -> list[str]:
    return list(tab.page.evaluate("window.seen"))


@contextlib.contextmanager
def a_slow_link(url: str, bytes_per_s: int) -> Iterator[tuple[Forwarder, str]]:
    port = int(url.rpartition(":")[2])
    with Forwarder(("127.0.0.1", port), bytes_per_s=bytes_per_s) as link:
        link.start()
        yield link, f"http://{link.address}"


def test_a_slow_link_is_enough(browser: Any, serve: Serve) -> None:
    with (
        a_slow_link(serve(a_calm_cluster()), 20_000) as (_, url),
        a_tab(browser, url) as tab,
    ):
        tab.until("All clear.", within_s=20.0)
        tab.page.evaluate(STATES)
        tab.page.wait_for_timeout(6_000)
        assert seen(tab) == ["clear"]
        assert tab.said == []


def test_a_link_that_stalls_is_silent_until_it_goes_on(browser: Any, serve: Serve) -> None:
    """The page is silent after 8 s instead of 3 s, so that a moment without a processor is no stall."""
    link_of = a_slow_link(serve(a_calm_cluster()), 1_000_000)
    with link_of as (link, url), a_tab(browser, url, constants={"live.js SILENT_MS": 8_000}) as tab:
        tab.until("All clear.")
        tab.page.evaluate(STATES)
        link.is_stalled.set()
        tab.until(SILENT, within_s=11.0)
        tab.page.wait_for_timeout(3_000)
        link.is_stalled.clear()
        tab.until("All clear.", within_s=5.0)
        assert seen(tab) == ["clear", "unknown", "clear"]


@pytest.mark.long
def test_messages_that_are_held_up_do_not_count(browser: Any) -> None:
    """A message each second, and each of them is 8 s old; a new stream begins after 30 s."""
    world, held_ms = a_calm_cluster(), [0]
    world.site.live.now_ms = lambda: TimestampMs(now_ms() - held_ms[0])
    with world.served() as url, a_tab(browser, url) as tab:
        tab.until("All clear.")
        held_ms[0] = 8_000
        tab.until(SILENT, within_s=3.0)
        tab.page.evaluate(STATES)
        tab.page.wait_for_timeout(8_000)
        assert seen(tab) == ["unknown"]
        for _ in range(30):
            tab.page.wait_for_timeout(1_000)
            world.batch()
        tab.until("All clear.", within_s=15.0)


@pytest.mark.long
def test_without_a_stream_the_page_asks_every_5_s_and_the_stream_comes_back(browser: Any, serve: Serve) -> None:
    """All streams are taken, by one address. The page tries the stream again after 6 s instead of 30 s."""
    url = serve(a_calm_cluster())
    with ExitStack() as streams:
        for _ in range(MOST):
            assert streams.enter_context(a_stream(url)).status == 200
        with a_tab(browser, url, constants={"live.js WITHIN_MS": 6_000}) as tab:
            tab.until("All clear.")
            tab.until("every 5 s", ".connection")
            tab.page.evaluate(STATES)
            tab.page.wait_for_timeout(12_000)
            streams.close()
            tab.until("live", ".connection", within_s=20.0)
            assert seen(tab) == ["clear"]


def users(directory: Path, password: str) -> WebConfig:
    hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()
    file = directory / "web.yml"
    file.write_text(f"basic_auth_users: {{watch: '{hashed}'}}")
    return read_web_config(file)


def guarded(directory: Path, password: str, port: int = 0) -> WebServer:
    site = a_calm_cluster().site
    return WebServer(CollectorRegistry(), "127.0.0.1", port, lambda: True, users(directory, password), site=site)


def logged_in(password: str) -> dict[str, Any]:
    return {"http_credentials": {"username": "watch", "password": password}}


def test_a_wrong_user_gets_nothing_of_the_page(browser: Any, tmp_path: Path) -> None:
    with closing(guarded(tmp_path, "new")) as server, a_tab(browser, server.url, **logged_in("old")) as tab:
        assert tab.page.inner_text("body").strip() == "expected a user and a password"


def test_a_user_whose_password_has_changed_is_asked_to_log_in(browser: Any, tmp_path: Path) -> None:
    first = guarded(tmp_path, "old")
    with closing(first), a_tab(browser, first.url, **logged_in("old")) as tab:
        tab.until("All clear.")
        first.close()
        with closing(guarded(tmp_path, "new", int(first.url.rpartition(":")[2]))) as second:
            tab.until(LOG_IN, within_s=15.0)
            assert tab.page.title() == "? unknown · Qk7rXf2mTtS9 · txnwatch"
            second.protect(users(tmp_path, "old"))
            tab.until("All clear.", within_s=8.0)


def test_no_other_host_is_asked_for_anything(browser: Any, serve: Serve) -> None:
    world = a_busy_cluster()
    url = serve(world)
    asked: list[str] = []
    with a_tab(browser, "about:blank", "") as tab:
        tab.page.context.on("request", lambda request: asked.append(request.url))
        tab.page.goto(url)
        tab.until("4 partitions stand still.")
        for path in ("/incidents", "/watcher", "/open", "/partition/payments/0", "/id/checkout-7", "/producer/4021"):
            tab.page.goto(url + path)
            tab.until("4 partitions stand still.")
        tab.page.goto(f"{url}/incident/{world.incidents[0].incident_id}")
        tab.until("HANGING", ".sentence h1")
        for key in ("o", "j", "t", "p", "p", "w", "?"):
            tab.page.keyboard.press(key)
        tab.page.wait_for_timeout(1_500)
    assert len(asked) > 40
    assert [one for one in asked if not one.startswith(f"{url}/")] == []
