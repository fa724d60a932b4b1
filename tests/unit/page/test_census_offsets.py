"""A partition that only a census watches: its lane has the offsets of the last census, on both pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.clusters_world import OneWorld, ToldWatcher
from support.page_world import PageWorld, an_incident, an_open, now_ms
from txnwatch.page.details import incident, partition
from txnwatch.page.knowledge import Knowledge
from txnwatch.page.picture import picture_of
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import Offset, TimestampMs, TopicPartition

CLUSTER = "EU"
AT = TopicPartition("metering", 4)
START = 700
HANG = {
    "topic": AT.topic,
    "partition": AT.partition,
    "producer_id": 31,
    "transactional_id": "meter-31",
    "txn_start_offset": START,
    "last_stable_offset": START,
    "hidden_records": 1,
    "cluster_id": CLUSTER,
}


def by_census(last_stable: int | None = START, end: int = 742) -> PageWorld:
    """A hang on a partition that is not scanned; its incident was opened when it hid one record."""
    world = PageWorld(open=[an_open(31, "meter-31", 60, (*AT, START), state="unowned", timeout_s=None)], young=0)
    world.by_census = {AT: (last_stable, end)} if last_stable is not None else {TopicPartition("other", 0): (0, 0)}
    world.tell(an_incident("hang", 60, **HANG))
    world.batch()
    return world


def on_a_page_elsewhere(world: PageWorld) -> Knowledge:
    """What `txnwatch page` knows from the facts of the watcher."""
    store = OneWorld("eu", [ToldWatcher(CLUSTER, world=world)]).show().store
    return Knowledge(store=store, seen=store.seen, now_ms=now_ms(), ends=store.seen.ends)


BOTH = pytest.mark.parametrize("known", [PageWorld.knowledge, on_a_page_elsewhere])
_Known = Callable[[PageWorld], Knowledge]


def lane(knowledge: Knowledge) -> Any:
    return picture_of(knowledge)["lanes"].get(str(AT))


def row(knowledge: Knowledge) -> Any:
    (found,) = picture_of(knowledge)["incidents"].values()
    return found


@BOTH
def test_its_lane_has_the_offsets_of_the_last_census_and_not_those_of_the_incident(known: _Known) -> None:
    world = by_census()
    found = lane(known(world))
    assert (found["last_stable"], found["end"], found["hidden"]) == (START, 742, 42)
    assert (found["holder"]["name"], found["holder"]["phase"]) == ("meter-31", "hanging")
    assert row(known(world))["hidden"] == 42
    world.by_census = {AT: (START, 900)}
    world.batch()
    assert (lane(known(world))["end"], lane(known(world))["hidden"]) == (900, 200)
    found = incident(known(world), world.incidents[0].incident_id)
    assert found is not None
    assert (found["hidden"], found["waits"]["hidden"]) == (200, 200), "in both places of the page of the incident"


@BOTH
def test_before_a_census_has_listed_it_the_end_is_not_known(known: _Known) -> None:
    world = by_census(None)
    found = lane(known(world))
    assert (found["last_stable"], found["end"], found["hidden"]) == (START, None, None)
    assert row(known(world))["hidden"] == 1, "as the event has it"
    assert partition(known(world), AT)["watched"] == "by census, or not at all"


@BOTH
def test_a_holder_is_not_named_if_it_does_not_begin_at_the_last_stable_offset(known: _Known) -> None:
    world = by_census(START - 50)
    found = lane(known(world))
    assert found["holder"] is None
    assert found["look"].startswith("txnwatch explain --topic metering --partition 4 ")
    assert (found["last_stable"], found["hidden"]) == (START - 50, 92)
    assert [bar["start"] for bar in found["behind"]] == [START]


@BOTH
@pytest.mark.parametrize("last_stable", [START + 1, 742])
def test_what_begins_below_the_last_stable_offset_has_ended(known: _Known, last_stable: int) -> None:
    """It ended after its leader described it, and before that listed the offset."""
    world = by_census(last_stable)
    assert lane(known(world)) is None
    assert partition(known(world), AT)["holders"] == []
    world.open.append(an_open(32, None, 5, (*AT, last_stable)))
    world.batch()
    assert lane(known(world))["holder"]["producer_id"] == 32


def test_a_partition_has_them_and_says_that_they_are_of_the_last_census() -> None:
    found = partition(by_census().knowledge(), AT)
    assert (found["last_stable"], found["end"], found["hidden"]) == (START, 742, 42)
    assert found["watched"] == "by census; the offsets are those of the last one"


def test_a_scanned_partition_has_the_end_of_the_last_barrier() -> None:
    world = by_census()
    world.ends[AT] = Offset(800)
    found = partition(world.knowledge(), AT)
    assert (found["end"], found["watched"]) == (800, "scanned")


def test_a_batch_without_a_barrier_leaves_them() -> None:
    world = by_census()
    world.store.take([], world.seen(), TimestampMs(now_ms()))
    assert lane(world.knowledge())["hidden"] == 42


def test_offsets_of_a_partition_with_nothing_open_give_no_lane() -> None:
    world = by_census()
    world.open, world.incidents = [], list[IncidentEvent]()
    world.batch()
    assert lane(world.knowledge()) is None
