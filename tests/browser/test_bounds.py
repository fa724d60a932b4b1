"""What is beyond a limit is counted on the page, and can be reached from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.browsers import a_tab
from support.page_world import PageWorld, a_busy_cluster, a_storm, an_incident, an_open, now_ms
from txnwatch.page.picture import LANES, RECENT
from txnwatch.page.storms import FOLDS, LISTED
from txnwatch.state.model.incident import EndedBy, EndKind, Resolution, resolved

Serve = Callable[[PageWorld], str]
CUT = """() => [...document.querySelectorAll(".say, .safe")].filter((one) => one.scrollHeight > one.clientHeight + 2)
    .map((one) => one.innerText)"""


def test_causes_beyond_the_limit_are_counted_by_verdict(browser: Any, serve: Serve) -> None:
    world = PageWorld()
    for number in range(FOLDS + 1):
        name = "x" * (number + 1)
        world.tell(an_incident(f"hang-{number}", 9, topic=f"t{number}", transactional_id=name))
    world.batch()
    with a_tab(browser, serve(world)) as tab:
        tab.until("and 1 more incident of 1 other cause: 1 hanging.", ".more")


@pytest.mark.parametrize(("width", "highest"), [(1440, 110), (2000, 150), (2560, 230)])
def test_a_row_has_few_lines(browser: Any, serve: Serve, width: int, highest: int) -> None:
    """The type is larger on a large screen."""
    with a_tab(browser, serve(a_busy_cluster()), width=width) as tab:
        tab.until("4 partitions stand still.")
        heights = tab.page.evaluate("[...document.querySelectorAll('.incidents > li')].map((row) => row.offsetHeight)")
        assert len(heights) == 3
        assert max(heights) <= highest
        titles = tab.page.locator(".incidents h3 a").evaluate_all("all => all.map(one => one.getClientRects().length)")
        assert set(titles) == {1}, "no name is broken"
        assert tab.page.evaluate(CUT) == [], "what is to be done, and whether it is safe, is whole"


@pytest.mark.parametrize("width", [360, 390])
def test_on_a_phone_nothing_is_beyond_the_edge_and_no_word_is_broken(browser: Any, serve: Serve, width: int) -> None:
    world = a_busy_cluster()
    end = Resolution(how=EndKind.ABORTED, by=EndedBy.CLIENT, at_ms=now_ms())
    world.tell(resolved(an_incident("old", 90, topic="orders", transactional_id="loader-7"), now_ms(), end))
    with a_tab(browser, serve(world), width=width) as tab:
        tab.until("4 partitions stand still.")
        tab.until("Ended within a day", "h2")
        assert tab.page.evaluate(CUT) == []
        edges = "all => all.map(one => one.getBoundingClientRect().right)"
        assert max(tab.page.locator(".filters select").evaluate_all(edges)) <= width
        words = tab.page.locator(".tag, td > a").evaluate_all("all => all.map(one => one.getClientRects().length)")
        assert set(words) == {1}


def test_a_storm_of_one_cause_is_one_row_on_a_short_page(browser: Any, serve: Serve) -> None:
    world = a_storm(1_000)
    with a_tab(browser, serve(world)) as tab:
        tab.until("1,004 partitions stand still.")
        heights = tab.page.evaluate("[...document.querySelectorAll('.incidents > li')].map((row) => row.offsetHeight)")
        assert len(heights) == 4
        assert max(heights) <= 110
        assert tab.page.evaluate("document.documentElement.scrollHeight") < 3_000
        tab.until("events: 1,000 partitions behind 1,000 producers", ".incidents h3")
        tab.page.get_by_role("link", name="events", exact=True).click()
        tab.until(f"1 to {LISTED} of 1,000", "section.card header")
        tab.page.get_by_role("link", name="next").click()
        tab.until(f"{LISTED + 1} to {2 * LISTED} of 1,000", "section.card header")
        assert tab.page.evaluate("document.documentElement.scrollHeight") < 6_000
        assert tab.violations() == []
        assert tab.said == []


def test_a_filter_is_kept_in_the_address(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_busy_cluster()), "/incidents") as tab:
        tab.until("1 to 4 of 4", "section.card header")
        tab.page.get_by_label("owner").select_option("checkout")
        tab.until("1 to 1 of 1", "section.card header")
        assert tab.page.evaluate("location.search") == "?owner=checkout"
        tab.page.reload()
        tab.until("1 to 1 of 1", "section.card header")
        assert tab.page.get_by_label("owner").input_value() == "checkout"
        tab.page.get_by_role("link", name="all", exact=True).click()
        tab.until("1 to 4 of 4", "section.card header")
        assert tab.violations() == []
        assert tab.said == []


def test_the_overview_is_filtered_and_its_sentence_is_not(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_busy_cluster())) as tab:
        tab.until("4 partitions stand still.")
        tab.page.get_by_label("owner").select_option("data")
        tab.until("orders-4", ".incidents h3")
        tab.page.wait_for_selector(".incidents > li:only-child")
        assert tab.page.evaluate("location.pathname + location.search") == "/?owner=data"
        assert [one.split()[0] for one in tab.page.locator(".lane .name a").all_inner_texts()][::2] == ["orders-4"]
        assert tab.sentence().startswith("4 partitions stand still."), "the truth is that of all"
        tab.page.reload()
        tab.page.wait_for_selector(".incidents > li:only-child")
        tab.page.locator("select[name=topic]").select_option("payments")
        tab.until("No incident like this is open.", "section.card")
        assert tab.sentence().startswith("4 partitions stand still.")
        assert tab.violations() == []
        tab.page.get_by_role("link", name="all", exact=True).click()
        tab.page.wait_for_selector(".incidents > li:nth-child(3)")
        assert tab.said == []


def test_partitions_that_are_read_too_slowly_are_counted(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(PageWorld(behind=17))) as tab:
        tab.until("partitions not read to their ends17", ".health figure")


def test_partitions_beyond_the_limit_are_in_a_list(browser: Any, serve: Serve) -> None:
    many = [an_open(number, f"id-{number}", 50, ("t", number, 5)) for number in range(LANES + 7)]
    with a_tab(browser, serve(PageWorld(open=many)), width=360) as tab:
        tab.until("and 7 more partitions", ".lanes")
        tab.page.get_by_role("link", name="list the partitions").click()
        tab.until(f"t-{LANES + 6}", "table")
        assert tab.page.locator("tbody tr").count() == LANES + 7
        tab.page.get_by_role("link", name=f"id-{LANES + 6}").click()
        tab.until(f"t-{LANES + 6}", "table")
        assert tab.said == []


def test_incidents_that_ended_and_are_beyond_the_limit_are_in_a_list(browser: Any, serve: Serve) -> None:
    world = PageWorld()
    end = Resolution(how=EndKind.ABORTED, by=EndedBy.CLIENT, at_ms=now_ms())
    for number in range(RECENT + 2):
        world.tell(resolved(an_incident(f"old-{number}", 90), now_ms(), end))
    with a_tab(browser, serve(world)) as tab:
        tab.until("and 2 more", "section.card")
        tab.page.get_by_role("link", name="list them").click()
        tab.until("Ended within a day", "h2")
        tab.page.wait_for_function(f"document.querySelectorAll('tbody tr').length === {RECENT + 2}")
        assert tab.said == []
        assert tab.violations() == []


ROUND_TRIP_S = 0.4
BYTES_PER_S = 50_000
FIRST_FILES = {"page.css", "live.js", "views.js", "lit-html.js", "words.js", "page.js"}


@pytest.mark.parametrize("hangs", [0, 100, 1_000])
def test_on_a_slow_link_the_truth_is_there_after_two_round_trips(browser: Any, serve: Serve, hangs: int) -> None:
    """The page has the picture; its files are asked for at once, and the other views come after them."""
    url = serve(a_storm(hangs))
    with a_tab(browser, "about:blank", "") as tab:
        link = tab.page.context.new_cdp_session(tab.page)
        link.send("Network.enable")
        latency, rate = {"latency": 1000 * ROUND_TRIP_S}, {"downloadThroughput": BYTES_PER_S, "uploadThroughput": -1}
        link.send("Network.emulateNetworkConditions", {"offline": False, **latency, **rate})
        tab.page.goto(url, wait_until="commit")
        tab.page.wait_for_selector(".incidents .command", state="attached", timeout=60_000)
        tab.page.wait_for_selector(".lanes", state="attached", timeout=60_000)
        found = tab.page.evaluate(
            """performance.getEntriesByType("resource").filter((one) => /[.](js|css)$/.test(one.name))
            .map((one) => [one.name.split("/").at(-1), one.startTime, one.responseEnd, one.transferSize])"""
        )
        page = tab.page.evaluate("performance.getEntriesByType('navigation')[0].transferSize")
    first = [one for one in found if one[0] in FIRST_FILES]
    assert {name for name, *_ in first} == FIRST_FILES
    assert max(start for _, start, _, _ in first) < min(end for _, _, end, _ in first), "no file waits for another one"
    last = max(end for _, _, end, _ in first)
    assert [name for name, start, _, _ in found if start < last and name not in FIRST_FILES] == []
    assert 2 * ROUND_TRIP_S + (page + sum(size for *_, size in first)) / BYTES_PER_S < 1.6


def test_the_first_picture_needs_no_stream_and_gets_old(browser: Any, serve: Serve) -> None:
    url = serve(a_busy_cluster())
    with a_tab(browser, "about:blank", "") as tab:
        tab.page.route("**/api/**", lambda route: route.abort())
        tab.page.goto(url)
        tab.until("4 partitions stand still.")
        tab.until("The watcher does not answer.", within_s=12.0)
