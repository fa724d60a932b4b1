"""What somebody types or pastes into the field is found, on the page of one cluster and of all clusters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from support.clusters_world import ClustersWorld, OneWorld, ToldWatcher, watched
from support.page_client import get
from support.page_world import PageWorld, a_busy_cluster

ID = "{id}"
FORMS_OF_FIND = (
    ("heckout-", "transactional id checkout-7"),
    ("CHECKOUT-7", "transactional id checkout-7"),
    ("4021", "producer 4021"),
    ("click", "topic clickstream"),
    ("payments-0", "partition payments-0"),
    ("fraud", "group fraud-scoring"),
    ("data plat", "owner Data platform"),
    ("data", "owner Data platform"),
    ("risk", "owner risk"),  # a team without an incident
    (ID, "incident {id}"),
    ("{id:.8}", "incident {id}"),
    ("[FIRING:1] KafkaTransactionHanging (incident {id}, owner checkout)", "incident {id}"),
    ("https://txnwatch.example/c/eu/incident/{id}?wall=1", "incident {id}"),
    ("incident {id:.8}", "incident {id}"),
    ("payments-0 stands still behind checkout-7.", "partition payments-0"),
    ("payments-0 stands still behind checkout-7.", "transactional id checkout-7"),
    ("group=fraud-scoring is stopped", "group fraud-scoring"),
)


@pytest.fixture(scope="module")
def hang_and_urls() -> Iterator[tuple[str, str, str]]:
    """The id of a hang, the page of its watcher, and a page of several clusters."""
    world = a_busy_cluster()
    hang = next(one.incident_id for one in world.incidents if one.verdict == "hanging")
    busy = OneWorld("payments-eu", [ToldWatcher("EU", world=a_busy_cluster())]).show()
    with world.served() as one, ClustersWorld([watched("us", topics={"audit": 1}), busy]).served() as several:
        yield hang, one, several


def found(url: str, text: str) -> dict[str, Any] | None:
    answer: dict[str, Any] | None = get(url, f"/api/v1/find?missing=null&name={quote(text)}").json["answer"]
    return answer


@pytest.mark.parametrize(("text", "expected"), FORMS_OF_FIND)
def test_each_form_is_found(hang_and_urls: tuple[str, str, str], text: str, expected: str) -> None:
    hang, one, several = hang_and_urls
    wanted, thing = (of.replace("{id}", hang).replace("{id:.8}", hang[:8]) for of in (text, expected))
    of_one, of_several = found(one, wanted), found(several, wanted)
    assert of_one is not None
    assert thing in {f"{match['kind']} {match['text']}" for match in of_one["matches"]}
    assert of_several is not None
    assert f"{thing} on payments-eu" in {f"{match['kind']} {match['text']}" for match in of_several["matches"]}


@pytest.mark.parametrize("text", ["", " ", "none-of-these", "behind the holder", "/", "deadbeef" * 4, "a" * 1_000])
def test_what_is_not_known_is_not_found(text: str) -> None:
    with PageWorld(topics={}).served() as url:
        assert found(url, text) is None


def test_a_cluster_is_found_by_a_part_of_its_name(hang_and_urls: tuple[str, str, str]) -> None:
    answer = found(hang_and_urls[2], "ments-e")
    assert answer is not None
    assert (answer["address"], answer["matches"]) == (
        "/c/EU/",
        [{"kind": "cluster", "text": "payments-eu", "address": "/c/EU/"}],
    )
