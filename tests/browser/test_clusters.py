"""Several clusters side by side, in a browser: each state, each width, and the way to a cluster and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.browsers import a_tab
from support.clusters_world import ClustersWorld, OneWorld, a_beat, five_clusters, watched, with_a_hang
from support.page_world import HANG, an_incident

Serve = Callable[[ClustersWorld], str]
HOSTILE = "<script>document.title='owned'</script>\u202e\x1b]0;owned\x07" + "W" * 300


def clear() -> ClustersWorld:
    return ClustersWorld([watched("payments-us"), watched("telemetry")])


def partly_known() -> ClustersWorld:
    unproven = {"unproven_partitions": 32, "unproven_names": ("orders-1",)}
    return ClustersWorld([watched("payments-us"), watched("orders-us", **unproven)])


def unwatched() -> ClustersWorld:
    silent = OneWorld("a-cluster-with-a-very-long-name-that-has-to-be-broken-at-360-pixels")
    silent.problem = "events topic 'txnwatch.events': kafka-1.example.internal:9092/bootstrap: Connect failed"
    return ClustersWorld([watched("payments-us", age_s=362), silent.show(), watched("telemetry")])


STATES: dict[str, tuple[Callable[[], ClustersWorld], str]] = {
    "incident": (five_clusters, "metering-eu is not watched."),
    "clear": (clear, "All 2 clusters are clear."),
    "partial": (partly_known, "orders-us: Nothing is known about 32 partitions"),
    "unknown": (unwatched, "payments-us is not watched."),
}


@pytest.fixture
def serve_clusters() -> Iterator[Serve]:
    """Serves a page of clusters; returns the address."""
    with ExitStack() as stack:
        yield lambda world: stack.enter_context(world.served())


@pytest.mark.matrix
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440, 2560])
@pytest.mark.parametrize("state", STATES)
def test_each_state_of_the_list_in_each_form(
    browser: Any, serve_clusters: Serve, state: str, width: int, *, is_dark: bool, tmp_path: Path
) -> None:
    make, expected = STATES[state]
    with a_tab(browser, serve_clusters(make()), width=width, is_dark=is_dark) as tab:
        tab.until(expected)
        assert tab.page.evaluate("document.documentElement.dataset.state") == state
        tab.page.wait_for_timeout(600)
        assert tab.said == []
        assert not tab.is_too_wide
        tab.page.screenshot(path=tmp_path / f"{state}-{width}-{'dark' if is_dark else 'light'}.png", full_page=True)
        assert tab.violations() == []


@pytest.mark.parametrize("path", ["/", "/watcher", "/incidents", "/partition/payments/0", "/id/checkout-7"])
@pytest.mark.parametrize("width", [360, 1440])
def test_each_view_of_a_cluster_without_redis(browser: Any, serve_clusters: Serve, path: str, width: int) -> None:
    world = watched("payments-eu", instance=HOSTILE[:200], version=HOSTILE[:200])
    world.tell(an_incident("hang", 252, **{**HANG, "cluster_id": world.cluster_id}))
    url = serve_clusters(ClustersWorld([world, watched("telemetry")]))
    with a_tab(browser, url, f"/c/PAYMENTS-EU{path}", width=width, is_dark=width == 360) as tab:
        tab.until("1 partition stands still.")
        tab.page.wait_for_timeout(800)
        assert tab.said == []
        assert not tab.is_too_wide
        assert "owned" not in tab.page.title()
        assert tab.violations() == []


def test_the_way_to_a_cluster_and_back(browser: Any, serve_clusters: Serve) -> None:
    with a_tab(browser, serve_clusters(five_clusters())) as tab:
        tab.until("payments-eu: 1 partition stands still.")
        assert tab.page.title() == "◆ 1 incident · txnwatch"
        tab.page.get_by_role("link", name="payments-eu").click()
        tab.until("1 partition stands still. payments-0 for")
        assert tab.page.evaluate("location.pathname") == "/c/PAYMENTS-EU/"
        tab.until("checkout-7", ".lane .name")
        tab.page.locator(".incidents h3 a").first.click()
        tab.until("HANGING payments-0 behind checkout-7.", ".sentence h1")
        assert str(tab.page.evaluate("location.pathname")).startswith("/c/PAYMENTS-EU/incident/")
        tab.page.reload()
        tab.until("HANGING payments-0 behind checkout-7.", ".sentence h1")
        tab.page.keyboard.press("w")
        tab.until("watch-PAYMENTS-EU:/c", "table")
        tab.page.get_by_role("link", name="All clusters").click()
        tab.until("metering-eu is not watched.")
        for key in ("j", "w", "o", "t", "/"):
            tab.page.keyboard.press(key)
        assert tab.page.evaluate("location.pathname") == "/", "these keys are about one cluster"
        assert tab.said == []


def test_without_redis_the_lanes_are_words_and_never_green(browser: Any, serve_clusters: Serve) -> None:
    alone = watched("eu")
    alone.missing = "Open transactions are not known here: give Redis, or open the watcher's own page http://w:9464/."
    with a_tab(browser, serve_clusters(ClustersWorld([alone.show()]))) as tab:
        tab.until("All clear.")
        tab.until("Open transactions are not known here: give Redis", "section.card")
        assert tab.page.get_by_role("link", name="http://w:9464/").get_attribute("href") == "http://w:9464/"
        assert tab.page.locator(".lanes").count() == 0
        assert "open transaction" not in tab.page.inner_text("#sentence")


def test_a_cluster_gets_a_hang_and_loses_its_watcher(browser: Any, serve_clusters: Serve) -> None:
    world = clear()
    with a_tab(browser, serve_clusters(world)) as tab:
        tab.until("All 2 clusters are clear.")
        world.clusters[1].store.replace(with_a_hang("telemetry").store.seen)
        tab.until("telemetry: 1 partition stands still.")
        assert tab.page.locator(".clusters li").first.inner_text().startswith("telemetry")
        gone = watched("payments-us").tell(a_beat("PAYMENTS-US"))
        gone.announced = OneWorld("payments-us").tell(a_beat("PAYMENTS-US", 61)).announced
        world.clusters[0].store.replace(gone.show().store.seen)
        tab.until("payments-us is not watched.")
        tab.until("not watched", "#sentence h1")


def test_a_page_that_is_gone_makes_all_clusters_unknown(browser: Any) -> None:
    world = clear()
    with ExitStack() as served, a_tab(browser, served.enter_context(world.served())) as tab:
        tab.until("All 2 clusters are clear.")
        served.close()
        tab.until("Unknown.", within_s=6.0)
        assert tab.page.locator(".clusters li:not(.unknown)").count() == 0


def test_the_picture_of_the_docs(
    browser: Any, serve_clusters: Serve, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    file = (request.config.getoption("--page-pictures") or tmp_path) / "page-clusters.png"
    with a_tab(browser, serve_clusters(five_clusters()), height=520) as tab:
        tab.until("metering-eu is not watched.")
        tab.page.wait_for_timeout(800)
        tab.page.screenshot(path=file)
    assert file.stat().st_size > 20_000
