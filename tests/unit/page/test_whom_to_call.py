"""Whom to call: the owner by the table of this process, and what an id says, wherever the page names an incident."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

import msgspec

from support.incidents import an_event
from support.page_world import ORIGIN, PageWorld, a_busy_cluster, an_incident, an_open, now_ms
from txnwatch.owners.owner_table import owners_of as owners_in
from txnwatch.page import details
from txnwatch.page.picture import picture_of
from txnwatch.page.words import about_client, about_event, as_text, owners_of
from txnwatch.state.incidents.event_builder import named
from txnwatch.state.model.ownership import ADVICE_MEANS, NO_OWNERS, Advice, FoundBy, OwningTeam
from txnwatch.state.model.values import ProducerId
from txnwatch.state.model.verdicts import Verdict

ADVICE = ADVICE_MEANS[Advice.RESUME_FLINK_JOB]


def rows(world: PageWorld) -> dict[str, dict[str, Any]]:
    """The incidents of the picture by their verdict, as JSON gives them back."""
    picture = msgspec.json.decode(msgspec.json.encode(picture_of(world.knowledge())))
    return {row["verdict"]: row for row in picture["incidents"].values()}


def test_an_incident_has_its_owner_and_what_its_id_says() -> None:
    hang = rows(a_busy_cluster())["hanging"]
    assert hang["owner"] == {
        "team": "checkout",
        "name": "Checkout",
        "contact": "#checkout-oncall",
        "url": "https://teams.example/checkout",
        "found_by": "transactional id",
        "links": [],
    }
    assert hang["application"] == "looks like Spring Kafka: prefix checkout-, number 7; this is a guess"
    assert ADVICE not in hang["safe"]


def test_a_late_transaction_of_flink_has_the_advice() -> None:
    late = rows(a_busy_cluster())["late"]
    assert late["owner"]["team"] == "data"
    assert ADVICE in late["safe"]


def test_the_lane_of_an_incident_has_the_owner_of_the_incident() -> None:
    """The incident may know more than its id, for example the groups that show which application it is."""
    world = a_busy_cluster()
    by_group = OwningTeam(team="ledger", name="Ledger", found_by=FoundBy.APPLICATION)
    world.incidents = [
        replace(one, owner=by_group) if one.verdict is Verdict.HANGING else one for one in world.incidents
    ]
    world.batch()
    lanes = picture_of(world.knowledge())["lanes"]
    assert (lanes["payments-0"]["holder"]["owner"], rows(world)["hanging"]["owner"]["name"]) == ("Ledger", "Ledger")
    assert lanes["orders-4"]["holder"]["owner"] == "Data platform"
    assert lanes["clickstream-17"]["holder"]["owner"] == "Risk", "without an incident, by the topic"


def test_the_owners_of_affected_groups_are_named() -> None:
    assert rows(a_busy_cluster())["hanging"]["group_owners"] == [["fraud-scoring", "Risk #risk"]]


def test_what_waits_has_the_owners_of_its_groups() -> None:
    known = a_busy_cluster().knowledge()
    found = details.incident(known, next(one.incident_id for one in known.open_incidents if one.verdict == "hanging"))
    assert found is not None
    assert [group["owner"] for group in found["waits"]["groups"]] == ["Risk #risk", None, None]


def test_an_incident_without_an_owner_says_so() -> None:
    stuck = rows(a_busy_cluster())["stuck_prepare"]
    assert (stuck["owner"], stuck["group_owners"]) == (None, [])


def test_the_line_below_the_sentence_names_whom_to_call() -> None:
    status = picture_of(a_busy_cluster().knowledge())["status"]
    assert "to call: Checkout, Data platform" in as_text(status["detail"], now_ms())


def test_the_holder_of_a_partition_has_its_owner() -> None:
    lanes = picture_of(a_busy_cluster().knowledge())["lanes"]
    assert [lanes[key]["holder"]["owner"] for key in ("payments-0", "clickstream-17", "billing-7")] == [
        "Checkout",
        "Risk",
        None,
    ]


def test_a_transactional_id_has_its_owner_with_and_without_an_incident() -> None:
    known = a_busy_cluster().knowledge()
    with_one, without = details.producer(known, ProducerId(4021)), details.producer(known, ProducerId(4177))
    assert with_one is not None
    assert without is not None
    assert (with_one["owner"]["team"], without["owner"]["team"]) == ("checkout", "checkout")
    assert without["application"] == "looks like Spring Kafka: prefix refund-, number 2; this is a guess"
    nobody = {"owner": None, "application": None}
    assert about_client(ORIGIN, [], [], now_ms()) == {**nobody, "no_owner": "The table of owners has no entry for it."}
    assert "no table of owners" in about_client(None, [], [], now_ms())["no_owner"]


def test_text_of_a_client_is_printable() -> None:
    event = named(an_event(transactional_id="evil\x1b]0;x\x07\u202e-4-1187"), ORIGIN.owners)
    found = about_event(ORIGIN, event, now_ms())
    assert found["application"].isprintable()
    assert "evil\\x1b" in found["application"]


def test_a_group_with_the_name_of_a_property_has_no_owner() -> None:
    group = {"group_id": "__proto__", "state": "stopped", "committed_offset": 1, "hidden_lag": 2}
    assert about_event(ORIGIN, an_event(consumer_groups=(group,)), now_ms())["group_owners"] == []


def test_before_the_cluster_is_known_nobody_owns_anything() -> None:
    assert owners_of(None) is NO_OWNERS


def test_the_incidents_of_one_owner_are_listed() -> None:
    world = a_busy_cluster()
    with world.served() as url:

        def verdicts(query: str) -> list[str]:
            answer = json.loads(urlopen(f"{url}/api/v1/incidents{query}").read())
            return [row["verdict"] for row in answer["rows"]]

        assert verdicts("?owner=checkout") == ["hanging"]
        assert verdicts("?owner=none") == ["stuck_prepare", "long_running"]
        assert verdicts("?owner=nobody") == []
        assert len(verdicts("")) == 4


def test_the_page_as_text_names_whom_to_call_and_the_advice() -> None:
    with a_busy_cluster().served() as url:
        text = urlopen(Request(url, headers={"Accept": "text/plain"})).read().decode()
    assert "  call Checkout, #checkout-oncall\n" in text
    assert "This can be a pre-committed transaction of a Flink checkpoint." in text


def test_a_hostile_id_in_a_lane_is_named_by_its_topic_alone() -> None:
    world = PageWorld(open=[an_open(1, "<script>alert(1)</script>", 60, ("clickstream", 0, 5))])
    world.tell(an_incident("hang", 60, transactional_id="__proto__", topic="clickstream", partition=0))
    world.batch()
    assert rows(world)["hanging"]["owner"]["found_by"] == "topic"
    assert picture_of(world.knowledge())["lanes"]["clickstream-0"]["holder"]["owner"] == "Risk"


def with_links(**links: str) -> PageWorld:
    """A busy cluster whose first team has links."""
    entry = {"team": "checkout", "name": "Checkout", "transactional_ids": ["checkout-*"], **links}
    world = a_busy_cluster()
    world.store.origin = replace(ORIGIN, owners=owners_in({"owner": [entry]}, "the test"))
    return world


def test_the_links_of_a_team_are_at_the_time_of_the_incident() -> None:
    template = "https://grafana.example/d/x?from={from}&to={to}"
    world = with_links(chat="https://chat.example/c", phone="+49 (30) 12-34", dashboard=template)
    hang = next(one for one in world.incidents if one.verdict is Verdict.HANGING)
    links = dict(rows(world)["hanging"]["owner"]["links"])
    assert (links["chat"], links["call"]) == ("https://chat.example/c", "tel:+49301234")
    query = parse_qs(urlsplit(links["dashboard"]).query)
    assert query["from"] == [str(hang.open_since_ms - 600_000)]
    assert 0 < int(query["to"][0]) - now_ms() <= 600_000
    client = details.transactional_id(world.knowledge(), "checkout-7")
    assert client is not None
    assert dict(client["owner"]["links"])["call"] == "tel:+49301234"


def test_an_event_never_brings_a_link() -> None:
    """The team is by the table of this process, and so are its links."""
    world = with_links(chat="https://chat.example/c")
    forged = OwningTeam(team="forged", name="Forged", url="https://forged.example", found_by=FoundBy.TOPIC)
    assert (
        about_event(world.store.origin, an_event(owner=msgspec.to_builtins(forged)), now_ms())["owner"]["links"] == []
    )
