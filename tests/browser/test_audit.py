"""The audit in the browser: from the quiet line to a finding, to its incident, and back to the finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from support.audited import an_audit, broker, facts, topic
from support.browsers import a_tab
from support.page_world import OWNERS, PageWorld, a_busy_cluster, now_ms
from txnwatch.state.audit.audit_facts import NotAudited

Serve = Callable[[PageWorld], str]
LOST = "DESCRIBE_CONFIGS on the cluster is missing"


def an_exposed_world() -> PageWorld:
    world = a_busy_cluster()
    of = facts(topic("payments", replicas=[2]), brokers=[broker("4.3") for _ in range(3)], ids=None)
    of = replace(of, now_ms=now_ms() - 720_000, missing=(NotAudited("settings of broker 3", LOST),))
    hang = next(event for event in world.incidents if event.verdict == "hanging")
    elsewhere = replace(hang, incident_id="e" * 32, topic="elsewhere", pending_partitions=())
    world.store.audited = an_audit(of, hang, elsewhere, owners=OWNERS)
    return world


def test_a_finding_and_its_incident_lead_to_each_other(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(an_exposed_world())) as tab:
        tab.until("audited 12 min", "#main")
        tab.page.get_by_role("link", name="2 exposures, 1 critical").click()
        tab.until("What exposes this cluster", "h1.big")
        assert tab.page.locator(".exposures h2 .tag").all_inner_texts() == ["CRITICAL", "WARN"]
        assert LOST in tab.page.inner_text("#main")
        assert tab.page.get_by_text("incidents of the last week that fit no finding: 1, for example ").count() == 1
        assert (
            tab.page.locator(".exposures .command code").first.inner_text().startswith("kafka-reassign-partitions.sh")
        )
        tab.page.locator(".exposures").get_by_role("link", name="hanging of").click()
        tab.until("HANGING payments-0 behind checkout-7.", ".sentence h1")
        tab.page.get_by_role("link", name="marker-skipped").click()
        tab.until("It fires if: a broker has release 4.3 or 4.4", "#main")
        assert tab.page.evaluate("location.pathname") == "/audit/marker-skipped"
        assert tab.page.locator(".exposures > li").count() == 1
        assert tab.page.get_by_text("fit no finding").count() == 0
        assert (tab.said, tab.violations()) == ([], [])


def test_before_the_first_audit_the_view_says_when_it_comes(browser: Any, serve: Serve) -> None:
    with a_tab(browser, serve(a_busy_cluster()), "/audit") as tab:
        tab.until("a watch does it a minute after it is ready", "#main")
        assert (
            tab.page.locator(".command code").inner_text().startswith("txnwatch audit --bootstrap-server kafka-1:9092")
        )
        assert tab.page.get_by_role("link", name="exposure").count() == 0
