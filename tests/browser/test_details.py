"""What a view says about one thing, and how a person leaves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.browsers import Tab, a_tab
from support.page_world import PageWorld, a_busy_cluster, an_incident, an_open

Serve = Callable[[PageWorld], str]
STUCK = "ledger-eos-7f3c2a10-3"


def opened(tab: Tab) -> Tab:
    tab.until("4 partitions stand still.")
    return tab


def rows(tab: Tab) -> list[list[str]]:
    found = tab.page.locator("table", has_text="from offset").locator("tbody tr").all()
    return [one.locator("td").all_inner_texts() for one in found]


def test_each_partition_of_a_stuck_prepare_says_whether_its_marker_is_missing(browser: Any, serve: Serve) -> None:
    """The coordinator names two partitions. Open data is seen on one of them, and on a third one."""
    world = a_busy_cluster()
    at = next(at for at, one in enumerate(world.open) if one.transactional_id == STUCK)
    places = (("orders", 11, 88_120_004), ("ledger-out", 2, 7))
    world.open[at] = an_open(7102, STUCK, 125, *places, state="PrepareCommit", prepared_s=125)
    world.batch()
    with a_tab(browser, serve(world), f"/id/{STUCK}") as tab:
        tab.until("marker", "table")
        found = {place: marker for place, _, _, marker in rows(tab)}
        assert found == {
            "orders-11": "missing",
            "ledger-out-2": "written, as its coordinator says; not read here yet",
            "orders-14": "missing when it was confirmed; no open data is seen now",
        }
        assert tab.said == []
        assert tab.violations() == []


def test_a_healthy_transaction_has_no_markers_to_speak_of(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_busy_cluster()), "/id/sessionizer-3") as tab:
        tab.until("clickstream-17", "table")
        assert tab.page.locator("th", has_text="marker").count() == 0


@pytest.mark.parametrize(
    ("pending", "text"),
    [
        (("orders-11", "orders-14"), "2 markers missing"),
        (("orders-11",), "1 marker missing"),
        ((), "last record missing"),
    ],
)
def test_the_bar_of_a_stuck_prepare_counts_the_missing_markers(
    browser: Any, serve: Serve, pending: tuple[str, ...], text: str
) -> None:
    world = a_busy_cluster()
    (stuck,) = [one for one in world.incidents if one.verdict == "stuck_prepare"]
    world.incidents.remove(stuck)
    change = {"verdict": stuck.verdict, "severity": stuck.severity, "transactional_id": STUCK}
    place = {"topic": None, "partition": None, "topic_id": None, "reason": None, "txn_start_offset": None}
    known = {"producer_id": 7102, "expected_outcome": "commit", "cluster_id": stuck.cluster_id}
    world.tell(an_incident("again", 125, pending_partitions=pending, **{**change, **place, **known}))
    with a_tab(browser, serve(world)) as tab:
        tab.until("stand", "#sentence")
        tab.until(text, ".lanes svg text")


def test_a_group_that_stands_is_not_seen_in_the_lag_of_kafka(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_busy_cluster()), "/partition/payments/0") as tab:
        tab.until("really behind", "table")
        tab.until("so it is 0 while the group stands", "section.card")


def test_escape_goes_back(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_busy_cluster()), "/incidents") as tab:
        opened(tab).page.locator(".incidents h3 a").first.click()
        tab.until("HANGING", ".sentence h1")
        tab.page.locator(".tree a").first.click()
        tab.until("What to do", "h2")
        tab.page.keyboard.press("Escape")
        tab.until("HANGING", ".sentence h1")
        tab.page.keyboard.press("Escape")
        tab.page.wait_for_url("**/incidents")
        tab.page.keyboard.press("Escape")
        tab.page.wait_for_function("location.pathname === '/'")
        tab.page.keyboard.press("Escape")
        assert tab.page.evaluate("location.pathname") == "/", "not to another page"


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_with_reduced_motion_bars_move_every_10_s(browser: Any, serve: Serve, motion: str) -> None:
    with a_tab(browser, serve(a_busy_cluster()), reduced_motion=motion) as tab:
        opened(tab)
        bars, words = tab.page.locator(".lanes"), tab.page.locator(".lanes .figure .small")
        moved = []
        before = bars.locator("svg").all_inner_texts(), words.all_inner_texts()
        shapes = "[...document.querySelectorAll('.lanes .plot svg rect')].map(one => one.getAttribute('x')).join()"
        last = tab.page.evaluate(shapes)
        for _ in range(8):
            tab.page.wait_for_timeout(500)
            now = tab.page.evaluate(shapes)
            moved.append(now != last)
            last = now
        assert words.all_inner_texts() != before[1], "the text changes each second"
        assert sum(moved) <= 1 if motion == "reduce" else sum(moved) >= 3
