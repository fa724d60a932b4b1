"""What is beyond a limit is counted on the page, and can be reached from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.browsers import a_tab
from support.page_world import PageWorld, an_incident
from txnwatch.page.picture import INCIDENTS

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
