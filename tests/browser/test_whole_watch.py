"""The page of a whole watch over time: it is green only while the watch knows that all is clear."""

from __future__ import annotations

import time
from typing import Any

import pytest

from support.browsers import Tab, a_tab
from support.shared_watch import SharedWatch

UNKNOWN_WITHIN_S = 17.0
AWAY_S = 20.0
BACK_WITHIN_S = 120.0
IDLE_S = 600.0

# What a person sees, looked at ten times a second: each state, and whether a green sentence is drawn.
WATCH_THE_PAGE = """() => {
    window.seen = []
    setInterval(() => {
        const state = document.documentElement.dataset.state
        const isGreen = document.querySelector(".sentence.clear") !== null
        if (window.seen.at(-1)?.state !== state || window.seen.at(-1)?.isGreen !== isGreen)
            window.seen.push({state, isGreen})
    }, 100)
}"""


def seen(tab: Tab) -> list[dict[str, Any]]:
    return list(tab.page.evaluate("window.seen"))


@pytest.mark.long
def test_an_idle_cluster_is_clear_all_the_time(browser: Any, shared_watch: SharedWatch) -> None:
    with a_tab(browser, shared_watch.watch.page_url) as tab:
        tab.until("All clear.", within_s=60.0)
        tab.page.evaluate(WATCH_THE_PAGE)
        tab.page.wait_for_timeout(IDLE_S * 1000)
        assert seen(tab) == [{"state": "clear", "isGreen": True}]
        assert tab.said == []


def test_while_the_brokers_are_away_nothing_is_known(browser: Any, shared_watch: SharedWatch) -> None:
    with a_tab(browser, shared_watch.watch.page_url) as tab:
        tab.until("All clear.", within_s=60.0)
        tab.page.evaluate(WATCH_THE_PAGE)
        shared_watch.kafka.broker(1).kill()
        gone = time.monotonic()
        tab.until("Unknown.", within_s=UNKNOWN_WITHIN_S)
        took_s = time.monotonic() - gone
        unknown_since = len(seen(tab)) - 1
        tab.page.wait_for_timeout(AWAY_S * 1000)
        away = seen(tab)[unknown_since:]
        assert [one["state"] for one in away] == ["unknown"], away
        assert not any(one["isGreen"] for one in away)
        assert shared_watch.watch.is_running
        shared_watch.kafka.start_broker(1)
        tab.until("All clear.", within_s=BACK_WITHIN_S)
        assert took_s <= UNKNOWN_WITHIN_S
        assert not [one for one in seen(tab) if one["isGreen"] != (one["state"] == "clear")]
        assert tab.said == []
