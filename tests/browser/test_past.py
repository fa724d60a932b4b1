"""A week of history in a browser: the strip of the day, the view, its files, and where it is on a page of clusters."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.browsers import a_tab
from support.clusters_world import five_clusters
from support.page_world import GROUPS, HANG, ORIGIN, PageWorld, a_busy_cluster, a_calm_cluster, an_incident, now_ms
from txnwatch.owners.owner_table import owners_of
from txnwatch.state.model.errors import BadEventError, SkipReason
from txnwatch.state.model.incident import EndedBy, EndKind, Resolution, resolved
from txnwatch.state.model.values import TimestampMs

Serve = Callable[[PageWorld], str]
HOUR_MS = 3_600_000
NAMES = ("checkout-7", "dwh-orders-4-1187", "ledger-eos-7f3c2a10-3", "=HYPERLINK(1)", "<b>bold</b>\u202e|`" + "W" * 200)


def a_past() -> PageWorld:
    """A busy cluster with sixty incidents of a week behind it."""
    chance, world = random.Random(7), a_busy_cluster()
    for number in range(60):
        ago_ms = chance.randrange(HOUR_MS, 160 * HOUR_MS)
        place = {"topic": chance.choice(("payments", "orders", "audit")), "partition": chance.randrange(3)}
        changes = {**HANG, **place, "transactional_id": chance.choice(NAMES), "producer_id": 9_000 + number}
        severity = chance.choice(("critical", "warning", "info"))
        opened = an_incident(f"past-{number}", ago_ms / 1000, age_ms=0, severity=severity, **changes)
        how = chance.choice((EndKind.COMMITTED, EndKind.ABORTED, EndKind.MOVED_ON))
        end = Resolution(how=how, by=chance.choice(list(EndedBy)), at_ms=now_ms())
        world.past.take(resolved(opened, TimestampMs(now_ms() - ago_ms + chance.randrange(60_000, HOUR_MS)), end))
    world.past.take(an_incident("old", 200 * 3600, age_ms=0, **HANG))
    world.past.take(BadEventError(SkipReason.INVALID, "x"))
    links = {
        "chat": "https://chat.example/",
        "phone": "+49 30 1234",
        "dashboard": "https://g.example/?from={from}&to={to}",
    }
    owner = {"team": "checkout", "name": "Checkout", "transactional_ids": ["checkout-*"], **links}
    world.store.origin = replace(ORIGIN, owners=owners_of({"owner": [owner]}, "the test"))
    return world


@pytest.mark.parametrize("width", [390, 1440])
def test_the_view_of_a_week(browser: Any, serve: Serve, width: int, tmp_path: Path) -> None:
    with a_tab(browser, serve(a_past()), "/history", width=width, is_dark=width == 390) as tab:
        tab.until("65 incidents since", ".card")
        tab.until("1 opened before, 5 still open", ".card")
        tab.until("1 record was no valid event (invalid).", ".card")
        assert " · History · " in tab.page.title()
        tab.page.wait_for_timeout(600)
        assert not tab.is_too_wide
        assert tab.violations() == []
        assert tab.page.locator("main b >> text=bold").count() == 0, "a name is text"
        assert tab.page.locator(".command").count() == 0
        assert tab.page.evaluate("document.documentElement.scrollHeight") < 9_000
        tab.page.screenshot(path=tmp_path / f"history-{width}.png", full_page=True)
        tab.page.emulate_media(media="print", color_scheme="light")
        tab.page.screenshot(path=tmp_path / f"history-{width}-print.png", full_page=True)
        assert tab.said == []


def test_the_way_from_the_strip_to_the_week_and_to_an_incident(browser: Any, serve: Serve, tmp_path: Path) -> None:
    with a_tab(browser, serve(a_past())) as tab:
        tab.until("opened", ".strip")
        assert tab.page.locator(".strip rect").count() > 3
        assert tab.page.locator(".strip svg").get_attribute("aria-label").startswith("Incidents open in each quarter")
        assert tab.violations() == []
        tab.page.screenshot(path=tmp_path / "strip.png", full_page=True)
        links = {one.inner_text(): one.get_attribute("href") for one in tab.page.locator(".incidents .owner a").all()}
        assert (links["chat"], links["call"]) == ("https://chat.example/", "tel:+49301234")
        assert re.fullmatch(r"https://g\.example/\?from=\d{13}&to=\d{13}", links["dashboard"] or "")
        tab.page.locator(".strip a").click()
        tab.until("65 incidents since", ".card")
        assert tab.page.evaluate("document.activeElement.id") == "h-history"
        tab.page.get_by_role("link", name="a day", exact=True).click()
        tab.page.locator(".card", has_text="65 incidents since").wait_for(state="detached")
        assert tab.page.evaluate("location.search") == "?days=1"
        tab.until("incidents since", ".card")
        with tab.page.expect_download() as download:
            tab.page.get_by_role("link", name="CSV of all incidents").click()
        assert download.value.suggested_filename == "txnwatch-history.csv"
        tab.page.keyboard.press("o")
        tab.until("partitions stand still.")
        tab.page.keyboard.press("h")
        tab.until("65 incidents since", ".card")
        tab.page.get_by_role("link", name="HANGING").first.click()
        tab.page.wait_for_function("location.pathname.startsWith('/incident/')")
        assert tab.said == []


def test_without_any_incident_the_strip_says_so(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_calm_cluster())) as tab:
        tab.until("no incident opened", ".strip")
        assert tab.page.locator(".strip svg").get_attribute("aria-label") == "No incident in the last 24 hours"
        assert tab.violations() == []


def test_the_strip_is_not_calm_about_what_is_not_known(browser: Any) -> None:
    world = a_calm_cluster()
    with world.served() as url, a_tab(browser, url) as tab:
        tab.until("no incident opened", ".strip")
        world.batch(TimestampMs(now_ms() - 16_000))
        tab.until("Unknown.")
        tab.until("not known now", ".strip")


def test_on_a_page_of_clusters_it_is_on_the_page_of_the_watcher(browser: Any) -> None:
    with five_clusters().served() as url, a_tab(browser, url, "/c/PAYMENTS-EU/history") as tab:
        tab.until("The history is on the page of a watcher", ".card")
        link = tab.page.get_by_role("link", name="https://watch.example:9464/").first
        assert link.get_attribute("href") == "https://watch.example:9464/history"
        assert tab.violations() == []
        assert tab.said == []


def test_what_open_incidents_share(browser: Any, serve: Serve, tmp_path: Path) -> None:
    world = PageWorld()
    for number in range(14):
        changes = {**HANG, "partition": number, "consumer_groups": GROUPS}
        world.tell(an_incident(f"root-{number}", 60 + number, **changes))
    world.batch()
    with a_tab(browser, serve(world)) as tab:
        tab.until("transactional id checkout-7 holds 14 partitions and 3 groups in 14 incidents", ".more")
        tab.page.get_by_role("link", name="what they share").click()
        tab.until("transactional id checkout-7", "td")
        assert tab.page.locator(".h-hurt tbody tr").count() == 3
        assert tab.violations() == []
        tab.page.screenshot(path=tmp_path / "roots.png", full_page=True)
        assert tab.said == []
