"""The page of a whole watch over time: it is green only while the watch knows that all is clear."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.browsers import Tab, a_tab
from support.page_client import get
from support.shared_watch import SharedWatch
from support.waiting import eventually
from txnwatch.page.truth import JUDGED_WITHIN_MS

LATEST_S = 40.0
DRAWN_WITHIN_MS = 4_000  # 2 s on a machine without other work
AWAY_S = 6.0
BACK_WITHIN_S = 120.0
IDLE_S = 600.0

# What a person sees, looked at ten times a second: each state, and whether a green sentence is drawn.
WATCH_THE_PAGE = """() => {
    window.seen = []
    setInterval(() => {
        const state = document.documentElement.dataset.state
        const isGreen = document.querySelector(".sentence.clear") !== null
        if (window.seen.at(-1)?.state !== state || window.seen.at(-1)?.isGreen !== isGreen)
            window.seen.push({state, isGreen, atMs: Date.now()})
    }, 100)
}"""


def seen(tab: Tab) -> list[dict[str, Any]]:
    return list(tab.page.evaluate("window.seen"))


@contextmanager
def broker_away(shared_watch: SharedWatch) -> Iterator[float]:
    """The only broker is killed while the block runs, and is back for the next test; gives the time in epoch ms."""
    shared_watch.kafka.broker(1).kill()
    try:
        yield time.time() * 1000
    finally:
        shared_watch.kafka.start_broker(1)


@pytest.mark.long
def test_an_idle_cluster_is_clear_all_the_time(browser: Any, shared_watch: SharedWatch) -> None:
    with a_tab(browser, shared_watch.watch.page_url) as tab:
        tab.until("All clear.", within_s=60.0)
        tab.page.evaluate(WATCH_THE_PAGE)
        tab.page.wait_for_timeout(IDLE_S * 1000)
        assert [(one["state"], one["isGreen"]) for one in seen(tab)] == [("clear", True)]
        assert tab.said == []


@pytest.mark.long
def test_while_the_brokers_are_away_nothing_is_known(browser: Any, shared_watch: SharedWatch) -> None:
    """From the last barrier that the broker has answered, the page has 15 s and a moment to draw.

    The page is silent after 20 s instead of 3 s: a moment without a processor is not what this test is about.
    """
    with a_tab(browser, shared_watch.watch.page_url, constants={"live.js SILENT_MS": 20_000}) as tab:
        tab.until("All clear.", within_s=60.0)
        tab.page.evaluate(WATCH_THE_PAGE)
        with broker_away(shared_watch) as gone_ms:
            tab.until("Unknown.", within_s=LATEST_S)
            eventually(lambda: seen(tab)[-1]["state"] == "unknown", 5.0, "the next look at the page")
            unknown = seen(tab)[-1]
            judged_ms = get(shared_watch.watch.page_url, "/api/v1/status").json["judged_ms"]
            tab.page.wait_for_timeout(AWAY_S * 1000)
            assert seen(tab)[-1] == unknown, seen(tab)
            assert shared_watch.watch.is_running
        assert judged_ms <= gone_ms
        assert unknown["atMs"] - judged_ms <= JUDGED_WITHIN_MS + DRAWN_WITHIN_MS
        tab.until("All clear.", within_s=BACK_WITHIN_S)
        eventually(lambda: seen(tab)[-1]["isGreen"], 5.0, "the next look at the page")
        states = [(one["state"], one["isGreen"]) for one in seen(tab)]
        assert states == [("clear", True), ("unknown", False), ("clear", True)]
        assert tab.said == []
