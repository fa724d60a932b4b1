"""An address of something that is not there, or not any more: a sentence that says so, and nothing in the console."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from support.browsers import a_tab
from support.page_world import PageWorld, a_busy_cluster

Serve = Callable[[PageWorld], str]
FORGOTTEN = "9c41d07be2a85f360b1e5d7742c9a813"

ADDRESSES = {
    f"/incident/{FORGOTTEN}": "No incident with this id is known here.",
    "/incident/x": "This is not the id of an incident.",
    "/incident/..%2Fa%2Fb": "This is not the id of an incident.",
    "/producer/1": "Nothing is known under this id.",
    "/id/no-such-id": "Nothing is known under this id.",
    "/id/a%2Fb": "Nothing is known under this id.",
    "/partition/a%20b/0": "This is not a partition.",
    "/partition/a%2Fb/0": "This is not a partition.",
    "/partition/payments/99999999999": "This is not a partition.",
    "/partition/orders/99": "orders-99 is not watched, or does not exist.",
    "/partition/nosuchtopic/0": "nosuchtopic-0 is not watched, or does not exist.",
    "/id/orders-99": "Nothing is known under this id.",
    "/id/a/b": "The page has no such address.",
}


def test_what_is_not_there_is_said_and_not_in_the_console(browser: Any, serve: Serve) -> None:
    """All addresses are open beside each other, and all wait the same moment for what may come later."""
    url = serve(a_busy_cluster())
    with ExitStack() as opened:
        tabs = {address: opened.enter_context(a_tab(browser, url, address)) for address in ADDRESSES}
        for address, tab in tabs.items():
            tab.until(ADDRESSES[address], ".sentence.unknown")
        tabs["/producer/1"].page.wait_for_timeout(2_500)
        assert {address: tab.said for address, tab in tabs.items() if tab.said} == {}
        assert [address for address, tab in tabs.items() if tab.is_too_wide] == []


def test_a_forgotten_incident_has_the_command_that_reads_its_events(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_busy_cluster()), f"/incident/{FORGOTTEN}") as tab:
        tab.until("forgotten a day after its end", ".sentence.unknown")
        assert tab.page.inner_text(".command code") == (
            f"txnwatch events --incident {FORGOTTEN} "
            "--bootstrap-server kafka-1:9092 --command-config /etc/txnwatch/client.properties"
        )
        assert tab.violations() == []


def test_what_is_looked_for_and_not_there_is_not_in_the_console(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_busy_cluster())) as tab:
        tab.until("4 partitions stand still.")
        tab.page.keyboard.press("/")
        tab.page.keyboard.type("no such thing")
        tab.page.keyboard.press("Enter")
        tab.until("Nothing that is known here has this in its name.", ".sentence.unknown h1")
        tab.until("txnwatch explain --transactional-id 'no such thing'", ".command code")
        assert tab.said == []
