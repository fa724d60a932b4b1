"""The bounds of the page with the largest cluster: what is sent, what is kept, and how long it takes."""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from support.page_world import PageWorld, a_count, an_incident, an_open, now_ms
from txnwatch.page import details, live_picture
from txnwatch.page.knowledge import Knowledge
from txnwatch.page.live_picture import Viewers
from txnwatch.page.picture import LANES, picture_of
from txnwatch.page.storms import FOLDS, MOST, IncidentFilter, select
from txnwatch.state.detection.open_transactions import FOLLOWED, HOLDING
from txnwatch.state.model.findings import OpenTransactions
from txnwatch.state.model.incident import AffectedGroup, GroupState
from txnwatch.state.model.values import Offset, ProducerId, TopicPartition

BUCKETS = 16
ROWS = BUCKETS * (FOLLOWED + HOLDING)
SPANS, PARTITIONS = 20, 50_000
LONGEST = 32_767


@pytest.fixture(scope="module")
def largest() -> Knowledge:
    """Full open lists, an end of each partition, and 1,000 hangs; ids and groups are as long as Kafka takes them."""
    world = PageWorld(young=100_000)
    world.open = [
        an_open(
            number, f"{number:05}" + "x" * (LONGEST - 5), 60 + number, *((f"t{number}", n, 7) for n in range(SPANS))
        )
        for number in range(ROWS)
    ]
    world.ends = {TopicPartition(f"t{number % ROWS}", number // ROWS): Offset(99) for number in range(PARTITIONS)}
    groups = tuple(
        AffectedGroup(group_id=f"{number:03}" + "g" * 245, state=GroupState.STOPPED, committed_offset=7, hidden_lag=1)
        for number in range(100)
    )
    for number in range(1_000):
        name = f"{number:05}" + "x" * (LONGEST - 5)
        place = {"topic": f"t{number}", "partition": 0, "producer_id": number, "txn_start_offset": 7}
        fence = f"txnwatch fence --transactional-id {name if number % 2 else 'x' * 100} && txnwatch abort --topic t"
        about = {"transactional_id": name, "consumer_groups": groups, "suggested_command": fence}
        world.tell(an_incident(f"hang-{number}", 60, **about, **place))
    size = ROWS // BUCKETS
    lists = [OpenTransactions(at, tuple(world.open[at * size : (at + 1) * size])) for at in range(BUCKETS)]
    world.store.take([a_count({"Ongoing": ROWS + world.young}), *lists], world.seen(), now_ms())
    return world.knowledge()


def texts(value: Any) -> Iterator[str]:
    """All text in a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from texts(one)


def test_what_is_sent_has_a_bound(largest: Knowledge) -> None:
    picture = picture_of(largest)
    assert (len(picture["lanes"]), len(picture["incidents"])) == (LANES, FOLDS)
    assert picture["order"]["more_lanes"] == ROWS * SPANS - LANES
    assert picture["order"]["more_incidents"] == 1_000 - FOLDS
    assert len(msgspec.json.encode(picture)) < 400_000
    assert max(map(len, texts(picture))) <= 1_000


@pytest.mark.parametrize(
    "answer",
    [
        lambda known: details.incident(known, known.open_incidents[0].incident_id),
        lambda known: details.partition(known, TopicPartition("t5", 0)),
        lambda known: details.producer(known, ProducerId(5)),
        lambda known: details.transactional_id(known, "00005" + "x" * (LONGEST - 5)),
        details.oldest,
        lambda known: select(known, IncidentFilter(verdict="hanging"), MOST // 4),
    ],
    ids=["incident", "partition", "producer", "transactional id", "oldest", "incidents"],
)
def test_an_answer_has_a_bound(largest: Knowledge, answer: Callable[[Knowledge], Any]) -> None:
    found = answer(largest)
    assert found is not None
    assert len(msgspec.json.encode(found)) < 200_000
    assert max(map(len, texts(found))) <= 2_000


def test_the_work_for_a_picture_grows_with_the_rows_alone(largest: Knowledge) -> None:
    """Not with rows times incidents: a page that takes seconds to make would be out of date when it comes."""
    profile = cProfile.Profile()
    profile.runcall(picture_of, largest)
    assert pstats.Stats(profile).total_calls < 60 * ROWS * SPANS  # type: ignore[attr-defined]


def test_a_viewer_that_stays_takes_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A week has 604,800 messages: what each of them leaves behind would be seen in 20,000."""
    monkeypatch.setattr(live_picture, "BEAT_S", 0.0)

    async def memory_of(messages: int) -> int:
        viewers = Viewers(lambda: b"snapshot", lambda: b"beat")
        viewer = viewers.admit("10.0.0.1")
        assert viewer is not None
        coming = viewers.messages(viewer, lambda: None)
        tracemalloc.start()
        for number in range(messages):
            if number % 3 == 0:
                viewers.publish(b"change of " + str(number).encode())
            await anext(coming)
        taken = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return taken

    assert asyncio.run(memory_of(20_000)) < asyncio.run(memory_of(200)) + 10_000
