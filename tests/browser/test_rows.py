"""A row of an open incident: nothing of it is cut, it is low, and what a person needs first is on the first screen."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.browsers import a_tab
from support.page_world import GROUPS, HANG, ORIGIN, PageWorld, a_busy_cluster, an_incident, an_open, now_ms
from txnwatch.state.model.incident import Action, Decision, Refusal
from txnwatch.state.model.verdicts import Reason

Serve = Callable[[PageWorld], str]
HIGHEST = 110
OF_ANOTHER_DAY_S = 100_000
REAL_ID = "kKkc1nK4QmugcFR2uphIyg"
# A long name of a group and a command may be cut; a command is copied whole.
CUT = """() => [...document.querySelectorAll(".incidents > li :is(.what, .owner, .standing, .hide, .say, .safe) *")]
    .filter((one) => getComputedStyle(one).display !== "inline" && !one.matches(".label"))
    .filter((one) => one.scrollWidth > one.clientWidth + 1)
    .map((one) => one.innerText)"""
LINES = """all => all.map((one) => {
    const words = document.createRange()
    words.selectNodeContents(one)
    return new Set([...words.getClientRects()].map((at) => Math.round(at.bottom / 4))).size
})"""


def refused(event: Any) -> Any:
    decided = {"decision": Decision.REFUSED, "refusal": Refusal.EPOCH_MAY_BE_REUSED, "by": "watch-0", "at_ms": now_ms()}
    return replace(event, action=Action(**decided))


def old_hangs() -> PageWorld:
    """A hang of each reason and outcome, open since another day, whose automatic abort was refused."""
    world = PageWorld()
    several = [(reason, outcome) for reason in Reason for outcome in ("none", "abort", "commit", "unknown")]
    for number, (reason, outcome) in enumerate(several):
        topic, name = f"topic-{number}", f"{'x' * number}-writer"
        told = {"reason": reason, "expected_outcome": outcome, "consumer_groups": GROUPS, "topic": topic}
        places = {"partition": 0, "transactional_id": name, "producer_id": number + 1}
        world.tell(refused(an_incident(f"hang-{number}", OF_ANOTHER_DAY_S, **{**HANG, **told, **places})))
        span = (topic, 0, 18_210_442)
        world.open.append(an_open(number + 1, name, OF_ANOTHER_DAY_S, span, state="unowned", timeout_s=None))
    world.batch()
    return world


def test_a_row_of_each_reason_is_low_and_whole(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(old_hangs()), height=900) as tab:
        tab.until("partitions stand still.")
        rows = tab.page.locator(".incidents > li")
        assert rows.count() > 8
        assert tab.page.evaluate(CUT) == []
        assert max(rows.evaluate_all("all => all.map(one => one.offsetHeight)")) <= HIGHEST
        first = rows.first.inner_text()
        assert "No marker will ever come: " in first
        assert "automatic abort refused: epoch_may_be_reused" in first


@pytest.mark.parametrize("width", [390, 1440, 2000, 2560])
def test_the_day_of_a_row_takes_no_further_line(browser: Any, serve: Serve, width: int) -> None:
    with a_tab(browser, serve(old_hangs()), width=width) as tab:
        tab.until("partitions stand still.")
        since = tab.page.locator(".incidents .standing .small")
        text = since.first.inner_text()
        assert re.fullmatch(r"since \d{1,2} [A-Z][a-z]{2} \d\d:\d\d", text) or " Dec 20" in text, text
        assert set(since.evaluate_all(LINES)) == {1}
        whole = since.first.locator("time").get_attribute("title")
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", whole or "")


@pytest.mark.parametrize("width", [360, 390])
def test_on_a_phone_pause_and_the_command_are_near_the_top(browser: Any, serve: Serve, width: int) -> None:
    """Without a name, a cluster is shown by its id, which has 22 characters."""
    world = a_busy_cluster()
    world.store.origin = replace(ORIGIN, cluster_id=REAL_ID)
    with a_tab(browser, serve(world), width=width, height=844) as tab:
        tab.until("4 partitions stand still.")
        brand = tab.page.locator(".brand").bounding_box()
        pause = tab.page.get_by_role("button", name="Pause").bounding_box()
        assert brand is not None
        assert pause is not None
        assert abs(brand["y"] + brand["height"] / 2 - pause["y"] - pause["height"] / 2) < 12, "one line"
        assert REAL_ID in tab.page.inner_text("header.bar")
        command = tab.page.locator(".incidents .command").first.bounding_box()
        assert command is not None
        assert command["y"] < 844
        filters, row = (tab.page.locator(one).first.bounding_box() for one in (".filters", ".incidents > li"))
        assert filters is not None
        assert row is not None
        assert filters["y"] > row["y"], "nobody filters first"
        tab.page.locator("select[name=owner]").select_option("data")
        tab.page.wait_for_selector(".incidents > li:only-child")
        filters, row = (tab.page.locator(one).first.bounding_box() for one in (".filters", ".incidents > li"))
        assert filters is not None
        assert row is not None
        assert filters["y"] < row["y"], "what is shown is a part"
        assert not tab.is_too_wide
        assert tab.violations() == []
