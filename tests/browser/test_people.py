"""The page for its people: at the start, on the wall, with a screen reader, without JavaScript, and who speaks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.browsers import a_tab
from support.clusters_world import five_clusters
from support.page_world import PageWorld, a_busy_cluster, a_calm_cluster, now_ms
from txnwatch.page.store import StartStep, TargetRow
from txnwatch.state.model.values import Offset, TimestampMs, TopicPartition

Serve = Callable[[PageWorld], str]


def test_a_start_shows_its_steps_and_the_reason(browser: Any) -> None:
    world = PageWorld()
    world.store.step = StartStep.PLAN
    world.store.warn("no broker of kafka-1:9092 has answered for 15 s", now_ms())
    with world.served() as url, a_tab(browser, url) as tab:
        tab.until("no broker of kafka-1:9092 has answered for 15 s", "#sentence h1")
        assert tab.page.locator(".steps li").all_inner_texts() == [
            "1 of 3: Spark starts done",
            "2 of 3: the published incidents are read, and Spark plans the query now",
            "3 of 3: the first micro-batches read the logs to come",
        ]
        tab.until("cluster Qk7rXf2mTtS9 at kafka-1:9092", "footer")
        assert tab.said == []
        assert tab.violations() == []


def test_if_the_process_does_not_answer_nothing_goes_on_by_itself(browser: Any) -> None:
    with a_tab(browser, "about:blank", "") as tab:
        with a_calm_cluster().served() as url:
            tab.page.goto(url)
            tab.until("All clear.")
            tab.page.evaluate("EventSource.prototype.addEventListener = () => {}")
            tab.page.route("**/api/**", lambda route: route.abort())
        tab.until("Unknown.")
        tab.until("it does not go on by itself", "section.card", within_s=20)
        assert "goes on by itself once" not in tab.page.inner_text("main")


def test_a_target_that_fails_and_who_speaks_are_on_the_page(browser: Any, serve: Serve) -> None:
    world = a_busy_cluster()
    world.targets = (TargetRow("webhook chat", 12, TimestampMs(now_ms() - 90_000), "chat:443 answers 503"),)
    world.speaks, world.speaker = False, "watch-1:/c"
    with a_tab(browser, serve(world)) as tab:
        tab.until("webhook chat takes no events", "#sentence")
        tab.until("12 events wait, the oldest for 1 min 3", "section.card")
        tab.until("Last error: chat:443 answers 503", "section.card")
        tab.until("events are published by watch-1:/c, not by this one", "footer")
        assert tab.said == []


@pytest.mark.parametrize(
    ("query", "expected", "tone"),
    [
        ("wall=1", "4 partitions stand still.", "critical"),
        (
            "wall=1&owner=data",
            "1 incident of Data platform. orders-4 behind dwh-orders-4-1187 for at least 16 min",
            "warning",
        ),
        ("wall=1&owner=risk", "Nothing of risk stands.", "clear"),
    ],
)
def test_the_wall_has_one_sentence_and_nothing_to_click(
    browser: Any, serve: Serve, query: str, expected: str, tone: str
) -> None:
    with a_tab(browser, serve(a_busy_cluster()), f"/?{query}") as tab:
        tab.until(expected, f".wall.{tone} h1")
        assert tab.page.locator("a, button, input, select").count() == 1, "the link to the sentence"
        assert not tab.is_too_wide
        assert tab.said == []
        assert tab.violations() == []


def test_the_wall_is_not_calm_about_what_it_does_not_know(browser: Any) -> None:
    world = a_busy_cluster()
    with world.served() as url, a_tab(browser, url, "/?wall=1&owner=risk") as tab:
        tab.until("Nothing of risk stands.", ".wall h1")
        world.batch(TimestampMs(now_ms() - 16_000))
        tab.until("Unknown.", ".wall.unknown h1")


ALL_OF_IT = """() => [...document.querySelectorAll(".wall, .wall *")].every((one) => {
    const at = one.getBoundingClientRect()
    return at.bottom <= innerHeight && at.right <= innerWidth && at.top >= 0
})"""


@pytest.mark.parametrize("width", [390, 1440, 2560])
@pytest.mark.parametrize(
    ("query", "counts"),
    [("wall=1", "3 incidents were open at "), ("wall=1&owner=data", "1 incident of Data platform was open at ")],
)
def test_the_wall_that_knows_nothing_is_whole_and_keeps_its_counts(
    browser: Any, query: str, counts: str, width: int, tmp_path: Path
) -> None:
    world = a_busy_cluster()
    with world.served() as url, a_tab(browser, url, f"/?{query}", width=width, height=width * 9 // 16) as tab:
        tab.page.wait_for_selector(".wall.critical, .wall.warning")
        world.store.warn("no broker of " + "kafka-1.payments.svc.cluster.local:9092," * 7 + " has answered", now_ms())
        world.batch(TimestampMs(now_ms() - 16_000))
        tab.until(counts, ".wall.unknown h1")
        tab.until("The last evaluated barrier is 1", ".wall p")
        tab.page.screenshot(path=tmp_path / "wall.png")
        assert tab.page.evaluate(ALL_OF_IT)
        assert tab.said == []


def test_the_wall_of_a_page_that_is_gone_keeps_its_counts(browser: Any) -> None:
    with ExitStack() as served:
        url = served.enter_context(a_busy_cluster().served())
        with a_tab(browser, url, "/?wall=1&owner=data") as tab:
            tab.until("1 incident of Data platform.", ".wall h1")
            served.close()
            tab.until("1 incident of Data platform was open at ", ".wall.unknown h1")


def test_the_wall_of_several_clusters_shows_them_in_turn(browser: Any) -> None:
    with five_clusters().served() as url, a_tab(browser, url, "/?wall=1") as tab:
        tab.page.wait_for_selector(".wall h1 b")
        first = tab.page.inner_text(".wall h1 b")
        tab.page.locator(".wall h1 b").filter(has_not_text=first).wait_for(timeout=30_000)


def test_each_view_has_its_title_and_the_focus_goes_to_its_heading(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_busy_cluster())) as tab:
        tab.until("4 partitions stand still.")
        assert tab.page.title() == "◆ 3 incidents · Qk7rXf2mTtS9 · txnwatch"
        tab.page.get_by_role("link", name="payments-0").first.click()
        tab.until("HANGING", ".sentence h1")
        assert tab.page.title() == "◆ 3 incidents · hanging payments-0 · Qk7rXf2mTtS9 · txnwatch"
        assert tab.page.evaluate("document.activeElement.innerText").startswith("HANGING payments-0")
        tab.page.keyboard.press("w")
        assert tab.page.title() == "◆ 3 incidents · watcher · Qk7rXf2mTtS9 · txnwatch"
        assert tab.page.evaluate("document.activeElement.tagName") == "H1"


def test_copied_is_spoken_and_pause_is_there_on_a_phone(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_busy_cluster()), width=360, permissions=["clipboard-read", "clipboard-write"]) as tab:
        tab.until("4 partitions stand still.")
        tab.page.locator(".command button").first.click()
        tab.until("The command is copied.", "main > [role=status]")
        tab.page.get_by_role("button", name="Pause").click()
        tab.until("Paused", ".paused")
        assert not tab.is_too_wide


def test_what_grows_has_its_rate(browser: Any, serve: Serve) -> None:
    world = a_busy_cluster()
    with a_tab(browser, serve(world)) as tab:
        tab.until("4 partitions stand still.")
        assert tab.page.locator(".rate").count() == 0
        for _ in range(40):
            world.ends[TopicPartition("payments", 0)] = Offset(world.ends[TopicPartition("payments", 0)] + 20)
            tab.page.wait_for_timeout(100)
        rates = tab.page.locator(".hide .rate").all_inner_texts()
        assert len(rates) == 1
        assert 50 < int(rates[0].strip().removeprefix("+").removesuffix("/s")) < 300


def test_without_javascript_the_page_leads_to_its_text(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_busy_cluster()), java_script_enabled=False) as tab:
        tab.page.get_by_role("link", name="the page as text").click()
        assert "4 partitions stand still." in tab.page.inner_text("body")


def test_on_paper_there_is_nothing_to_click(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_busy_cluster())) as tab:
        tab.until("4 partitions stand still.")
        tab.page.emulate_media(media="print")
        assert tab.page.locator("button:visible, input:visible, nav:visible").count() == 0
        assert "/etc/txnwatch/client.properties" in tab.page.locator(".command code").first.inner_text()
