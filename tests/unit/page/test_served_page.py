"""The page over HTTP, as a browser, curl and a program get it, from the server that `run` has."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from support.page_client import HttpAnswer, get
from support.page_world import CLUSTER, PageWorld, a_busy_cluster, a_calm_cluster, a_storm, an_incident, an_open, now_ms
from txnwatch.page.site_files import is_own_host
from txnwatch.state.model.incident import EndedBy, EndKind, Resolution, WaitingGroup, resolved
from txnwatch.state.model.values import TimestampMs

BROWSER = "text/html,application/xhtml+xml"


@pytest.fixture
def busy() -> Iterator[tuple[PageWorld, str]]:
    world = a_busy_cluster()
    with world.served() as url:
        yield world, url


def incident_of(world: PageWorld, verdict: str = "hanging") -> str:
    return next(one.incident_id for one in world.incidents if one.verdict == verdict)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/incidents",
        "/watcher",
        "/open",
        "/partitions",
        "/find?name=a",
        "/ended",
        "/incident/x",
        "/partition/payments/0",
        "/id/a",
        "/producer/7",
        "/history",
        "/roots",
        "/audit",
        "/audit/marker-skipped",
    ],
)
def test_every_address_of_the_page_has_the_shell(busy: tuple[PageWorld, str], path: str) -> None:
    answer = get(busy[1], path, Accept=BROWSER)
    assert answer.status == 200
    assert "Asking the watcher" in answer.text
    assert "style=" not in answer.text
    assert answer.headers["Set-Cookie"] is None


def test_the_shell_has_the_picture_of_now_and_no_text_ends_its_script(busy: tuple[PageWorld, str]) -> None:
    world, url = busy
    world.tell(an_incident("evil", 900, transactional_id="</script><!--<script>", producer_id=3))
    world.batch()
    shell = get(url, "/", Accept=BROWSER).text
    begin, _, rest = shell.partition('<script type="application/json" id="first">')
    first, end, after = rest.partition("</script>")
    assert "<" not in first
    assert (end, after.strip().split()) == ("</script>", ["</body>", "</html>"])
    message = json.loads(first)
    assert message["picture"]["status"]["state"] == "incident"
    assert any(row["holder"] == "</script><!--<script>" for row in message["picture"]["incidents"].values())
    assert begin.count("<script") == 2


def test_the_head_of_the_shell_does_not_wait_for_the_picture(busy: tuple[PageWorld, str]) -> None:
    world, url = busy
    is_due = threading.Event()
    made = world.site.live.refresh

    async def late() -> None:
        await asyncio.to_thread(is_due.wait, 10.0)
        await made()

    world.site.live.refresh = late  # type: ignore[method-assign]
    at = urlsplit(url)
    with closing(http.client.HTTPConnection(at.hostname or "", at.port, timeout=10.0)) as connection:
        connection.request("GET", "/", headers={"Accept": BROWSER})
        answer = connection.getresponse()
        head = b"".join(iter(answer.readline, b"<body>\n"))
        assert b"/page.js" in head
        is_due.set()
        assert b'"picture":' in answer.read()


def test_curl_gets_the_sentence_and_the_commands(busy: tuple[PageWorld, str]) -> None:
    answer = get(busy[1], "/", Accept="*/*")
    first, second, *rest = answer.text.splitlines()
    assert first.startswith("4 partitions stand still. payments-0 for at least ")
    assert "evaluated 0." in second
    assert any(line.startswith("  txnwatch abort --topic payments --partition 0") for line in rest)
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"


def test_the_text_has_who_is_hurt_what_is_hidden_and_since_when(busy: tuple[PageWorld, str]) -> None:
    text = get(busy[1], "/?format=text", Accept=BROWSER).text
    assert f" · {CLUSTER}, at 20" in text.splitlines()[1]
    assert " · to call: Checkout, Data platform · no owner is known of 1 · " in text.splitlines()[1]
    hang, stuck = text.split("\n\n")[1:3]
    assert "hidden from readers: 48,112 records\n" in hang
    assert "hurt: fraud-scoring, ledger-writer (stopped); audit-export (at risk)\n" in hang
    assert "call Checkout, #checkout-oncall" in hang
    assert "no owner is known" in stuck
    assert "hurt: groups are not looked for" in stuck


def test_the_text_of_a_storm_is_short() -> None:
    with a_storm(300).served() as url:
        text = get(url, "/").text
    assert "HANGING  300 incidents of events, on 300 partitions, for " in text
    assert "all of them: /incidents?verdict=hanging&" in text
    assert len(text.splitlines()) < 70


def test_text_for_a_terminal_has_no_control_characters(busy: tuple[PageWorld, str]) -> None:
    world, url = busy
    world.tell(an_incident("evil", 900, transactional_id="\x1b]0;evil\x07\u202e", producer_id=3))
    world.batch()
    text = get(url, "/").text
    assert "\\x1b]0;evil\\x07\\u202e" in text
    assert all(line.isprintable() for line in text.splitlines())


def test_the_resources_of_the_api(busy: tuple[PageWorld, str]) -> None:
    world, url = busy
    assert get(url, "/api/v1/status").json["state"] == "incident"
    snapshot = get(url, "/api/v1/snapshot")
    assert snapshot.json["picture"]["order"]["lanes"][0] == "payments-0"
    assert get(url, "/api/v1/snapshot", If_None_Match=snapshot.headers["ETag"]).status in {200, 304}
    assert len(get(url, "/api/v1/incidents").json["rows"]) == 4
    recent = get(url, "/api/v1/incidents?state=recent").json
    assert (recent["rows"], recent["count"], recent["more"]) == ([], 0, 0)
    found = get(url, f"/api/v1/incidents/{incident_of(world)}").json["answer"]
    assert [one["status"] for one in found["life"]] == ["opened", "updated"]
    assert found["next_holder"]["name"] == "refund-2"
    times = [one[listed] for one in found["proof"]["looks"] for listed in ("data_listed_ms", "log_listed_ms")]
    assert None not in times
    assert times == sorted(times), "both looks have their times"
    assert [one["name"] for one in found["waits"]["groups"]] == ["fraud-scoring", "ledger-writer", "audit-export"]
    partition = get(url, "/api/v1/partitions/payments/0").json["answer"]
    assert [one["name"] for one in partition["holders"]] == ["checkout-7", "refund-2", "checkout-9"]
    ends = [one["ends"] for one in partition["holders"]]
    assert ends[0].startswith("no: only the producer's next transaction")
    assert found["next_holder"]["ends"] == ends[1]
    assert ends[1].startswith("yes: if its client does not end it, its coordinator aborts it at its next scan")
    late = get(url, "/api/v1/partitions/orders/4").json["answer"]
    assert [one["verdict"] for one in late["incidents"]] == ["late"], "an incident about a transaction holds it, too"
    assert get(url, "/api/v1/producers/4021").json["answer"]["name"] == "checkout-7"
    assert get(url, "/api/v1/ids?name=checkout-7").json["answer"]["producer_ids"] == [4021]
    assert get(url, "/api/v1/open").json["answer"]["rows"][0]["name"] == "dwh-orders-4-1187"
    assert get(url, "/api/v1/series").json["columns"]["open"][-1] == 9_871


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("payments-0", "/partition/payments/0"),
        ("checkout-7", "/producer/4021"),
        ("4021", "/producer/4021"),
        ("fraud-scoring", "/incident/"),
        ("waits-for-offsets", "/incident/"),
        ("only-in-an-incident", "/producer/7777"),
        ("20261127", "/producer/7778"),  # an id that reads like a producer id
        ("7778", "/producer/7778"),
    ],
)
def test_what_is_looked_for_is_found(busy: tuple[PageWorld, str], text: str, address: str) -> None:
    world, _ = busy
    waiting = (WaitingGroup(group_id="waits-for-offsets", partitions=("payments-0",)),)
    world.tell(an_incident("one", 60, producer_id=7777, transactional_id="only-in-an-incident"))
    world.tell(an_incident("two", 60, producer_id=7778, transactional_id="20261127", waiting_groups=waiting))
    world.batch()
    found: str = get(busy[1], f"/api/v1/find?name={text}").json["answer"]["address"]
    assert found.startswith(address)


@pytest.mark.parametrize(
    "path",
    [
        *("/api/v1/incidents/none", "/api/v1/producers/1", "/api/v1/ids?name=none", "/api/v1/find?name=nothing"),
        *(f"/api/v1/find?name=t-{'0' * 5_000}", f"/api/v1/find?name=t-{'9' * 20}"),
        *("/api/v1/find?name=12345", "/api/v1/find?name=a%20b-1", "/api/v1/nothing"),
        *("/api/v1/partitions/a%20b/0", "/api/v1/partitions/payments/99999999999"),
        *(f"/api/v1/producers/{'9' * 5_000}", "/api/v1/producers/x", "/api/v1/partitions/payments/-1"),
    ],
)
def test_what_is_not_known_is_an_error_as_json(busy: tuple[PageWorld, str], path: str) -> None:
    answer = get(busy[1], path)
    assert answer.status == 404
    assert answer.json["error"].startswith("expected ")


@pytest.mark.parametrize(
    ("path", "status", "expected"),
    [
        ("/api/v1/incidents?limit=x", 400, "limit: expected a number from 1 to 200, found 'x'"),
        ("/api/v1/open?limit=0", 400, "limit: expected a number from 1 to 300, found '0'"),
        ("/api/v1/series?seconds=3601", 400, "seconds: expected a number from 1 to 3600, found '3601'"),
        ("/api/v1/open?limit=00000000019999", 400, "limit: expected a number from 1 to 300, found '00000000019999'"),
        ("/api/v1/incidents?state=old", 400, "state: expected open or recent, found 'old'"),
    ],
)
def test_a_wrong_query_is_an_error_as_json(busy: tuple[PageWorld, str], path: str, status: int, expected: str) -> None:
    answer = get(busy[1], path)
    assert (answer.status, answer.json) == (status, {"error": expected})


def test_only_get_is_answered(busy: tuple[PageWorld, str]) -> None:
    answer = get(busy[1], "/api/v1/status", method="POST")
    assert (answer.status, answer.json) == (405, {"error": "expected GET, found POST"})


def test_a_query_limits_the_rows(busy: tuple[PageWorld, str]) -> None:
    world, url = busy
    ended = [an_incident(f"ended-{number}", 60, producer_id=8_000 + number) for number in range(3)]
    for event in ended:
        world.tell(
            resolved(event, event.time_ms, Resolution(how=EndKind.COMMITTED, by=EndedBy.UNKNOWN, at_ms=event.time_ms))
        )
    world.batch()
    open_ones = get(url, "/api/v1/incidents?limit=1").json
    assert (len(open_ones["rows"]), open_ones["more"]) == (1, 3)
    recent = get(url, "/api/v1/incidents?state=recent&limit=2").json
    assert (len(recent["rows"]), recent["more"]) == (2, 1)
    assert get(url, "/api/v1/incidents?state=recent&owner=checkout").json["rows"] == []
    assert len(get(url, "/api/v1/open?limit=2").json["answer"]["rows"]) == 2


def test_if_nothing_is_known_no_command_writes(busy: tuple[PageWorld, str]) -> None:
    world, url = busy
    world.batch(TimestampMs(now_ms() - 60_000))
    answers = (get(url, "/").text, get(url, "/api/v1/incidents").text, get(url, "/api/v1/snapshot").text)
    for text in answers:
        assert "txnwatch explain --topic payments --partition 0" in text
        assert "Look again before you act." in text
        assert "txnwatch abort" not in text
        assert "Write the" not in text


@pytest.mark.parametrize("name", ["..", "%2e%2e", "a%00b", "%1b%5b31m", "x" * 14_000, "%E2%80%AE"])
def test_a_hostile_name_is_only_a_name(busy: tuple[PageWorld, str], name: str) -> None:
    assert get(busy[1], f"/api/v1/ids?name={name}").status == 404
    assert get(busy[1], "/").status == 200


def test_an_id_of_32000_characters_is_reached_by_its_producer_id() -> None:
    world = a_calm_cluster()
    world.open.append(an_open(77, "y" * 32_767, 60, ("payments", 1, 5)))
    world.batch()
    with world.served() as url:
        answer = get(url, "/api/v1/producers/77")
        assert answer.json["answer"]["length"] == 32_767
        assert len(answer.text) < 2_000


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/api/v1/snapshot", "/api/v1/stream", "/metrics"])
def test_nothing_can_be_written(busy: tuple[PageWorld, str], method: str, path: str) -> None:
    assert get(busy[1], path, method=method).status == 405


def policy(answer: HttpAnswer) -> str:
    return str(answer.headers["Content-Security-Policy"])


def test_every_answer_has_the_policy(busy: tuple[PageWorld, str]) -> None:
    for path in ("/", "/api/v1/status", "/metrics", "/-/healthy", "/nothing", "/static/x/page.js"):
        answer = get(busy[1], path)
        assert "default-src 'none'" in policy(answer), path
        assert "unsafe" not in policy(answer)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Access-Control-Allow-Origin"] is None


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        *(("127.0.0.1:9464", True), ("127.0.0.1", True), ("[::1]:9464", True), ("10.1.2.3:80", True)),
        *(("localhost:9464", True), ("LOCALHOST", True), ("watch.example", True), ("watch.example.:9464", True)),
        *(("evil.example", False), ("evil.example:9464", False), ("", False), ("127.0.0.1.evil.example", False)),
        *(("[::1].evil", False), ("localhost.evil", False), ("127.0.0.1:1@evil.example", False)),
    ],
)
def test_the_name_in_the_host_header_must_be_of_this_server(host: str, *, is_own: bool) -> None:
    assert is_own_host(host, {"localhost", "watch.example"}) is is_own


@pytest.mark.parametrize("path", ["/", "/api/v1/snapshot", "/api/v1/stream"])
def test_another_host_gets_nothing(busy: tuple[PageWorld, str], path: str) -> None:
    answer = get(busy[1], path, Host="evil.example")
    assert answer.status == 421
    assert "payments" not in answer.text


def test_a_file_of_the_page_is_kept_by_the_browser_for_ever(busy: tuple[PageWorld, str]) -> None:
    shell = get(busy[1], "/", Accept=BROWSER).text
    (path,) = [part for part in shell.split('"') if part.endswith("/page.js")]
    answer = get(busy[1], path)
    assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert answer.headers["Content-Type"] == "text/javascript; charset=utf-8"
    former = get(busy[1], "/static/0123456789abcdef/page.js")
    assert (former.status, former.headers["Cache-Control"]) == (404, "no-store")
