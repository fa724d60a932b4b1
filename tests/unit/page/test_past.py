"""The past on the page: a strip of the day, a week in numbers, its files, and where it is on a page of clusters."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from support.clusters_world import five_clusters
from support.heartbeats import a_heartbeat
from support.incidents import a_life, id_of
from support.page_client import get
from support.page_world import CLUSTER, HANG, PageWorld, an_incident, now_ms
from txnwatch.owners.owner_table import owners_of
from txnwatch.page.past import DAYS, LISTED, ROWS, SLOTS, day_of, day_strip, past_of
from txnwatch.page.shown_past import STEP_MS, ShownPast
from txnwatch.sinks.delivery.event_log import SkippedRecords
from txnwatch.state.incidents.past_incidents import IncidentHistory
from txnwatch.state.model.errors import BadEventError, SkipReason
from txnwatch.state.model.incident import EndedBy, EndKind, IncidentEvent, Resolution, resolved
from txnwatch.state.model.ownership import NO_OWNERS
from txnwatch.state.model.values import DAY_MS, WEEK_MS, DurationMs, TimestampMs
from txnwatch.watch.listening import EventListener

END = Resolution(how=EndKind.ABORTED, by=EndedBy.ADMINISTRATOR, at_ms=now_ms())


def ended(name: str, opened_ago_ms: int, ended_ago_ms: int, **changes: Any) -> IncidentEvent:
    event = an_incident(name, opened_ago_ms / 1000, age_ms=0, **{**HANG, **changes})
    return resolved(event, TimestampMs(now_ms() - ended_ago_ms), END)


def a_week() -> PageWorld:
    """Twenty-five ids with an incident each, two of one id, and one that was opened before and is still open."""
    world = PageWorld()
    for number in range(25):
        world.tell(ended(f"id-{number}", DAY_MS, DAY_MS - 60_000, transactional_id=f"id-{number}", partition=number))
    world.tell(ended("again", 2 * DAY_MS, 2 * DAY_MS - 90_000, transactional_id="id-3"))
    world.tell(an_incident("old", 9 * DAY_MS / 1000, age_ms=0, **HANG))
    world.past.take(BadEventError(SkipReason.INVALID, "x"))
    world.batch()
    return world


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    with a_week().served() as url:
        yield url


def facet(answer: dict[str, Any], by: str) -> dict[str, Any]:
    (found,) = [one for one in answer["facets"] if one["by"] == by]
    return dict(found)


def test_a_week_in_numbers(served: str) -> None:
    found = get(served, "/api/v1/history").json["answer"]
    assert found["headline"].startswith("27 incidents since ")
    assert "1 opened before, 1 still open" in found["headline"]
    assert found["remarks"] == ["1 record was no valid event (invalid)."]
    ids = facet(found, "transactional_id")
    assert (ids["rows"][0]["name"], ids["rows"][0]["incidents"]) == ("id-3", 2)
    assert (len(ids["rows"]), ids["more"]) == (ROWS, 26 - ROWS)
    assert {one["name"]: one["incidents"] for one in facet(found, "owner")["rows"]} == {"none": 26, "checkout": 1}
    last = found["incidents"][-1]
    assert (last["id"], last["opened_before"], last["ended_ms"], last["how"]) == (
        id_of("old"),
        True,
        None,
        "still open",
    )


def test_a_day_is_a_part_of_it(served: str) -> None:
    found = get(served, "/api/v1/history?days=2").json["answer"]
    assert sum(one["incidents"] for one in facet(found, "day")["rows"]) == 27 - 1 + 1
    assert get(served, "/api/v1/history?days=32").status == 400
    assert get(served, "/api/v1/history?days=0").status == 400


def test_its_files(served: str) -> None:
    csv = get(served, "/api/v1/history.csv")
    assert (csv.status, len(csv.text.splitlines())) == (200, 28)
    assert csv.headers["Content-Disposition"] == 'attachment; filename="txnwatch-history.csv"'
    assert get(served, "/api/v1/history.csv?by=owner").text.splitlines()[1].startswith("owner,none,26,")
    text = get(served, "/api/v1/history.md")
    assert text.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert "| `checkout` | 1 | 1 | 1 |" in text.text
    assert get(served, "/history", Accept="text/plain").text.startswith(f"### Incidents of `{CLUSTER}`")
    for wrong in ("/api/v1/history.csv?by=nothing", "/api/v1/history.pdf"):
        assert get(served, wrong).status == 400


def test_before_the_topic_is_read_it_says_so() -> None:
    world = PageWorld()
    world.store.history = None
    with world.served() as url:
        assert get(url, "/api/v1/history").json["answer"] == {"state": "reading", "days": DAYS}
        assert get(url, "/api/v1/history.csv").status == 503
        assert "the history is on the page of a watcher" in get(url, "/history", Accept="text/plain").text
        assert get(url, "/api/v1/snapshot").json["picture"]["day"]["slots"] is None


def test_a_page_of_clusters_leads_to_the_watcher() -> None:
    with five_clusters().served() as url:
        assert get(url, "/c/PAYMENTS-EU/api/v1/history").json["answer"]["state"] == "elsewhere"


NOW_MS = TimestampMs(1_764_000_000_000 // STEP_MS * STEP_MS + 60_000)


def strip(*events: IncidentEvent) -> list[list[int]]:
    history = IncidentHistory(NO_OWNERS)
    for one in events:
        history.take(one)
    slots: list[list[int]] = day_strip(history.incidents, CLUSTER, NOW_MS)["slots"]
    return slots


def event(name: str, since_ms: int, ended_ms: int | None = None, **changes: Any) -> IncidentEvent:
    opened = replace(an_incident(name, 0, **{**HANG, **changes}), time_ms=TimestampMs(since_ms), age_ms=DurationMs(0))
    return opened if ended_ms is None else resolved(opened, TimestampMs(ended_ms), END)


def test_the_strip_has_what_was_open_in_each_quarter_of_an_hour() -> None:
    first = NOW_MS // STEP_MS * STEP_MS
    low = event("b", first - 2 * STEP_MS, first - STEP_MS, severity="info")
    assert strip(event("a", first - STEP_MS + 5), low) == [
        [SLOTS - 3, 1, 0],
        [SLOTS - 2, 2, 2],
        [SLOTS - 1, 1, 2],
    ]


def test_the_strip_begins_with_the_day_and_ends_now() -> None:
    old = event("old", NOW_MS - 3 * DAY_MS)
    assert [one[0] for one in strip(old)] == list(range(SLOTS))
    assert strip(event("gone", NOW_MS - 3 * DAY_MS, NOW_MS - 2 * DAY_MS)) == []
    assert strip(event("ahead", NOW_MS + DAY_MS)) == strip(event("elsewhere", NOW_MS, cluster_id="other")) == []
    assert strip() == []


def test_the_strip_is_not_made_again_while_a_storm_goes_on() -> None:
    history = IncidentHistory(NO_OWNERS)
    past = ShownPast("topic", history)
    world = PageWorld()
    world.store.history = past

    def day(at_ms: int) -> Any:
        return day_of(world.store, TimestampMs(at_ms))

    first = day(NOW_MS)
    history.take(event("a", NOW_MS - 5))
    assert day(NOW_MS + 500) is first
    assert day(NOW_MS + 2_500)["opened"] == 1
    again = day(NOW_MS + 9_000)
    assert day(NOW_MS + 60_000) is again, "nothing has changed"
    assert day(NOW_MS + STEP_MS)["from_ms"] == again["from_ms"] + STEP_MS


def test_the_reader_of_the_watch_fills_it_and_forgets_what_is_old() -> None:
    listener = EventListener(SkippedRecords(lambda _: None, now_ms), history=IncidentHistory(NO_OWNERS))
    bad = BadEventError(SkipReason.INVALID, "x", id_of("bad"))
    records = [a_heartbeat(), bad, *a_life("a")]
    assert len(list(listener.events_of(records))) == 4
    assert listener.history is not None
    assert (len(listener.history), listener.history.skipped) == (1, {SkipReason.INVALID: 1})
    last = a_life("a")[-1].time_ms
    listener.remove_expired_heartbeats(DurationMs(WEEK_MS), TimestampMs(last + WEEK_MS + DAY_MS), lambda _: None)
    assert len(listener.history) == 1
    later = TimestampMs(last + WEEK_MS + DAY_MS + 600_001)
    listener.remove_expired_heartbeats(DurationMs(WEEK_MS), later, lambda _: None)
    assert len(listener.history) == 0


def test_a_storm_has_a_bound_in_memory() -> None:
    """100,000 incidents of as many ids: 55 MiB, 0.14 s for the strip and 3.3 s for the view, on a busy machine."""
    table = owners_of({"owner": [{"team": "loader", "transactional_ids": ["loader-*"]}]}, "the test")
    history = IncidentHistory(table)
    template = ended("storm", 3_600_000, 60_000)
    tracemalloc.start()
    for number in range(5_000):
        history.take(replace(template, incident_id=f"{number:032x}", transactional_id=f"loader-{number}"))
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    world = PageWorld()
    world.store.history = ShownPast("topic", history)
    found = past_of(world.store, DAYS, now_ms())
    assert found["more"] == 5_000 - LISTED
    assert size < 5_000 * 800
