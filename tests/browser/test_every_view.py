"""Every view in every width, when it is true and when it is out of date: it can be used, and the console is quiet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.audited import an_audit, an_id, broker, facts, topic
from support.browsers import Tab, a_tab
from support.page_world import PageWorld, a_busy_cluster, now_ms
from txnwatch.state.audit.audit_facts import NotAudited
from txnwatch.state.model.incident import EndedBy, EndKind, Resolution, resolved
from txnwatch.state.model.values import TimestampMs

Serve = Callable[[PageWorld], str]
VIEWS = (
    "/incident/{id}",
    "/incidents",
    "/incidents?verdict=late",
    "/find?name=check",
    "/partition/orders/99",
    "/id/no-such-id",
    "/?wall=1",
    "/",
    "/watcher",
    "/open",
    "/partition/payments/0",
    "/id/checkout-7",
    "/partitions",
    "/ended",
    "/audit",
    "/audit/marker-skipped",
    "/history",
    "/roots",
)
WIDTHS = (360, 1440, 2560)


def world_with_an_end() -> tuple[PageWorld, str]:
    """A busy cluster with an audit, in which one incident has ended, and the id of its hang."""
    world = a_busy_cluster()
    end = Resolution(how=EndKind.ABORTED, by=EndedBy.TXNWATCH, at_ms=now_ms())
    late = next(one for one in world.incidents if one.verdict == "late")
    world.tell(resolved(late, now_ms(), end))
    exposed = facts(topic("payments", replicas=[2]), brokers=[broker("4.3") for _ in range(3)], ids=[an_id()])
    world.store.audited = an_audit(replace(exposed, missing=(NotAudited("ACLs", "hidden"),)), *world.incidents)
    world.batch()
    return world, next(one.incident_id for one in world.incidents if one.verdict == "hanging")


def is_usable(tab: Tab) -> bool:
    tab.page.wait_for_timeout(800)
    assert tab.said == []
    assert not tab.is_too_wide
    assert tab.violations() == []
    return True


@pytest.mark.matrix
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("path", VIEWS)
def test_each_view_in_each_width(browser: Any, serve: Serve, path: str, width: int) -> None:
    world, hang = world_with_an_end()
    with a_tab(browser, serve(world), path.format(id=hang), width=width, is_dark=width == 360) as tab:
        tab.until("partitions stand still.")
        assert is_usable(tab)


@pytest.mark.matrix
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("path", VIEWS)
def test_each_view_that_is_out_of_date(browser: Any, path: str, width: int) -> None:
    world, hang = world_with_an_end()
    with (
        world.served() as url,
        a_tab(browser, url, path.format(id=hang), width=width, is_dark=width != 1440) as tab,
    ):
        tab.until("partitions stand still.")
        world.batch(TimestampMs(now_ms() - 16_000))
        tab.until("Unknown.")
        assert is_usable(tab)
        commands = tab.page.locator(".command code").all_inner_texts()
        assert [one for one in commands if not one.startswith("txnwatch ") or "abort" in one or "fence" in one] == []


@pytest.mark.matrix
@pytest.mark.parametrize("width", WIDTHS)
def test_the_dialog_of_the_keys(browser: Any, serve: Serve, width: int) -> None:
    with a_tab(browser, serve(a_busy_cluster()), width=width, is_dark=width == 360) as tab:
        tab.until("partitions stand still.")
        tab.page.keyboard.press("?")
        tab.page.locator("dialog[open]").wait_for()
        assert is_usable(tab)
