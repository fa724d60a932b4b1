"""A pause stops what moves, and not the truth: the sentence and its age go on, and the page says that it is paused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from prometheus_client import CollectorRegistry

from support.browsers import Tab, a_tab
from support.clusters_world import ClustersWorld, watched
from support.page_world import PageWorld, a_busy_cluster
from txnwatch.web.server import WebServer

Serve = Callable[[PageWorld], str]


def opened(tab: Tab) -> Tab:
    tab.until("4 partitions stand still.")
    return tab


def test_a_pause_stops_what_moves_but_not_the_truth(browser: Any, serve: Serve) -> None:
    world = a_busy_cluster()
    with a_tab(browser, serve(world)) as tab:
        opened(tab).page.keyboard.press("p")
        standing = tab.page.locator(".incidents .standing .big").first
        before = standing.inner_text()
        world.incidents, world.open = [], []
        world.batch()
        tab.until("All clear.")
        assert standing.inner_text() == before
        tab.page.keyboard.press("p")
        tab.page.locator(".incidents").wait_for(state="detached")


def test_the_sentence_counts_on_and_the_lists_do_not(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_busy_cluster())) as tab:
        opened(tab).page.keyboard.press("p")
        tab.until("Paused", ".paused")
        sentence = tab.sentence()
        lists = tab.page.inner_text(".incidents"), tab.page.inner_text(".lanes"), tab.page.inner_text(".health")
        tab.page.wait_for_timeout(2_500)
        assert tab.sentence() != sentence
        assert (tab.page.inner_text(".incidents"), tab.page.inner_text(".lanes")) == lists[:2]
        assert tab.page.inner_text(".health") == lists[2]
        assert tab.page.inner_text(".connection") == "live"
        assert tab.said == []
        assert tab.violations() == []


def test_a_paused_page_loses_its_watcher(browser: Any) -> None:
    server = WebServer(CollectorRegistry(), "127.0.0.1", 0, lambda: True, site=a_busy_cluster().site)
    with closing(server), a_tab(browser, server.url) as tab:
        opened(tab).page.keyboard.press("p")
        server.close()
        tab.until("Unknown.", within_s=6.0)
        age = tab.page.locator("#sentence .age strong")
        before = age.inner_text()
        tab.page.wait_for_timeout(1_500)
        assert age.inner_text() != before
        assert not [one for one in tab.page.locator(".command code").all_inner_texts() if "abort" in one]


def test_a_paused_page_shows_what_is_opened(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_busy_cluster())) as tab:
        opened(tab).page.keyboard.press("p")
        tab.page.locator(".incidents h3 a").first.click()
        tab.until("HANGING payments-0 behind checkout-7.", ".sentence h1")


def test_a_paused_list_of_clusters_does_not_make_them_older(browser: Any) -> None:
    world = ClustersWorld([watched("payments-us"), watched("telemetry")])
    with world.served() as url, a_tab(browser, url) as tab:
        tab.until("All 2 clusters are clear.")
        tab.page.keyboard.press("p")
        tab.until("Paused", ".paused")
        before = tab.page.locator(".clusters .age").all_inner_texts()
        tab.page.wait_for_timeout(2_500)
        assert tab.page.locator(".clusters .age").all_inner_texts() == before
