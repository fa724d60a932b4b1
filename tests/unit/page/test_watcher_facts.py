"""The facts of a watcher: what it tells is read back, and anything else is refused without a crash."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.clusters_world import VERSION, facts_of_world
from support.page_world import OWNERS, a_busy_cluster, an_open
from txnwatch.page.knowledge import Knowledge
from txnwatch.page.live_picture import encode
from txnwatch.page.picture import picture_of
from txnwatch.page.store import KnownNow, PageStore, Reach
from txnwatch.page.watcher_facts import MOST_BYTES, MOST_INCIDENTS, MOST_TRANSACTIONS, WatcherFacts, decoded
from txnwatch.state.model.errors import BadFactsError
from txnwatch.state.model.findings import CensusOffsets
from txnwatch.state.model.values import Offset, TopicPartition
from txnwatch.watch.coverage import MissingEvidence

EU = "EU"


def told() -> WatcherFacts:
    return facts_of_world(a_busy_cluster(), EU, "watch-0:/c")


def values() -> Any:
    """Valid facts, as JSON has them."""
    return json.loads(encode(told()))


def test_they_are_read_back_as_they_were() -> None:
    world = a_busy_cluster()
    world.ends[TopicPartition("nobody", 7)] = Offset(9)
    world.by_census = {TopicPartition("audit", 0): (5_120, 5_200), TopicPartition("nobody", 8): (1, 9)}
    world.batch()
    found = facts_of_world(world, EU, "watch-0:/c")
    again = decoded(encode(found))
    assert encode(again) == encode(found)
    assert (again.version, again.instance, again.cluster_id) == (VERSION, "watch-0:/c", EU)
    assert found.by_census == (CensusOffsets(TopicPartition("audit", 0), Offset(5_120), Offset(5_200)),)
    assert TopicPartition("nobody", 7) not in dict(found.ends), "only what is open has to be drawn"


def test_the_page_that_is_made_from_them_is_that_of_the_watcher() -> None:
    world = a_busy_cluster()
    world.watched = world.watched._replace(scanned=901)
    world.batch()
    found = facts_of_world(world, "Qk7rXf2mTtS9", "watch-0:/c")
    known = decoded(encode(found)).known(OWNERS)
    lives = found.lived(known.incidents or ())
    store = PageStore("", world.store.origin, found.access, known, lives, world.store.latencies_ms)
    store.is_of_ledger = True  # else each step is a look first
    pictures = [
        picture_of(Knowledge(store=one, seen=one.seen, now_ms=found.now_ms, ends=world.ends))
        for one in (world.store, store)
    ]
    days = [picture.pop("day") for picture in pictures]
    assert days[1]["slots"] is None, "the strip of the day is on the page of the watcher"
    assert pictures[0] == pictures[1]
    assert lives.keys() == {event.incident_id for event in known.incidents or ()}
    assert all(lives[key].moments == world.store.lives[key].moments for key in lives)


def test_the_owner_and_the_address_of_a_team_are_from_the_table_of_the_reader() -> None:
    found = values()
    for event in found["incidents"]:
        event["owner"] = {
            "team": "evil",
            "name": "Evil",
            "url": "https://evil.example/",
            "found_by": "transactional_id",
        }
    known = decoded(encode(found)).known(OWNERS)
    assert "evil" not in repr(known.incidents)


def test_many_names_are_cut_and_counted() -> None:
    world = a_busy_cluster()
    names = [*(TopicPartition("orders", number) for number in range(600)), TopicPartition("__transaction_state", 3)]
    world.evidence = MissingEvidence(unproven=tuple(names), is_log_read=True)
    world.batch()
    reach = facts_of_world(world, EU, "w").reach
    assert isinstance(reach, Reach)
    assert (len(reach.named), reach.unproven, reach.of_log) == (500, 601, 1)


def test_8000_transactions_have_room() -> None:
    world = a_busy_cluster()
    world.open = [
        an_open(number, f"checkout-{number}", 60, ("payments", number % 50, number)) for number in range(8_000)
    ]
    world.batch()
    value = encode(facts_of_world(world, EU, "w"))
    assert len(value) < MOST_BYTES // 4
    assert len(decoded(value).transactions) == 8_000


def test_a_watcher_that_has_evaluated_nothing_says_so() -> None:
    world = a_busy_cluster()
    world.store.seen = KnownNow(is_source_read=True)
    world.store.lives = {}
    found = facts_of_world(world, EU, "w")
    assert (found.judged_ms, found.incidents, found.reach) == (None, (), None)
    assert decoded(encode(found)).known(OWNERS).judged_ms is None


def test_a_field_of_a_later_version_is_left_out() -> None:
    assert decoded(encode({**values(), "later": 1})).cluster_id == EU


def test_facts_of_another_format_are_refused_with_their_version() -> None:
    with pytest.raises(BadFactsError, match=r"expected facts of format 1, found 2, of version 9\.9\\x1b\[31m$"):
        decoded(encode({"format": 2, "version": "9.9\x1b[31m"}))


HOSTILE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a version": (lambda v: v.update(version="x" * 65), "version has an invalid value"),
    "a cluster": (lambda v: v.update(cluster_id="a b"), "cluster_id has an invalid value"),
    "an instance": (lambda v: v.update(instance="x" * 40_000), "instance has an invalid value"),
    "a clock": (lambda v: v.update(now_ms=-1), "now_ms has an invalid value"),
    "a judgement to come": (lambda v: v.update(judged_ms=v["now_ms"] + 1), "judged_ms has an invalid value"),
    "a view": (lambda v: v.update(access="all"), "expected the facts of a watcher"),
    "a time": (lambda v: v["transactions"][0].__setitem__(3, 1 << 70), "expected the facts of a watcher"),
    "a negative time": (lambda v: v["transactions"][0].__setitem__(3, -1), "transactions has an invalid value"),
    "a time after 9999": (lambda v: v["transactions"][0].__setitem__(3, 1 << 60), "transactions has an invalid value"),
    "many spans": (lambda v: v["transactions"][0][5].extend(v["transactions"][0][5] * 200_000), "transactions has an"),
    "many names": (lambda v: v["reach"][0].extend([["t", 0]] * 1_001), "reach has an invalid value"),
    "half a character": (lambda v: v["transactions"][0].__setitem__(2, "\ud800"), "expected the facts of a watcher"),
    "a long id": (lambda v: v["transactions"][0].__setitem__(1, "x" * 40_000), "transactions has an invalid value"),
    "a topic": (lambda v: v["transactions"][0][5][0].__setitem__(0, ["<b>", 0]), "transactions has an invalid value"),
    "a partition": (lambda v: v["ends"][0].__setitem__(0, ["orders", -1]), "ends has an invalid value"),
    "an offset": (lambda v: v["blocked"][0].__setitem__(1, -5), "blocked has an invalid value"),
    "a listed offset": (lambda v: v["by_census"].append([["t", 0], -1, 5]), "by_census has an invalid value"),
    "an end below": (lambda v: v["by_census"].append([["t", 0], 5, 4]), "by_census has an invalid value"),
    "a count": (lambda v: v["totals"].__setitem__(1, [["Ongoing", -1]]), "totals has an invalid value"),
    "many states": (lambda v: v["totals"].__setitem__(1, [["Ongoing", 1]] * 33), "totals has an invalid value"),
    "a duration": (lambda v: v.update(batch_ms=-1), "batch_ms has an invalid value"),
    "a latency": (lambda v: v.update(latency_p99_ms=1 << 64), "expected the facts of a watcher"),
    "text for a number": (lambda v: v.update(batch_ms="1"), "expected the facts of a watcher"),
    "true for a number": (lambda v: v.update(batch_ms=True), "expected the facts of a watcher"),
    "an incident of another cluster": (
        lambda v: v["incidents"][0].update(cluster_id="US"),
        "incidents has an invalid value",
    ),
    "an incident twice": (lambda v: v["incidents"].append(v["incidents"][0]), "incidents has an invalid value"),
    "an id of an incident": (lambda v: v["incidents"][0].update(incident_id="../x"), "incidents has an invalid value"),
    "many moments": (lambda v: v["lives"][0][1].extend(v["lives"][0][1] * 60), "lives has an invalid value"),
    "a long moment": (lambda v: v["lives"][0][1][0].__setitem__(2, "x" * 40_000), "lives has an invalid value"),
    "an unproven partition": (lambda v: v["reach"][0].append(["t", -1]), "reach has an invalid value"),
    "a number of them": (lambda v: v["reach"].__setitem__(1, -1), "reach has an invalid value"),
    "partitions": (lambda v: v["watched"].__setitem__(0, -1), "watched has an invalid value"),
    "a target": (lambda v: v.update(speaker="x" * 40_000), "speaker has an invalid value"),
    "no incidents": (lambda v: v.update(incidents=None), "expected the facts of a watcher"),
    "no format": (lambda v: v.pop("format"), "expected the facts of a watcher"),
    "no clock": (lambda v: v.pop("now_ms"), "expected the facts of a watcher"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_value_that_is_not_valid_is_refused(name: str) -> None:
    change, expected = HOSTILE[name]
    found = values()
    change(found)
    with pytest.raises(BadFactsError, match=expected):
        decoded(json.dumps(found).encode())


@pytest.mark.parametrize("value", [b"", b"\0", b"{}", b"[1]", b"null", b"<html>", b'{"a":' * 9_999])
def test_what_is_no_answer_of_a_watcher_is_refused(value: bytes) -> None:
    with pytest.raises(BadFactsError):
        decoded(value)


@pytest.mark.parametrize(("name", "most"), [("transactions", MOST_TRANSACTIONS), ("incidents", MOST_INCIDENTS)])
def test_a_list_that_is_too_long_is_refused(name: str, most: int) -> None:
    found = values()
    found[name] = found[name][:1] * (most + 1)
    if name == "incidents":
        found[name] = [{**one, "incident_id": f"{number:032x}"} for number, one in enumerate(found[name])]
    with pytest.raises(BadFactsError, match=f"{name} has an invalid value"):
        decoded(json.dumps(found).encode())


@given(st.binary(max_size=300))
@settings(max_examples=200)
def test_no_bytes_raise_another_error(value: bytes) -> None:
    with pytest.raises(BadFactsError):
        decoded(value)
