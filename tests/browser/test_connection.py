"""The page and its connection: each reason for which nothing is known, and the way back from it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

from prometheus_client import CollectorRegistry

from support.browsers import Tab, a_tab
from support.page_world import PageWorld, a_calm_cluster, now_ms
from txnwatch.state.model.values import DurationMs, TimestampMs
from txnwatch.web.server import WebServer

Serve = Callable[[PageWorld], str]
SILENT = "The watcher does not answer."
STOPPED = "The process that serves this page was stopped in an orderly way, at "
NOT_JUDGED = "The watcher answers, but nothing was evaluated lately."

# A tab that is hidden for 60 s, in a third of a second.
HIDING = """
    const real = window.setTimeout
    window.setTimeout = (work, ms, ...rest) => real(work, ms === 60000 ? 300 : ms, ...rest)
    window.hide = (isHidden) => {
        Object.defineProperty(document, "hidden", {value: isHidden, configurable: true})
        document.dispatchEvent(new Event("visibilitychange"))
    }
"""
# Each state that a person sees, in order.
WATCH_THE_STATE = """() => {
    window.seen = []
    const look = () => window.seen.at(-1) === document.documentElement.dataset.state
        || window.seen.push(document.documentElement.dataset.state)
    look()
    new MutationObserver(look).observe(document.documentElement, {attributes: true})
}"""


def serving(world: PageWorld, port: int = 0) -> WebServer:
    return WebServer(CollectorRegistry(), "127.0.0.1", port, lambda: True, site=world.site)


def port_of(server: WebServer) -> int:
    return int(server.url.rpartition(":")[2])


def go_to(tab: Tab, url: str, script: str) -> None:
    tab.page.add_init_script(script)
    tab.page.goto(url)


def hide(tab: Tab, *, is_hidden: bool) -> None:
    tab.page.evaluate(f"hide({'true' if is_hidden else 'false'})")


def test_a_watcher_that_came_back_while_the_tab_was_hidden_is_seen(browser: Any) -> None:
    world = a_calm_cluster()
    first = serving(world)
    with closing(first), a_tab(browser, "about:blank", "") as tab:
        go_to(tab, first.url, HIDING)
        tab.until("All clear.")
        first.close()
        tab.page.wait_for_event("requestfailed", lambda one: one.url.endswith("/snapshot"), timeout=20_000)
        hide(tab, is_hidden=True)
        tab.page.wait_for_timeout(600)
        with closing(serving(world, port_of(first))):
            world.batch()
            hide(tab, is_hidden=False)
            tab.until("All clear.", within_s=6.0)
            tab.until("live", ".connection")


def test_a_tab_that_was_opened_in_the_background_asks_for_nothing(browser: Any, serve: Serve) -> None:
    url = serve(a_calm_cluster())
    with a_tab(browser, "about:blank", "") as tab:
        go_to(tab, url, f"{HIDING}; hide(true)")
        tab.until("Unknown.", within_s=6.0)
        hide(tab, is_hidden=False)
        tab.until("All clear.", within_s=3.0)


def test_a_hidden_tab_asks_for_nothing(browser: Any, serve: Serve) -> None:
    url = serve(a_calm_cluster())
    with a_tab(browser, "about:blank", "") as tab:
        go_to(tab, url, HIDING)
        tab.until("All clear.")
        hide(tab, is_hidden=True)
        tab.until("Unknown.", within_s=6.0)
        hide(tab, is_hidden=False)
        tab.until("All clear.", within_s=3.0)
        assert tab.said == []


def test_a_watcher_that_is_gone_is_unknown_and_comes_back(browser: Any) -> None:
    world = a_calm_cluster()
    first = serving(world, 0)
    with closing(first), a_tab(browser, first.url) as tab:
        tab.until("All clear.")
        first.close()
        tab.until("Unknown.", within_s=6.0)
        assert tab.page.title() == "? unknown · Qk7rXf2mTtS9 · txnwatch"
        with closing(serving(world, port_of(first))):
            world.batch()
            tab.until("All clear.", within_s=12.0)


def test_a_machine_that_has_slept_knows_nothing(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_calm_cluster())) as tab:
        tab.until("All clear.")
        was_unknown = tab.page.evaluate("""() => new Promise(done => {
            const seen = () => document.documentElement.dataset.state === "unknown" && done(true)
            new MutationObserver(seen).observe(document.documentElement, {attributes: true})
            const real = Date.now
            Date.now = () => real() + 3600e3  // the clock of the machine has gone on, that of the page has not
            setTimeout(() => done(false), 4000)
        })""")
        assert was_unknown, "until the next message"
        tab.until("All clear.")


def test_a_server_that_was_stopped_says_so_and_when_it_was_started_again(browser: Any) -> None:
    first = serving(a_calm_cluster())
    with closing(first), a_tab(browser, first.url) as tab:
        tab.until("All clear.")
        assert tab.page.inner_text(".connection") == "live"
        first.close()
        tab.until(STOPPED, within_s=2.0)
        assert tab.page.inner_text(".connection") == "stopped"
        with closing(serving(a_calm_cluster(), port_of(first))):
            tab.until("All clear.", within_s=12.0)
            assert re.fullmatch(r"live, restarted at \d\d:\d\d:\d\d", tab.page.inner_text(".connection"))


def test_a_server_that_was_killed_is_silent(browser: Any) -> None:
    """Its last barrier counts for 15 s, so within 6 s only the silence can be the reason."""
    world = a_calm_cluster()
    world.site.end = lambda: None  # no farewell
    server = serving(world)
    with closing(server), a_tab(browser, server.url) as tab:
        tab.until("All clear.")
        tab.page.evaluate(WATCH_THE_STATE)
        server.close()
        tab.until(SILENT, within_s=6.0)
        assert tab.page.inner_text(".connection") == "no answer"
        tab.page.wait_for_timeout(6_000)
        assert tab.page.evaluate("window.seen") == ["clear", "unknown"]


def test_beats_with_an_old_barrier_are_not_judged(browser: Any) -> None:
    """The picture is not made again, so the server goes on to say that it is clear; only the browser counts."""
    world = a_calm_cluster()
    at_ms = now_ms()
    world.store.replace(replace(world.store.seen, judged_ms=at_ms, judged_within_ms=DurationMs(4_000)))
    world.site.now_ms = lambda: TimestampMs(at_ms)
    with world.served() as url, a_tab(browser, url) as tab:
        tab.until("All clear.")
        tab.page.evaluate(WATCH_THE_STATE)
        tab.until(NOT_JUDGED, within_s=7.0)
        assert tab.page.inner_text(".connection") == "nothing evaluated"
        tab.page.wait_for_timeout(3_000)
        assert tab.page.evaluate("window.seen") == ["clear", "unknown"]
