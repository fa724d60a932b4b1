"""The audit on the page: the quiet line, the view, its text, and links between a finding and its incidents."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from support.audited import an_audit, an_id, broker, facts, record, topic
from support.clusters_world import five_clusters
from support.page_client import get
from support.page_world import OWNERS, PageWorld, a_busy_cluster, now_ms
from txnwatch.state.audit.audit_facts import AuditFacts, NotAudited
from txnwatch.state.audit.audit_table import CHECKS
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TimestampMs

HOSTILE = "\x1b[2J\u202e<b>'; rm -rf / #\n"


def exposed(**more: Any) -> AuditFacts:
    """Payments have one replica, on brokers of release 4.3; __consumer_offsets and the log are healthy."""
    of = facts(topic("payments", replicas=[2]), brokers=[broker("4.3") for _ in range(3)], **more)
    return replace(of, now_ms=now_ms() - 720_000, missing=(NotAudited("settings of broker 3", "the right is missing"),))


def an_exposed_world(*events: IncidentEvent) -> PageWorld:
    world = a_busy_cluster()
    world.store.audited = an_audit(exposed(ids=None), *events, owners=OWNERS)
    return world


def hang_of(world: PageWorld) -> IncidentEvent:
    return next(event for event in world.incidents if event.verdict == "hanging")


def test_before_the_first_audit_there_is_no_line_and_the_view_says_so() -> None:
    with a_busy_cluster().served() as url:
        assert get(url, "/api/v1/status").json["exposures"] is None
        answer = get(url, "/api/v1/audit").json["answer"]
        assert (answer["at_ms"], answer["rows"], answer["counts"]) == (None, [], None)
        assert "none was made yet" in get(url, "/audit").text
        assert "exposure" not in get(url, "/").text


def test_the_line_counts_the_findings() -> None:
    with an_exposed_world().served() as url:
        found = get(url, "/api/v1/status").json["exposures"]
        assert (found["critical"], found["warn"], found["info"], found["not_checked"]) == (1, 1, 0, 1)
        assert re.search(r"2 exposures, 1 critical, audited 12 min \d\d s ago: /audit", get(url, "/").text)


def test_the_view_has_evidence_remedies_owners_and_what_was_not_checked() -> None:
    with an_exposed_world().served() as url:
        answer = get(url, "/api/v1/audit").json["answer"]
        assert [(row["severity"], row["check"]) for row in answer["rows"]] == [
            ("critical", "marker-skipped"),
            ("warn", "replication"),
        ]
        skipped = answer["rows"][0]
        assert skipped["evidence"][-1] == {"request": "Metadata", "field": "replicas of payments-0", "value": "[2]"}
        assert skipped["remedies"][0]["command"].startswith("kafka-reassign-partitions.sh --bootstrap-server kafka-1:")
        assert answer["not_checked"] == [{"what": "settings of broker 3", "why": "the right is missing"}]
        assert answer["command"] == (
            "txnwatch audit --bootstrap-server kafka-1:9092 --command-config /etc/txnwatch/client.properties"
        )
        one = get(url, "/api/v1/audit?check=replication").json["answer"]
        assert [row["check"] for row in one["rows"]] == ["replication"]
        assert one["check"]["fires"] == next(check.fires for check in CHECKS if check.name == "replication")


def test_incidents_that_fit_no_finding_are_counted_in_the_words_of_the_command() -> None:
    event = hang_of(a_busy_cluster())
    other = replace(event, incident_id="e" * 32, topic="clickstream", pending_partitions=())
    line = f"incidents of the last week that fit no finding: 1, for example {'e' * 32}"
    with an_exposed_world(event, other).served() as url:
        assert get(url, "/api/v1/audit").json["answer"]["unexplained"] == line
        assert f"\n{line}\n" in get(url, "/audit").text
        assert get(url, "/api/v1/audit?check=replication").json["answer"]["unexplained"] is None
        assert line not in get(url, "/audit/replication").text
    with an_exposed_world(event).served() as url:
        assert get(url, "/api/v1/audit").json["answer"]["unexplained"] is None


def test_the_owners_of_exposed_topics_are_named() -> None:
    world = a_busy_cluster()
    of = facts(topic("clickstream", replicas=[2]), brokers=[broker("3.9") for _ in range(3)], ids=None)
    world.store.audited = an_audit(of, owners=OWNERS)
    with world.served() as url:
        (row,) = get(url, "/api/v1/audit").json["answer"]["rows"]
        assert (row["owners"], row["exposed_ids"]) == (["Risk (#risk)"], None)


def test_a_finding_and_its_incident_name_each_other() -> None:
    world = an_exposed_world()
    hang = hang_of(world)
    with world.served() as url:
        causes = get(url, f"/api/v1/incidents/{hang.incident_id}").json["answer"]["causes"]
        assert [one["check"] for one in causes] == ["marker-skipped"]
        rows = {row["check"]: row for row in get(url, "/api/v1/audit").json["answer"]["rows"]}
        assert [one["id"] for one in rows["marker-skipped"]["incidents"]] == [hang.incident_id]
        others = [event for event in world.incidents if event.verdict in {"late", "long_running"}]
        for event in others:
            assert get(url, f"/api/v1/incidents/{event.incident_id}").json["answer"]["causes"] == []


def test_incidents_of_the_week_are_listed_once() -> None:
    world = a_busy_cluster()
    hang = hang_of(world)
    past = [replace(hang, incident_id=f"{number:032x}", open_since_ms=number) for number in range(30)]
    world.store.audited = an_audit(exposed(ids=None), hang, *past)
    with world.served() as url:
        row = get(url, "/api/v1/audit?check=marker-skipped").json["answer"]["rows"][0]
        assert (len(row["incidents"]), row["more_incidents"]) == (20, 11)
        assert row["incidents"][0]["id"] == hang.incident_id
        assert f"/incident/{hang.incident_id} (hanging)" in get(url, "/audit").text


@pytest.mark.parametrize("path", ["/audit", "/audit/marker-skipped"])
def test_the_text_has_what_the_view_has(path: str) -> None:
    with an_exposed_world().served() as url:
        text = get(url, path).text
        for part in ("2 exposures, 1 critical · audited 12 min", "critical  marker-skipped", "evidence: Metadata:"):
            assert part in text
        assert "  settings of broker 3: the right is missing" in text
        assert ("warn      replication" in text) is (path == "/audit")


def test_an_unknown_page_has_no_command_that_writes() -> None:
    world = an_exposed_world()
    world.batch(TimestampMs(now_ms() - 16_000))
    with world.served() as url:
        answer = get(url, "/api/v1/audit").json["answer"]
        assert {remedy["command"] for row in answer["rows"] for remedy in row["remedies"]} == {None}
        assert answer["command"].startswith("txnwatch audit ")
        assert "kafka-reassign-partitions.sh" not in get(url, "/audit").text


def test_names_of_strangers_are_shown_safely() -> None:
    world = a_busy_cluster()
    ids = [
        an_id(HOSTILE, record(timeout_ms=7_200_000)),
        an_id("x" * 32_767, record(timeout_ms=7_200_000, producer_id=2)),
    ]
    world.store.audited = an_audit(replace(facts(ids=ids), missing=(NotAudited(HOSTILE, HOSTILE),)))
    with world.served() as url:
        text = get(url, "/audit").text
        assert all(line.isprintable() for line in text.splitlines())
        answer = get(url, "/api/v1/audit").json["answer"]
        shown = [
            *(name for row in answer["rows"] for name in row["transactional_ids"]),
            answer["not_checked"][0]["why"],
        ]
        assert all(one.isprintable() and len(one) < 2_500 for one in shown)


def test_a_page_of_several_clusters_has_the_numbers_and_says_where_the_findings_are() -> None:
    found = five_clusters()
    first, second, *_ = found.clusters
    for one in (first, second):
        assert one.watcher.world is not None
        one.watcher.world.store.audited = an_audit(exposed(ids=None))
    found.batch()
    with found.served() as url:
        keys = {row["name"]: row["key"] for row in get(url, "/api/v1/clusters").json["rows"]}
        place = f"/c/{keys[first.name]}"
        told = get(url, f"{place}/api/v1/status").json["exposures"]
        assert (told["critical"], told["warn"], told["info"], told["not_checked"]) == (1, 1, 0, 1)
        assert re.search(r"2 exposures, 1 critical, audited 12 min \d\d s ago: /audit", get(url, f"{place}/").text)
        answer = get(url, f"{place}/api/v1/audit").json["answer"]
        assert (answer["at_ms"], answer["rows"]) == (None, [])
        (elsewhere,) = answer["not_checked"]
        assert elsewhere["what"] == "2 exposures, 1 critical"
        assert "the page of its watcher has the findings" in get(url, f"{place}/audit").text
        assert "· 4 exposures, 2 critical" in get(url, "/").text
