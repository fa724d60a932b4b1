"""The wall names each cause: of a cluster, of a team, and of each of several clusters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.browsers import Tab, a_tab
from support.clusters_world import ClustersWorld, OneWorld, watched
from support.page_world import PageWorld, a_busy_cluster, a_storm

Serve = Callable[[PageWorld], str]
ALL_OF_IT = """() => [...document.querySelectorAll(".wall, .wall *")].every((one) => {
    const at = one.getBoundingClientRect()
    return at.bottom <= innerHeight && at.right <= innerWidth && at.top >= 0
})"""
STORM = "1,000 partitions of events behind 1,000 producers for at least "
STUCK = "orders-11 and 1 more behind ledger-eos-7f3c2a10-3 for at least 2 min "
LATE = "orders-4 behind dwh-orders-4-1187 for at least 16 min "


def causes(tab: Tab) -> list[str]:
    tab.page.wait_for_selector(".wall .causes li")
    return list(tab.page.locator(".wall .causes li").all_inner_texts())


@pytest.mark.parametrize("width", [390, 1440, 1920, 2560])
def test_a_wall_names_each_cause_beside_the_worst(browser: Any, serve: Serve, tmp_path: Path, width: int) -> None:
    with a_tab(browser, serve(a_storm(1_000)), "/?wall=1", width=width, height=width * 9 // 16) as tab:
        tab.until("payments-0 for at least 4 min", ".wall.critical h1")
        storm, stuck, late = causes(tab)
        assert storm.startswith(STORM)
        assert storm.endswith(": hanging; no owner is known")
        assert stuck.startswith(STUCK)
        assert stuck.endswith(": stuck prepare; no owner is known")
        assert late.startswith(LATE)
        assert late.endswith(": late; Data platform")
        tab.page.screenshot(path=tmp_path / "wall.png")
        assert tab.page.evaluate(ALL_OF_IT)
        assert set(
            tab.page.locator(".wall .keep").evaluate_all("all => all.map((one) => one.getClientRects().length)")
        ) == {1}
        assert tab.violations() == []
        assert tab.said == []


def test_a_wall_of_one_incident_says_it_once(browser: Any, serve: Serve) -> None:
    world = a_busy_cluster()
    world.incidents = [one for one in world.incidents if one.verdict == "hanging"]
    world.batch()
    with a_tab(browser, serve(world), "/?wall=1") as tab:
        tab.until("payments-0 for at least 4 min", ".wall.critical h1")
        assert tab.page.locator(".wall .causes").count() == 0


def test_the_wall_of_a_team_names_its_other_causes(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_storm(1_000)), "/?wall=1&owner=none") as tab:
        tab.until("1,001 incidents without an owner.", ".wall.critical h1 b")
        tab.until("behind 1,000 producers for at least 1 min ", ".wall h1")
        assert tab.sentence().endswith(": hanging.")
        (other,) = causes(tab)
        assert other.startswith(STUCK)


def test_early_warnings_are_no_incidents_of_a_team(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_busy_cluster()), "/?wall=1&owner=none") as tab:
        tab.until("1 incident without an owner.", ".wall h1 b")


@pytest.mark.parametrize("query", ["wall=1", "wall=1&owner=data"])
def test_the_walls_of_several_clusters_name_them_too(browser: Any, query: str) -> None:
    busy = OneWorld("eu")
    busy.watcher.world = a_busy_cluster()
    busy.watcher.ahead_ms = 3_600_000  # so what it has told is an hour older
    with (
        ClustersWorld([busy.show(), watched("us")]).served() as url,
        a_tab(browser, url, f"/?{query}") as tab,
    ):
        if "owner" in query:
            tab.until(
                "1 incident of Data platform. orders-4 behind dwh-orders-4-1187 for at least 1 h 16 min", ".wall h1"
            )
            tab.until("EU", ".wall p")
            return
        tab.until("eu: 4 partitions stand still.", ".wall.critical h1")
        stuck, late = causes(tab)
        assert stuck.startswith(STUCK.replace("2 min ", "1 h 02 min:"))
        assert late.startswith(LATE.replace("16 min ", "1 h 16 min:"))
