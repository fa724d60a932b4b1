"""A storm is one row, each verdict has one, and each incident can be reached."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from support.page_client import get
from support.page_world import GROUPS, HANG, WHOLE, PageWorld, a_busy_cluster, a_storm, an_incident, an_open, now_ms
from txnwatch.page.picture import picture_of
from txnwatch.page.storms import CAUSES, FOLDS, LISTED
from txnwatch.page.words import as_text

STORM = 1_000


@pytest.fixture(scope="module")
def storm() -> Iterator[tuple[PageWorld, str]]:
    world = a_storm(STORM)
    with world.served() as url:
        yield world, url


def picture(world: PageWorld) -> dict[str, Any]:
    return picture_of(world.knowledge())


def rows(world: PageWorld) -> list[dict[str, Any]]:
    found = picture(world)
    return [found["incidents"][key] for key in found["order"]["incidents"]]


def test_a_thousand_hangs_of_one_cause_are_one_row(storm: tuple[PageWorld, str]) -> None:
    found = rows(storm[0])
    assert [(row["verdict"], (row["fold"] or {"count": 1})["count"]) for row in found] == [
        ("hanging", 1),
        ("hanging", STORM),
        ("stuck_prepare", 1),
        ("late", 1),
        ("long_running", 1),
    ]
    fold = found[1]["fold"]
    assert (fold["topic"], fold["partitions"], fold["producers"]) == ("events", STORM, STORM)
    assert found[1]["since_ms"] == fold["since_ms"], "the worst one is open in the row: the oldest of equals"


def test_each_incident_is_reached_page_by_page(storm: tuple[PageWorld, str]) -> None:
    world, url = storm
    seen: list[str] = []
    offset = 0
    while True:
        page = get(url, f"/api/v1/incidents?limit=200&offset={offset}").json
        seen += [row["id"] for row in page["rows"]]
        offset += len(page["rows"])
        assert page["more"] == page["count"] - offset
        if not page["more"]:
            break
    assert sorted(seen) == sorted(event.incident_id for event in world.incidents)


def test_the_row_of_a_storm_leads_to_all_of_it(storm: tuple[PageWorld, str]) -> None:
    world, url = storm
    fold = rows(world)[1]["fold"]
    found = get(url, f"/api/v1{fold['list']}&limit=1").json
    assert (found["count"], found["rows"][0]["topic"]) == (STORM, "events")


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("verdict=late", 1),
        ("owner=checkout", 1),
        ("owner=none", STORM + 2),
        ("topic=orders", 2),
        ("prefix=dwh", 1),
        ("prefix=loader&verdict=hanging", STORM),
        ("topic=nothing", 0),
    ],
)
def test_a_filter_takes_what_it_names(storm: tuple[PageWorld, str], query: str, count: int) -> None:
    found = get(storm[1], f"/api/v1/incidents?{query}").json
    assert (found["count"], len(found["rows"])) == (count, min(count, LISTED))


def test_the_choices_of_a_filter_have_their_numbers(storm: tuple[PageWorld, str]) -> None:
    choices = get(storm[1], "/api/v1/incidents?limit=1").json["choices"]
    assert choices["owner"][0] == ["none", STORM + 2]
    assert ["late", 1] in choices["verdict"]
    assert ["events", STORM] in choices["topic"]
    assert ["loader", STORM] in choices["prefix"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("limit=201", "limit: expected a number from 1 to 200, found '201'"),
        ("offset=-1", "offset: expected a number from 0 to 1000000, found '-1'"),
    ],
)
def test_a_page_that_cannot_be_is_an_error(storm: tuple[PageWorld, str], query: str, expected: str) -> None:
    assert get(storm[1], f"/api/v1/incidents?{query}").json == {"error": expected}


def test_each_verdict_has_a_row_if_there_are_too_many_causes() -> None:
    world = a_busy_cluster()
    for number in range(FOLDS + 10):
        place = {"topic": f"topic{number}", "transactional_id": f"{chr(97 + number % 26)}{'x' * number}y"}
        world.tell(an_incident(f"more-{number}", 400, consumer_groups=GROUPS, **{**HANG, **place}))
    world.batch()
    found = rows(world)
    assert len(found) == FOLDS
    assert {row["verdict"] for row in found} == {"hanging", "stuck_prepare", "late", "long_running"}
    order = picture(world)["order"]
    assert order["more_incidents"] == sum(order["more_by_verdict"].values()) == len(world.incidents) - FOLDS


def test_who_hurts_somebody_is_before_what_hurts_nobody() -> None:
    """Also a late transaction before a hang."""
    world = a_busy_cluster()
    world.open.append(an_open(77, "quiet", 600, ("audit", 2, 5), state="unowned", timeout_s=None))
    world.tell(an_incident("quiet", 600, **{**HANG, "topic": "audit", "partition": 2, "producer_id": 77}))
    late = {"verdict": "late", "severity": "warning", "producer_id": 5150, "consumer_groups": GROUPS}
    world.tell(an_incident("late-that-hurts", 5, **{**HANG, "topic": "orders", "partition": 4, **late}))
    world.batch()
    assert [row["verdict"] for row in rows(world)[:2]] == ["hanging", "late"]
    assert "quiet" not in [row["holder"] for row in rows(world)[:2]]


def test_an_id_in_a_storm_has_its_own_step(storm: tuple[PageWorld, str]) -> None:
    storm[0].batch()
    row = get(storm[1], "/api/v1/ids?name=loader-7").json["answer"]["row"]
    assert row["steps"][0]["command"].startswith("txnwatch abort --topic events --partition 7 --start-offset 7 ")


def test_a_storm_leaves_room_for_other_lanes(storm: tuple[PageWorld, str]) -> None:
    lanes = picture(storm[0])["lanes"]
    assert {"payments-0", "orders-11", "orders-4", "clickstream-17", "events-999"} - set(lanes) <= {"events-999"}
    assert sum(key.startswith("events-") for key in lanes) >= 6


@pytest.mark.parametrize(
    ("query", "verdicts", "lanes"),
    [
        ("", ["hanging", "hanging", "stuck_prepare", "late", "long_running"], None),
        ("owner=checkout", ["hanging"], {"payments-0"}),
        ("owner=none&topic=orders", ["stuck_prepare"], {"orders-11", "orders-14"}),
        ("topic=orders", ["stuck_prepare", "late"], {"orders-11", "orders-14", "orders-4"}),
        ("verdict=late", ["late"], {"orders-4"}),
        ("prefix=sessionizer", [], {"clickstream-17"}),
        ("owner=nobody", [], set()),
    ],
)
def test_an_overview_has_what_its_filter_means(
    storm: tuple[PageWorld, str], query: str, verdicts: list[str], lanes: set[str] | None
) -> None:
    _, url = storm
    found = get(url, f"/api/v1/overview?{query}").json
    assert [found["incidents"][key]["verdict"] for key in found["order"]["incidents"]] == verdicts
    assert lanes is None or set(found["lanes"]) == lanes
    one_by_one = get(url, f"/api/v1/incidents?{query}").json
    counted = sum((row["fold"] or {"count": 1})["count"] for row in found["incidents"].values())
    assert counted + found["order"]["more_incidents"] == one_by_one["count"], "each of them is in a row"
    assert found["order"]["choices"] == one_by_one["choices"], "a filter hides no choice"


def causes(found: dict[str, Any]) -> list[str]:
    return [as_text(parts, now_ms()) for parts in found["rows"]]


def test_the_causes_in_words_are_those_beside_the_headline(storm: tuple[PageWorld, str]) -> None:
    found = picture(storm[0])["order"]["causes"]
    events, stuck, late = causes(found)
    assert re.fullmatch(
        r"1,000 partitions of events behind 1,000 producers for at least \d+ min \d+ s: hanging; no owner is known",
        events,
    )
    assert stuck.startswith("orders-11 and 1 more behind ledger-eos-7f3c2a10-3 for at least ")
    assert late.endswith(": late; Data platform")
    assert (found["incidents"], found["more"]) == (STORM + 2, 0), "without the early warning, and that of the headline"


def test_the_causes_of_a_team_say_no_owner_and_are_counted_beyond_the_limit(storm: tuple[PageWorld, str]) -> None:
    of_team = get(storm[1], "/api/v1/incidents?owner=data").json["causes"]
    assert [one.rpartition(": ")[2] for one in causes(of_team)] == ["late"]
    assert get(storm[1], "/api/v1/incidents?state=recent").json["causes"] is None
    world = PageWorld()
    for number in range(CAUSES + 3):
        world.tell(an_incident(f"hang-{number}", 9, topic=f"t{number}", transactional_id="x" * (number + 1)))
    world.batch()
    found = picture(world)["order"]["causes"]
    assert (len(found["rows"]), found["more"]) == (CAUSES, 2)


def test_a_cause_that_holds_no_partition_has_its_holder() -> None:
    world = PageWorld()
    for name, age_s in (("a", 300), ("b", 200)):
        world.tell(an_incident(name, age_s, **{**WHOLE, "verdict": "late", "transactional_id": f"job-{name}-x"}))
    world.batch()
    (other,) = causes(picture(world)["order"]["causes"])
    assert other.startswith("no partition behind job-b-x for at least 3 min 2")
