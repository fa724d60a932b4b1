"""Several clusters side by side: their order, the sentence about all, and the page of each below its id."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from support.clusters_world import ClustersWorld, OneWorld, ToldWatcher, five_clusters, watched, with_a_hang
from support.page_client import a_stream, get
from support.page_world import HANG, PageWorld, an_incident, now_ms
from txnwatch.page.clusters import OneCluster, clusters_picture
from txnwatch.page.truth import PageState
from txnwatch.page.words import as_text
from txnwatch.state.model.values import CoordinatorAccess, TimestampMs

BROWSER = "text/html,application/xhtml+xml"
FIRST = '<script type="application/json" id="first">'
PAYMENTS = '"cluster":"PAYMENTS-EU"'
BOTH = "payments-eu: 1 partition stands still. metering-eu is not watched. Its last evaluation is 6 min 0"


@pytest.fixture
def five() -> Iterator[str]:
    with five_clusters().served() as url:
        yield url


def test_the_worst_is_first_and_unknown_comes_before_clear(five: str) -> None:
    rows = get(five, "/api/v1/clusters").json["rows"]
    assert [(row["name"], row["state"]) for row in rows] == [
        ("payments-eu", "incident"),
        ("metering-eu", "unknown"),
        ("orders-us", "partial"),
        ("payments-us", "clear"),
        ("telemetry", "clear"),
    ]
    assert [row["key"] for row in rows][:2] == ["PAYMENTS-EU", "METERING-EU"]
    assert [row["incidents"] for row in rows] == [1, None, 0, 0, 0]
    assert as_text(rows[3]["text"], now_ms()) == "All clear on 1,906 partitions."
    assert as_text(rows[1]["text"], now_ms()).startswith("Unknown. The last evaluated barrier is 6 min 0")


@pytest.mark.parametrize("ahead_ms", [0, 3_600_000])
def test_a_filter_finds_incidents_in_all_clusters_with_their_ages(ahead_ms: int) -> None:
    hung = with_a_hang("eu")
    hung.watcher.ahead_ms = ahead_ms
    with ClustersWorld([watched("us"), hung.show()]).served() as url:
        found = get(url, "/api/v1/incidents?owner=checkout").json
        assert [(row["cluster"], row["verdict"]) for row in found["rows"]] == [("EU", "hanging")]
        assert 200_000 < now_ms() - found["rows"][0]["since_ms"] - ahead_ms < 400_000
        assert (found["count"], found["counts"]) == (1, {"US": 0, "EU": 1})
        assert get(url, "/api/v1/incidents?owner=data").json["counts"] == {"US": 0, "EU": 0}
        assert get(url, "/api/v1/snapshot").json["picture"]["order"]["choices"]["owner"] == [["checkout", 1]]


def test_the_sentence_names_the_worst_and_each_one_that_is_not_watched(five: str) -> None:
    status = get(five, "/api/v1/status").json
    assert as_text(status["headline"], now_ms()).startswith(BOTH)
    assert status["detail"] == ["5 clusters · 2 clear · 1 with incidents · 2 not fully known"]
    assert (status["state"], status["tone"], status["open_incidents"]) == ("incident", "critical", 1)


def headline(*clusters: OneWorld) -> str:
    world = ClustersWorld(list(clusters))
    with world.served() as url:
        return as_text(get(url, "/api/v1/status").json["headline"], now_ms())


def broken(name: str) -> OneWorld:
    return OneWorld(name).show()


def test_the_sentence_without_an_incident() -> None:
    late = [watched(name, age_s=90) for name in ("a", "b", "c")]
    assert headline(watched("eu"), watched("us")) == "All 2 clusters are clear."
    assert headline(watched("eu"), *late) == "a, b and c are not watched."
    assert headline(watched("eu", access=CoordinatorAccess.API)) == (
        "eu: No hang. In the view api, stuck_prepare, late, long_running are not detected."
    )
    found = headline(broken("us"), *late[:1])
    assert re.fullmatch(r"a is not watched\. Its last evaluation is 1 min 3\d s old\. us is not known\.", found)
    many = headline(*(watched(f"n{number}", age_s=90) for number in range(20)))
    assert many.endswith("n19 and 8 more are not watched.") or " and 8 more are not watched." in many


@pytest.mark.parametrize("state", PageState)
def test_the_state_of_all_is_that_of_the_worst(state: PageState) -> None:
    def one(name: str, of: PageState) -> OneCluster:
        watched_now = {"scanned": 1, "census": 0}
        status = {"state": of, "why": None, "tone": of, "headline": ["x"], "open_incidents": 0, "judged_ms": 1}
        return OneCluster(name, name, name, {**status, "partitions": watched_now, "exposures": None})

    found = clusters_picture([one("a", PageState.CLEAR), one("b", state)], now_ms())
    assert found["status"]["state"] is state
    assert found["order"]["clusters"][0] == ("a" if state is PageState.CLEAR else "b")


def test_each_cluster_has_its_own_page_and_api(five: str) -> None:
    shells = [get(five, path, Accept=BROWSER).text.partition(FIRST) for path in ("/c/PAYMENTS-EU/", "/")]
    assert shells[0][0] == shells[1][0], "one shell"
    assert [PAYMENTS in first for _, _, first in shells] == [True, False], "each with its own picture"
    hang = get(five, "/c/PAYMENTS-EU/api/v1/snapshot").json
    assert (hang["cluster"], hang["name"], hang["picture"]["status"]["state"]) == (
        "PAYMENTS-EU",
        "payments-eu",
        "incident",
    )
    assert get(five, "/c/TELEMETRY/api/v1/status").json["state"] == "clear"
    incident = hang["picture"]["order"]["incidents"][0]
    assert get(five, f"/c/PAYMENTS-EU/api/v1/incidents/{incident}").json["answer"]["id"] == incident
    assert get(five, f"/c/TELEMETRY/api/v1/incidents/{incident}").status == 404
    assert get(five, f"/c/PAYMENTS-EU/incident/{incident}", Accept=BROWSER).status == 200
    with a_stream(five, path="/c/PAYMENTS-EU/api/v1/stream") as stream:
        assert stream.until("snapshot")["picture"]["lanes"]["payments-0"]["holder"]["name"] == "checkout-7"


@pytest.mark.parametrize("path", ["/c/none/", "/c/none/api/v1/status", "/c/none", "/incidents", "/c/..%2f/"])
def test_what_is_no_cluster_is_not_found(five: str, path: str) -> None:
    assert get(five, path).status == 404


def test_a_cluster_is_found_by_its_name_as_well(five: str) -> None:
    assert get(five, "/c/telemetry/api/v1/status").json["state"] == "clear"
    assert get(five, "/c/telemetry").headers["Location"] == "/c/TELEMETRY/"


def test_one_cluster_alone_is_the_first_page() -> None:
    with ClustersWorld([with_a_hang("eu")]).served() as url:
        answer = get(url, "/", Accept=BROWSER)
        assert (answer.status, answer.headers["Location"]) == (307, "/c/EU/")
        assert get(url, "/c/EU/").text.startswith("1 partition stands still. payments-0")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/?wall=1&owner=ledger", "/c/EU/?wall=1&owner=ledger"),
        ("/find?name=a%2Fb", "/c/EU/find?name=a%2Fb"),
        ("/c/eu?owner=%26", "/c/EU/?owner=%26"),
    ],
)
def test_the_way_to_the_only_cluster_keeps_what_was_asked(path: str, expected: str) -> None:
    with ClustersWorld([with_a_hang("eu")]).served() as url:
        assert get(url, path).headers["Location"] == expected


def test_a_cluster_without_an_answer_has_its_name_as_address() -> None:
    silent = OneWorld("eu")
    with ClustersWorld([silent, watched("us")]).served() as url:
        rows = get(url, "/api/v1/clusters").json["rows"]
        assert [(row["key"], row["cluster_id"], row["state"]) for row in rows] == [
            ("eu", None, "unknown"),
            ("US", "US", "clear"),
        ]
        assert get(url, "/c/eu/api/v1/status").json["state"] == "unknown"


def test_two_entries_for_one_cluster_are_two_lines() -> None:
    first, second = watched("eu"), OneWorld("again", [ToldWatcher("EU")])
    second.watcher.world = first.watcher.world
    second.show()
    with ClustersWorld([first, second]).served() as url:
        assert [row["key"] for row in get(url, "/api/v1/clusters").json["rows"]] == ["again", "EU"]


def test_the_times_of_a_watcher_whose_clock_differs_are_those_of_this_process() -> None:
    world = with_a_hang("eu")
    assert world.watcher.world is not None
    world.watcher.world.incidents = [an_incident("hang", 252 - 3_600, **HANG)]  # by the clock of its watcher
    world.watcher.ahead_ms = 3_600_000
    with ClustersWorld([world.show(), watched("us")]).served() as url:
        status = get(url, "/c/EU/api/v1/snapshot").json
        (row, _) = get(url, "/api/v1/clusters").json["rows"]
        assert status["server_ms"] - now_ms() > 3_590_000, "a page of one cluster has the clock of its watcher"
        assert abs(row["judged_ms"] - now_ms()) < 5_000
        assert " for at least 4 min" in as_text(status["picture"]["status"]["headline"], status["server_ms"])
        assert row["state"] == "incident"


@pytest.mark.parametrize(("ahead_ms", "shift_ms"), [(-300, 0), (90, 0), (61_200, 61_000)])
def test_a_clock_that_differs_by_less_than_a_second_changes_no_line(ahead_ms: int, shift_ms: int) -> None:
    world = watched("eu")
    world.site.now_ms = lambda: TimestampMs(now_ms() + ahead_ms)
    with ClustersWorld([world, watched("us")]).served() as url:
        rows = {row["key"]: row for row in get(url, "/api/v1/clusters").json["rows"]}
    assert rows["EU"]["judged_ms"] == (world.store.seen.judged_ms or 0) - shift_ms


@pytest.mark.parametrize("told", ["../../metrics", "a/b", "..", "evil?x#y", "//evil.example", "%2e%2e", "x" * 201])
def test_an_id_that_is_no_part_of_a_path_is_no_address(told: str) -> None:
    world = OneWorld("eu", [ToldWatcher(told, world=PageWorld())]).show()
    with ClustersWorld([world]).served() as url:
        assert get(url, "/").headers["Location"] == "/c/eu/"
        assert get(url, "/api/v1/clusters").json["rows"][0]["key"] == "eu"
        assert get(url, "/c/eu/api/v1/status").json["state"] == "clear"


def test_curl_gets_a_line_for_each_cluster(five: str) -> None:
    lines = get(five, "/").text.splitlines()
    assert lines[0].startswith(BOTH)
    assert lines[3].startswith("INCIDENT  payments-eu  1 partition stands still. payments-0 for at least 4 min")
    assert lines[3].endswith("/c/PAYMENTS-EU/")
    assert "Nothing is known about 32 partitions: orders-1, orders-2, orders-3. The others are clear." in lines[5]


def test_the_list_changes_while_somebody_looks() -> None:
    world = ClustersWorld([watched("eu"), watched("us")])
    with world.served() as url, a_stream(url) as stream:
        assert stream.until("snapshot")["picture"]["status"]["state"] == "clear"
        world.clusters[1].watcher.world = with_a_hang("us").watcher.world
        world.clusters[1].show()
        while (delta := stream.until("delta")["set"]).get("clusters", {}).get("US") is None:
            pass
        assert delta["clusters"]["US"]["state"] == "incident"
        assert delta["order"]["clusters"] == ["US", "EU"]


@pytest.mark.parametrize(
    "path", ["/", "/api/v1/clusters", "/c/TELEMETRY/", "/c/TELEMETRY/api/v1/snapshot", "/c/TELEMETRY"]
)
def test_another_host_gets_nothing(five: str, path: str) -> None:
    assert get(five, path, Host="evil.example").status == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/", "/api/v1/clusters", "/c/TELEMETRY/", "/c/TELEMETRY/api/v1/stream"])
def test_nothing_can_be_written(five: str, path: str, method: str) -> None:
    assert get(five, path, method=method).status == 405


def test_it_ends_at_once_and_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    with ExitStack() as looking:
        with five_clusters().served() as url:
            paths = ("/api/v1/stream", "/c/TELEMETRY/api/v1/stream")
            streams = [looking.enter_context(a_stream(url, path=path)) for path in paths]
            for stream in streams:
                stream.until("snapshot")
            since = time.monotonic()
        assert time.monotonic() - since < 1.0
        assert [stream.until("bye") for stream in streams] == [{"why": "shutdown"}] * 2
    assert "Traceback" not in capfd.readouterr().err


def test_what_is_looked_for_is_found_in_all_clusters(five: str) -> None:
    found = get(five, "/api/v1/find?name=checkout-7").json["answer"]
    assert found["address"] == "/c/PAYMENTS-EU/producer/4021"
    assert found["matches"][0]["text"] == "checkout-7 on payments-eu"
    several = get(five, "/api/v1/find?name=orders").json["answer"]
    assert several["address"] is None
    assert {one["address"].split("/")[2] for one in several["matches"]} >= {"PAYMENTS-EU", "ORDERS-US"}
    assert get(five, "/api/v1/find?name=nothing-of-this").json["answer"] is None
    assert get(five, "/find?name=orders", Accept=BROWSER).status == 200
