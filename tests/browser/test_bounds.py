"""What is beyond a limit is counted on the page, and can be reached from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.browsers import a_tab
from support.page_world import PageWorld, an_incident, an_open, now_ms
from txnwatch.page.picture import INCIDENTS, LANES, RECENT
from txnwatch.state.model.incident import EndedBy, EndKind, Resolution, resolved

Serve = Callable[[PageWorld], str]


def test_incidents_beyond_the_limit_are_counted_by_verdict(browser: Any, serve: Serve) -> None:
    world = PageWorld()
    for number in range(INCIDENTS + 1):
        world.tell(an_incident(f"hang-{number}", 9))
    for number in range(2):
        world.tell(an_incident(f"late-{number}", 9, verdict="late", severity="warning"))
    world.batch()
    with a_tab(browser, serve(world)) as tab:
        tab.until("and 3 more incidents: 1 hanging, 2 late", ".more")


def test_partitions_that_are_read_too_slowly_are_counted(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(PageWorld(behind=17))) as tab:
        tab.until("partitions not read to their ends17", ".health figure")


def test_partitions_beyond_the_limit_are_in_a_list(browser: Any, serve: Serve) -> None:
    many = [an_open(number, f"id-{number}", 50, ("t", number, 5)) for number in range(LANES + 7)]
    with a_tab(browser, serve(PageWorld(open=many)), width=360) as tab:
        tab.until("and 7 more partitions", ".lanes")
        tab.page.get_by_role("link", name="list the partitions").click()
        tab.until("t-66", "table")
        assert tab.page.locator("tbody tr").count() == LANES + 7
        tab.page.get_by_role("link", name="id-66").click()
        tab.until("t-66", "table")
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
