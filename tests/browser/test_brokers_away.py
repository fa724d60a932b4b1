"""The page of a whole watch while all brokers are away: it knows nothing, says so, and is never green meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browsers import Tab, a_tab
from support.servers import Clusters, create_coordinators
from support.watch import RunningWatch
from txnwatch_demo.embedded.kafka import EmbeddedKafka

NAME = "brokers-away"
UNKNOWN_WITHIN_S = 17.0
AWAY_S = 20.0
BACK_WITHIN_S = 120.0

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


@pytest.fixture
def alone(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    directory = tmp_path_factory.mktemp(NAME)
    kafka = clusters.start(NAME, lambda: EmbeddedKafka(directory))
    create_coordinators(kafka)
    yield kafka
    clusters.end(NAME)


def seen(tab: Tab) -> list[dict[str, Any]]:
    return list(tab.page.evaluate("window.seen"))


def test_while_the_brokers_are_away_nothing_is_known(browser: Any, alone: EmbeddedKafka, tmp_path: Path) -> None:
    with RunningWatch(alone.bootstrap_servers, tmp_path / "checkpoint", "--http-port", "0") as watch:
        url = watch.until("the page is at ").rpartition("the page is at ")[2].rstrip("/")
        watch.until_ready()
        with a_tab(browser, url) as tab:
            tab.until("All clear.", within_s=60.0)
            tab.page.evaluate(WATCH_THE_PAGE)
            alone.broker(1).kill()
            gone = time.monotonic()
            tab.until("Unknown.", within_s=UNKNOWN_WITHIN_S)
            took_s = time.monotonic() - gone
            unknown_since = len(seen(tab)) - 1
            tab.page.wait_for_timeout(AWAY_S * 1000)
            away = seen(tab)[unknown_since:]
            assert [one["state"] for one in away] == ["unknown"], away
            assert not any(one["isGreen"] for one in away)
            assert watch.is_running
            alone.start_broker(1)
            tab.until("All clear.", within_s=BACK_WITHIN_S)
            assert took_s <= UNKNOWN_WITHIN_S
            assert not [one for one in seen(tab) if one["isGreen"] != (one["state"] == "clear")]
            assert tab.said == []
