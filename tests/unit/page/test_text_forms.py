"""Each view as text, as curl gets it: the sentence first, then what the view of the browser has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.clusters_world import ClustersWorld, five_clusters, with_a_hang
from support.page_client import get
from support.page_world import PageWorld, a_busy_cluster, an_incident, now_ms
from txnwatch.page.text_forms import FORMS
from txnwatch.state.model.incident import EndedBy, EndKind, Resolution, resolved

HANG_ROW = "HANGING  payments-0  behind checkout-7  for 4 min 1"
COMMAND = "txnwatch abort --topic payments --partition 0 --start-offset 18210442"


@pytest.fixture
def busy() -> Iterator[tuple[PageWorld, str]]:
    world = a_busy_cluster()
    with world.served() as url:
        yield world, url


def hang_of(world: PageWorld) -> str:
    return next(one.incident_id for one in world.incidents if one.verdict == "hanging")


FORMS_OF_VIEWS = (
    ("/", 200, HANG_ROW, COMMAND, "more: /incident/{id}"),
    ("/?owner=data", 200, "LATE  orders-4  behind dwh-orders-4-1187", "call Data platform, +49 30 1234"),
    ("/?owner=risk", 200, "No incident like this is open."),
    ("/incidents?verdict=late", 200, "1 open incident", "LATE  orders-4"),
    ("/incidents?limit=1", 200, "4 open incidents, from 1", "and 3 more: /incidents?offset=1"),
    ("/incidents?limit=1&offset=3", 200, "4 open incidents, from 4", "LONG RUNNING"),
    ("/incident/{id}", 200, HANG_ROW, COMMAND, "if you end it: refund-2", "how it was proven", "fresh read:"),
    ("/incident/{none}", 404, "No incident with this id is known here.", "txnwatch events --incident {none}"),
    ("/partition/payments/0", 200, "payments-0: 1 incident", HANG_ROW, "18,257,901  refund-2", "really 48,112"),
    ("/partition/audit/0", 200, "audit-0: No incident is open here", "5,120  connect-audit-0"),
    ("/partition/orders/99", 200, "orders-99 is not watched, or does not exist.", "txnwatch explain --topic orders"),
    ("/partition/orders/x", 404, "This is not a partition"),
    ("/id/checkout-7", 200, "producer ids: 4021", "call Checkout, #checkout-oncall", HANG_ROW, "/incident/{id}"),
    ("/id?name=checkout-7", 200, "producer ids: 4021"),
    ("/id/no-such-id", 404, "Nothing is known under this id", "txnwatch explain --transactional-id no-such-id"),
    ("/producer/9001", 200, "sessionizer-3", "Ongoing, open for 41 s: clickstream-17 from 99,000,100"),
    ("/producer/x", 404, "Nothing is known under this id"),
    ("/partitions", 200, "payments-0      checkout-7             hanging ", "48,112 hidden"),
    ("/open", 200, "dwh-orders-4-1187 ", "and 9,862 more"),
    ("/ended", 200, "ended within a day", "HANGING  old-0  behind over-7 ", "aborted by txnwatch, after 1 min"),
    ("/find?name=checkout-7", 200, "transactional id  checkout-7  /producer/4021"),
    ("/find?name=alert%20{id}%20fired", 200, "incident  {id}  /incident/{id}"),
    ("/find?name=none", 404, "Nothing that is known here", "txnwatch explain --transactional-id none"),
    ("/roots", 200, "log partition __transaction_state-23", "fraud-scoring  stopped  Risk #risk"),
    ("/watcher", 200, "scanned partitions                900"),
    ("/audit", 200, "none was made yet"),
    ("/audit/marker-skipped", 200, "none was made yet"),
)


@pytest.mark.parametrize(("path", "status", "expected"), [(path, of, rest) for path, of, *rest in FORMS_OF_VIEWS])
def test_each_view_has_its_text(busy: tuple[PageWorld, str], path: str, status: int, expected: list[str]) -> None:
    world, url = busy
    names = {"id": hang_of(world), "none": "0" * 32}
    old = an_incident("old", 90, topic="old", partition=0, transactional_id="over-7", producer_id=66)
    world.tell(resolved(old, now_ms(), Resolution(how=EndKind.ABORTED, by=EndedBy.TXNWATCH, at_ms=now_ms())))
    world.batch()
    answer = get(url, path.format(**names), Accept="*/*")
    assert answer.status == status
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.text.startswith("4 partitions stand still. payments-0 for at least ")
    assert [one for one in expected if one.format(**names) not in answer.text] == []
    assert all(line.isprintable() for line in answer.text.splitlines())


def test_each_form_is_tested() -> None:
    begins = {path.split("?")[0] for path, *_ in FORMS_OF_VIEWS}
    assert [path for path in FORMS if not any(one.startswith(path.partition("{")[0]) for one in begins)] == []


def test_a_wall_is_one_sentence(busy: tuple[PageWorld, str]) -> None:
    assert len(get(busy[1], "/?wall=1").text.splitlines()) == 2


@pytest.mark.parametrize("path", ["/id/%1b%5b31m", "/find?name=%1b%5b31m%0a", "/incident/%1b", "/audit/%1b"])
def test_what_is_asked_for_is_no_control_sequence(busy: tuple[PageWorld, str], path: str) -> None:
    assert all(line.isprintable() for line in get(busy[1], path).text.splitlines())


def test_the_addresses_of_a_cluster_begin_with_its_own() -> None:
    with ClustersWorld([with_a_hang("eu"), with_a_hang("us")]).served() as url:
        assert "more: /c/EU/incident/" in get(url, "/c/EU/").text
        assert "/c/EU/producer/4021" in get(url, "/c/EU/find?name=checkout-7").text


def test_the_list_of_clusters_finds_and_filters_as_text() -> None:
    with five_clusters().served() as url:
        assert "payments-eu: 1 partition stands still." in get(url, "/").text
        assert "checkout-7 on payments-eu  /c/PAYMENTS-EU/producer/4021" in get(url, "/find?name=checkout-7").text
        assert "Nothing that is known here" in get(url, "/find?name=no-such").text
        team = get(url, "/?owner=checkout").text
        assert f"on PAYMENTS-EU\n{HANG_ROW}" in team
        assert "more: /c/PAYMENTS-EU/incident/" in team
        assert "HANGING" not in get(url, "/?owner=risk").text
