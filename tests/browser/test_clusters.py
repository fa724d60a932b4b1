"""Several clusters side by side, in a browser: each state, each width, and the way to a cluster and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.browsers import a_tab
from support.clusters_world import (
    ClustersWorld,
    OneWorld,
    ToldWatcher,
    five_clusters,
    partly_known,
    watched,
    with_a_hang,
)
from support.page_world import HANG, PageWorld, an_incident
from txnwatch.state.model.errors import SinkError

Serve = Callable[[ClustersWorld], str]
HOSTILE = "<script>document.title='owned'</script>\u202e\x1b]0;owned\x07" + "W" * 300


def clear() -> ClustersWorld:
    return ClustersWorld([watched("payments-us"), watched("telemetry")])


def with_a_part() -> ClustersWorld:
    return ClustersWorld([watched("payments-us"), partly_known("orders-us")])


def unwatched() -> ClustersWorld:
    silent = OneWorld("a-cluster-with-a-very-long-name-that-has-to-be-broken-at-360-pixels")
    silent.watcher.error = SinkError("watch-0.watch.payments.svc.cluster.local:9464: Connection refused")
    return ClustersWorld([watched("payments-us", age_s=362), silent.show(), watched("telemetry")])


STATES: dict[str, tuple[Callable[[], ClustersWorld], str]] = {
    "incident": (five_clusters, "metering-eu is not watched."),
    "clear": (clear, "All 2 clusters are clear."),
    "partial": (with_a_part, "orders-us: Nothing is known about 32 partitions"),
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
def test_each_view_of_a_cluster_whose_watcher_is_hostile(
    browser: Any, serve_clusters: Serve, path: str, width: int
) -> None:
    page = PageWorld()
    page.tell(an_incident("hang", 252, **HANG))
    told = {"instance": f"https://evil.example/{HOSTILE[:200]}", "version": HOSTILE[:50]}
    away = ToldWatcher("PAYMENTS-EU", "https://away.example:9464/", error=SinkError(HOSTILE[:200]))
    world = OneWorld("payments-eu", [ToldWatcher("PAYMENTS-EU", world=page, changed=told), away], servers="").show()
    url = serve_clusters(ClustersWorld([world, watched("telemetry")]))
    with a_tab(browser, url, f"/c/PAYMENTS-EU{path}", width=width, is_dark=width == 360) as tab:
        tab.until("1 partition stands still.")
        tab.page.wait_for_timeout(800)
        assert tab.said == []
        assert not tab.is_too_wide
        assert "owned" not in tab.page.title()
        links = tab.page.evaluate("[...document.querySelectorAll('a')].map((one) => one.href)")
        assert not [link for link in links if "evil" in link], "what a watcher says is never a link"
        if path in {"/", "/incidents"}:
            link = tab.page.get_by_role("link", name="the page of its watcher")
            assert link.first.get_attribute("href") == "https://watch.example:9464/"
            commands = tab.page.locator(".command code").all_inner_texts()
            assert commands == ["txnwatch explain --topic payments --partition 0 --bootstrap-server HOST:PORT"]
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
        assert tab.page.get_by_role("link", name="https://watch.example:9464/").count() == 1
        tab.page.get_by_role("link", name="All clusters").click()
        tab.until("metering-eu is not watched.")
        for key in ("j", "w", "o", "t", "/"):
            tab.page.keyboard.press(key)
        assert tab.page.evaluate("location.pathname") == "/", "these keys are about one cluster"
        assert tab.said == []


@pytest.mark.parametrize("width", [360, 1440])
def test_a_team_finds_its_incidents_in_all_clusters(browser: Any, serve_clusters: Serve, width: int) -> None:
    with a_tab(browser, serve_clusters(five_clusters()), "/?owner=checkout", width=width) as tab:
        tab.until("1 of 1; a cluster that is not known may have more", "section.card header")
        assert tab.sentence().startswith("payments-eu: 1 partition stands still.")
        assert not tab.is_too_wide
        assert tab.violations() == []
        tab.page.get_by_label("owner").select_option("")
        tab.page.locator("tbody tr").wait_for(state="detached")
        tab.page.get_by_label("verdict").select_option("hanging")
        tab.page.locator("tbody a").nth(1).click()
        tab.until("HANGING payments-0 behind checkout-7.", ".sentence h1")
        assert tab.said == []


_TITLE_AND_TONE = """() => {
    const wall = document.querySelector(".wall");
    return [wall.querySelector("h1").innerText, wall.className];
}"""


def test_the_wall_of_a_team_is_unknown_where_its_cluster_is(browser: Any, serve_clusters: Serve) -> None:
    world = unwatched()
    constants = {"views.js TURN_MS": 2_000}
    with a_tab(browser, serve_clusters(world), "/?wall=1&owner=checkout", constants=constants) as tab:
        expected = {"Nothing of checkout stands.": "clear", "a-cluster-with": "unknown", "payments-us": "unknown"}
        seen: dict[str, str] = {}
        for _ in range(60):
            title, tone = tab.page.evaluate(_TITLE_AND_TONE)  # in one call: the next turn may be at any moment
            seen.update({begin: tone for begin in expected if title.startswith(begin)})
            if len(seen) == len(expected):
                break
            tab.page.wait_for_timeout(1_000)
            world.batch()  # each cluster has its turn, and what is older than 15 s is unknown
        assert {begin: expected[begin] in tone for begin, tone in seen.items()} == dict.fromkeys(expected, True)


def test_a_watcher_that_goes_away_makes_its_cluster_grey_and_the_other_one_takes_over(
    browser: Any, serve_clusters: Serve
) -> None:
    first, second = (ToldWatcher("EU", f"https://{name}.example:9464/", PageWorld()) for name in ("first", "second"))
    world = OneWorld("eu", [first, second]).show()
    with a_tab(browser, serve_clusters(ClustersWorld([world]))) as tab:
        tab.until("All clear.")
        first.error = SinkError("first.example:9464 has not answered within 5 s")
        world.show()
        tab.until("https://first.example:9464/: first.example:9464 has not answered within 5 s", "#sentence p")
        assert tab.page.inner_text("#sentence h1").startswith("All clear.")
        second.error = SinkError("it refuses the login")
        world.show()
        tab.until("No watcher of this cluster tells what it sees. A hang would not be seen.")
        tab.until("it refuses the login")
        assert tab.page.evaluate("document.documentElement.dataset.state") == "unknown"


def test_a_cluster_gets_a_hang_and_loses_its_watcher(browser: Any, serve_clusters: Serve) -> None:
    world = clear()
    with a_tab(browser, serve_clusters(world)) as tab:
        tab.until("All 2 clusters are clear.")
        world.clusters[1].watcher.world = with_a_hang("telemetry").watcher.world
        world.clusters[1].show()
        tab.until("telemetry: 1 partition stands still.")
        assert tab.page.locator(".clusters li").first.inner_text().startswith("telemetry")
        world.clusters[0].watcher.age_s = 61
        world.clusters[0].show()
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
