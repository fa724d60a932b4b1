"""What the page says, and how fast; it is never green if it cannot know."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.browsers import Tab, a_tab
from support.page_world import HANG, PageWorld, a_busy_cluster, a_calm_cluster, an_incident, an_open, now_ms
from txnwatch.state.model.values import CoordinatorAccess, TimestampMs, TopicPartition
from txnwatch.watch.coverage import MissingEvidence

Serve = Callable[[PageWorld], str]


def partly_known() -> PageWorld:
    world = a_calm_cluster()
    missing = tuple(TopicPartition("metering", number) for number in range(23))
    world.evidence = MissingEvidence(unproven=missing, is_log_read=True)
    world.batch()
    return world


def without_log() -> PageWorld:
    world = PageWorld(access=CoordinatorAccess.API)
    world.batch()
    return world


STATES: dict[str, tuple[Callable[[], PageWorld], str]] = {
    "clear": (a_calm_cluster, "All clear."),
    "incident": (a_busy_cluster, "4 partitions stand still."),
    "partial": (partly_known, "Nothing is known about 23 partitions"),
    "limited": (without_log, "No hang."),
    "unknown": (PageWorld, "Unknown."),
}


def state_of(tab: Tab) -> str:
    return str(tab.page.evaluate("document.documentElement.dataset.state"))


@pytest.fixture
def quiet() -> Iterator[Serve]:
    """Serves a page without micro-batches; returns the address."""
    with ExitStack() as stack:
        yield lambda world: stack.enter_context(world.served())


@pytest.mark.matrix
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440, 2560])
@pytest.mark.parametrize("state", STATES)
def test_each_state_in_each_form(
    browser: Any, serve: Serve, quiet: Serve, state: str, width: int, *, is_dark: bool, tmp_path: Path
) -> None:
    make, expected = STATES[state]
    url = (quiet if state == "unknown" else serve)(make())
    with a_tab(browser, url, width=width, is_dark=is_dark) as tab:
        tab.until(expected)
        assert state_of(tab) == state
        assert tab.said == []
        assert not tab.is_too_wide
        tab.page.screenshot(path=tmp_path / f"{state}-{width}-{'dark' if is_dark else 'light'}.png", full_page=True)
        assert tab.violations() == []


@pytest.mark.matrix
@pytest.mark.parametrize("path", ["/incident/{id}", "/partition/payments/0", "/id/checkout-7", "/watcher", "/open"])
@pytest.mark.parametrize("width", [360, 1440])
def test_each_view_in_each_form(browser: Any, serve: Serve, path: str, width: int) -> None:
    world = a_busy_cluster()
    url = serve(world)
    hang = next(one.incident_id for one in world.incidents if one.verdict == "hanging")
    with a_tab(browser, url, path.format(id=hang), width=width, is_dark=width == 360) as tab:
        tab.until("4 partitions stand still.")
        tab.page.wait_for_timeout(800)
        assert tab.said == []
        assert not tab.is_too_wide
        assert tab.violations() == []


def test_before_the_first_picture_it_is_unknown(browser: Any, serve: Serve) -> None:
    url = serve(a_calm_cluster())
    with a_tab(browser, "about:blank", "") as tab:
        tab.page.route("**/static/**/*.js", lambda _: None)
        tab.page.goto(url, wait_until="commit")
        tab.until("Asking the watcher", "main .sentence.unknown")
        assert tab.page.locator(".sentence.clear").count() == 0


def test_an_incident_is_seen_within_two_seconds(browser: Any, serve: Serve) -> None:
    world = a_calm_cluster()
    with a_tab(browser, serve(world)) as tab:
        tab.until("All clear.")
        since = time.monotonic()
        world.open.append(an_open(4021, "checkout-7", 3, ("payments", 0, 18_210_442), state="unowned"))
        world.tell(an_incident("hang", 3, **HANG))
        world.batch()
        tab.until("1 partition stands still.")
        assert time.monotonic() - since < 2.0
        assert tab.page.title() == "◆ 1 incident · Qk7rXf2mTtS9 · txnwatch"


def test_a_watcher_that_evaluates_nothing_is_unknown_and_its_commands_only_read(browser: Any, quiet: Serve) -> None:
    world = a_busy_cluster()
    url = quiet(world)
    with a_tab(browser, url) as tab:
        tab.until("4 partitions stand still.")
        world.batch(TimestampMs(now_ms() - 16_000))
        tab.until("Unknown.")
        assert state_of(tab) == "unknown"
        commands = tab.page.locator(".command code").all_inner_texts()
        assert commands
        assert not [one for one in commands if "abort" in one or "fence" in one]
        assert tab.page.locator("section.stale").count() >= 2
        world.batch()
        tab.until("4 partitions stand still.")


def test_the_policy_refuses_what_is_not_a_file_of_the_page(browser: Any, serve: Serve) -> None:
    tries = (
        "document.body.innerHTML = '<b>x</b>'",
        "document.createElement('script').textContent = 'document.title = 1'",
        "setTimeout('document.title = 1')",
    )
    with a_tab(browser, serve(a_calm_cluster())) as tab:
        tab.until("All clear.")
        for one in tries:
            assert tab.page.evaluate(f"(() => {{ try {{ {one}; return false }} catch {{ return true }} }})()"), one
        assert tab.page.evaluate("document.cookie") == ""
        assert tab.page.evaluate("Object.keys(localStorage).length") == 0
