"""What a person does with the page: keys alone, links, copying a command, looking for something, pausing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.browsers import ROOT, Tab, a_tab
from support.page_world import HANG, PageWorld, a_busy_cluster, a_calm_cluster, an_incident
from txnwatch.page.store import TargetRow
from txnwatch.state.model.values import Offset, TopicPartition
from txnwatch.state.model.verdicts import Verdict

Serve = Callable[[PageWorld], str]
RUNBOOK = ROOT / "docs" / "runbook.md"


def opened(tab: Tab) -> Tab:
    tab.until("4 partitions stand still.")
    return tab


def path_of(tab: Tab) -> str:
    return str(tab.page.evaluate("location.pathname"))


def test_every_view_is_reached_by_keys_alone(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_busy_cluster())) as tab:
        press = opened(tab).page.keyboard.press
        press("j")
        press("j")
        press("k")
        assert tab.page.locator("li.chosen h3").inner_text() == "HANGING payments-0 behind checkout-7"
        press("Enter")
        tab.until("HANGING payments-0 behind checkout-7.", ".sentence h1")
        press("o")
        assert path_of(tab) == "/"
        press("w")
        assert path_of(tab) == "/watcher"
        press("Escape")
        assert path_of(tab) == "/"
        press("t")
        tab.until("15 min", ".lanes")
        press("?")
        assert tab.page.locator("dialog[open]").count() == 1
        press("Escape")
        assert tab.page.locator("dialog[open]").count() == 0


def test_single_keys_can_be_switched_off(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_busy_cluster())) as tab:
        opened(tab).page.keyboard.press("?")
        tab.page.get_by_label("use single keys").uncheck()
        tab.page.keyboard.press("Escape")
        tab.page.keyboard.press("w")
        assert path_of(tab) == "/"
        assert tab.page.evaluate("Object.entries(localStorage)") == [["keys", "off"]]


@pytest.mark.parametrize(
    ("text", "path"),
    [("payments-0", "/partition/payments/0"), ("checkout-7", "/producer/4021"), ("fraud-scoring", "/incident/")],
)
def test_something_is_looked_for(browser: Any, serve: Serve, text: str, path: str) -> None:
    with a_tab(browser, serve(a_busy_cluster())) as tab:
        opened(tab).page.keyboard.press("/")
        tab.page.keyboard.type(text)
        tab.page.keyboard.press("Enter")
        tab.page.wait_for_url(f"**{path}*")


def test_what_is_not_found_is_said(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_busy_cluster())) as tab:
        opened(tab).page.keyboard.press("/")
        tab.page.keyboard.type("no such thing")
        tab.page.keyboard.press("Enter")
        tab.until("Nothing that is known here has this in its name.", ".sentence h1")


def test_a_command_is_copied_as_it_is(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_busy_cluster()), permissions=["clipboard-read", "clipboard-write"]) as tab:
        opened(tab).page.locator(".command button").first.click()
        tab.until("Copied", ".command button")
        copied = tab.page.evaluate("navigator.clipboard.readText()")
    assert copied == (
        "txnwatch abort --topic payments --partition 0 --start-offset 18210442 --result commit "
        "--bootstrap-server kafka-1:9092 --command-config /etc/txnwatch/client.properties"
    )


def test_without_a_clipboard_the_command_is_selected(browser: Any, serve: Serve) -> None:
    """A browser has a clipboard only with https and on localhost."""
    with a_tab(browser, serve(a_busy_cluster())) as tab:
        opened(tab).page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
        tab.page.locator(".command button").first.click()
        tab.until("press Ctrl+C", ".command button")
        assert str(tab.page.evaluate("getSelection().toString()")).startswith("txnwatch abort --topic payments")


def test_an_address_can_be_loaded_again_and_the_browser_goes_back(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_busy_cluster())) as tab:
        opened(tab).page.locator(".lane .name a").first.click()
        tab.until("payments-0 stands still.", ".sentence h1")
        tab.page.reload()
        tab.until("payments-0 stands still.", ".sentence h1")
        tab.page.go_back()
        tab.until("What stands in the way of readers", "h2")


PICTURES = {"page": ("/", 1440, False), "page-incident": ("/incident/{id}", 1440, True)}


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_of_the_docs(
    browser: Any, serve: Serve, request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    path, width, is_dark = PICTURES[name]
    world = a_busy_cluster()
    url = serve(world)
    hang = next(one.incident_id for one in world.incidents if one.verdict == "hanging")
    directory = request.config.getoption("--page-pictures") or tmp_path
    with a_tab(browser, url, path.format(id=hang), width=width, is_dark=is_dark) as tab:
        opened(tab).page.wait_for_timeout(1_500)
        tab.page.screenshot(path=directory / f"{name}.png", full_page=True)
    assert (directory / f"{name}.png").stat().st_size > 20_000


@pytest.mark.parametrize("width", [360, 1440])
def test_a_holder_that_is_not_in_the_list_is_not_named(browser: Any, serve: Serve, width: int) -> None:
    world = a_calm_cluster()
    world.stands = {TopicPartition("payments", 0): Offset(18_000_000)}
    world.batch()
    explain = "txnwatch explain --topic payments --partition 0"
    with a_tab(browser, serve(world), width=width) as tab:
        tab.until("held by a transaction that is not in the list", ".lanes")
        (lane,) = [text for text in tab.page.locator(".lane .name").all_inner_texts() if text.startswith("payments-0")]
        assert explain in lane
        assert "checkout-9" not in lane
        assert not tab.is_too_wide
        tab.page.get_by_role("link", name="payments-0").click()
        tab.until("It is held by a transaction that is not in this list.", "section.card")
        tab.until(explain, ".command")
        assert not tab.is_too_wide
        assert tab.said == []
        assert tab.violations() == []


def test_a_target_that_has_answered_410_is_on_the_page(browser: Any, serve: Serve) -> None:
    world = a_busy_cluster()
    world.targets = (TargetRow("webhook ops", 3, is_stopped=True),)
    with a_tab(browser, serve(world)) as tab:
        opened(tab)
        tab.until("webhook ops gets no events. It has answered 410.", "section.card")
        assert tab.said == []


@pytest.mark.parametrize("verdict", Verdict)
def test_the_link_to_the_runbook_is_one_of_its_headings(browser: Any, serve: Serve, verdict: Verdict) -> None:
    world = a_calm_cluster()
    world.tell(an_incident("one", 60, **{**HANG, "verdict": verdict}))
    world.batch()
    headings = re.findall(r"^#+ (.+)$", RUNBOOK.read_text(), re.MULTILINE)
    with a_tab(browser, serve(world), f"/incident/{world.incidents[0].incident_id}") as tab:
        link = tab.page.get_by_role("link", name="Runbook:").get_attribute("href")
    address, _, anchor = link.partition("#")
    assert address.endswith("/docs/runbook.md")
    assert anchor in {heading.lower().replace(" ", "-") for heading in headings}, "the anchors of GitHub"
