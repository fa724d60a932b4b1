"""What the watcher does not know is said to be not known, with what to type; never that nothing is wrong there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.clusters_world import facts_of_world
from support.page_client import get
from support.page_world import OWNERS, PageWorld, a_busy_cluster, an_open
from txnwatch.page.live_picture import encode
from txnwatch.page.watcher_facts import decoded
from txnwatch.state.model.values import Offset, TopicPartition

EXPLAIN = "txnwatch explain --topic {} --partition {} --bootstrap-server kafka-1:9092"


@pytest.fixture
def busy() -> Iterator[tuple[PageWorld, str]]:
    world = a_busy_cluster()
    world.topics = {"orders": 20, "payments": 3, "payments-eu": 2}
    world.batch()
    with world.served() as url:
        yield world, url


def partition(url: str, place: str) -> dict[str, Any]:
    answer: dict[str, Any] = get(url, f"/api/v1/partitions/{place}").json["answer"]
    return answer


@pytest.mark.parametrize(("place", "known"), [("orders/99", 20), ("nosuchtopic/0", 0), ("payments/3", 3)])
def test_a_partition_that_is_not_in_the_list_is_not_watched(
    busy: tuple[PageWorld, str], place: str, known: int
) -> None:
    found = partition(busy[1], place)
    assert (found["is_watched"], found["partitions_watched"]) == (False, known)
    assert found["look"].startswith(EXPLAIN.format(*place.split("/")))


@pytest.mark.parametrize("place", ["orders/19", "payments/0"])
def test_a_partition_in_the_list_is_watched(busy: tuple[PageWorld, str], place: str) -> None:
    found = partition(busy[1], place)
    assert (found["is_watched"], found["look"]) == (True, None)


def test_without_the_list_it_is_not_known(busy: tuple[PageWorld, str]) -> None:
    world, url = busy
    world.topics = None
    world.batch()
    found = partition(url, "orders/19")
    assert (found["is_watched"], found["partitions_watched"]) == (None, None)
    assert found["look"].startswith(EXPLAIN.format("orders", 19))
    assert partition(url, "payments/0")["is_watched"] is True, "something is open there"


def test_a_partition_that_is_newer_than_the_list_is_watched_if_it_is_read(busy: tuple[PageWorld, str]) -> None:
    world, url = busy
    world.ends[TopicPartition("orders", 99)] = Offset(5)
    world.open.append(an_open(1, "x", 60, ("brandnew", 0, 5)))
    world.batch()
    get(url, "/api/v1/status")
    assert partition(url, "brandnew/0")["is_watched"] is True
    assert partition(url, "orders/99")["is_watched"] is True


@pytest.mark.parametrize("path", ["ids?name=orders-99", "ids?name=no-such-id"])
def test_an_unknown_id_has_the_command_that_asks_the_brokers(busy: tuple[PageWorld, str], path: str) -> None:
    found = get(busy[1], f"/api/v1/{path}&missing=null").json
    name = path.rpartition("=")[2]
    assert found["answer"] is None
    assert found["look"].startswith(f"txnwatch explain --transactional-id {name} --bootstrap-server kafka-1:9092")


def find(url: str, text: str) -> Any:
    return get(url, f"/api/v1/find?name={text}&missing=null").json


def test_what_looks_like_a_partition_and_is_none_is_not_found(busy: tuple[PageWorld, str]) -> None:
    found = find(busy[1], "orders-99")
    assert found["answer"] is None
    assert found["look"].startswith(EXPLAIN.format("orders", 99))


def test_what_is_no_partition_is_asked_for_as_an_id(busy: tuple[PageWorld, str]) -> None:
    assert find(busy[1], "nothing").get("look").startswith("txnwatch explain --transactional-id nothing ")


@pytest.mark.parametrize(
    ("text", "kind", "address"),
    [
        ("orders", "topic", "/incidents?topic=orders"),
        ("payments-eu", "topic", "/incidents?topic=payments-eu"),
        ("eos-7f3c", "transactional id", "/producer/7102"),
        ("CHECKOUT-9", "transactional id", "/producer/4180"),
        ("scoring", "group", "/incident/"),
        ("data plat", "owner", "/incidents?owner=data"),
        ("payments-0", "partition", "/partition/payments/0"),
    ],
)
def test_parts_of_names_are_found(busy: tuple[PageWorld, str], text: str, kind: str, address: str) -> None:
    answer = find(busy[1], text.replace(" ", "%20"))["answer"]
    assert any(one["kind"] == kind and one["address"].startswith(address) for one in answer["matches"])


def test_an_incident_is_found_by_what_an_alert_has_of_it(busy: tuple[PageWorld, str]) -> None:
    world, url = busy
    wanted = world.incidents[0].incident_id
    for pasted in (wanted, wanted[:12], f"http%3A%2F%2Fwatch%3A9464%2Fincident%2F{wanted}", f"{wanted}-3"):
        assert find(url, pasted)["answer"]["address"] == f"/incident/{wanted}"


def test_several_matches_have_no_single_address(busy: tuple[PageWorld, str]) -> None:
    answer = find(busy[1], "check")["answer"]
    assert answer["address"] is None
    assert {one["kind"] for one in answer["matches"]} == {"owner", "transactional id"}
    assert answer["more"] == 0


def test_the_list_of_topics_is_told_to_a_page_of_several_clusters() -> None:
    world = a_busy_cluster()
    world.topics = {"orders": 20}
    world.batch()
    assert decoded(encode(facts_of_world(world, "EU", "w"))).known(OWNERS).topics == {"orders": 20}
