"""Full and slow disks, paused brokers, cut networks, clocks that jump, quotas: what is said, and until when.

The verdicts stay right: a hang that is made meanwhile is found, at the latest afterwards, and nothing else is
reported, although healthy applications write and one transaction stays open all the time. `make faults` writes
docs/disturbances.json.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from bench.results import machine
from support.disturbance_results import DisturbanceResult, DisturbanceResults
from support.disturbance_signs import SignsSeen, is_said, kind_of
from support.disturbances import DISTURBANCES, Disturbance
from support.disturbed_world import DisturbedWorld, disturbed_world, now_s
from support.kafka_faults import abort_by_hand
from support.raw_producer import RawProducer
from support.servers import Clusters
from support.shim import compiler
from support.small_disks import refusal
from support.waiting import eventually
from txnwatch.state.model.values import TopicPartition

pytestmark = pytest.mark.faults

FOUND_S, RIGHT_S = 60.0, 120.0
LONG_MS = 900_000  # the most that brokers allow: no clock here jumps so far
MADE_AFTER_S = 2.0  # so that the disturbance is felt
BEFORE_S, SETTLE_S = 5.0, 3.0


@dataclass
class Hang:
    """A stray write."""

    world: DisturbedWorld
    producer: RawProducer
    partition: TopicPartition
    at_s: float = 0.0

    def make(self) -> None:
        self.producer.produce(self.partition)
        self.at_s = now_s()

    def found_at_s(self) -> float | None:
        events = self.world.tail.published
        mine = (one for one in events if one.event.producer_id == self.producer.producer_id)
        return next((one.at_s for one in mine if one.event.verdict == "hanging"), None)

    def end(self) -> None:
        abort_by_hand(self.world.cluster, self.partition, self.producer.producer_id)


def hang_on(world: DisturbedWorld, node: int) -> Hang:
    return Hang(world, world.producer(), world.spare[node].pop())


@pytest.fixture(scope="module")
def world(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DisturbedWorld]:
    if compiler() is None:
        pytest.skip("there is no C compiler for the library that changes clocks and slows down disks")
    directory = tmp_path_factory.mktemp("disturbed")
    why = refusal(directory / "probe")
    if why is not None:
        pytest.skip(why)
    with disturbed_world(clusters, directory) as made:
        yield made


@pytest.fixture(scope="session")
def disturbance_results(request: pytest.FixtureRequest) -> DisturbanceResults | None:
    path = request.config.getoption("--fault-results")
    if path is None:
        return None
    return DisturbanceResults(path.with_name("disturbances.json"), [one.name for one in DISTURBANCES])


def healthy_transaction(world: DisturbedWorld) -> RawProducer:
    """Open from before the disturbance until after it; its producer is not among those of the hangs."""
    producer, partition = world.producer(LONG_MS), world.spare[1].pop()
    producer.add(partition)
    producer.produce(partition)
    return producer


def everything_ended(world: DisturbedWorld, start: int) -> bool:
    last = {one.event.incident_id: one.event.status for one in world.tail.published[start:]}
    return all(status == "resolved" for status in last.values())


def false_verdicts(world: DisturbedWorld, start: int, hangs: list[Hang]) -> list[str]:
    ids = {hang.producer.producer_id for hang in hangs}
    return [
        f"{one.event.verdict} {one.event.transactional_id} {one.event.subject} {one.event.age_ms} {one.event.evidence}"
        for one in world.tail.published[start:]
        if one.event.verdict != "hanging" or one.event.producer_id not in ids
    ]


def said(lines: list[str]) -> list[str]:
    """The kinds of warnings."""
    return sorted({kind_of(line.partition("warning: ")[2]) for line in lines if "warning:" in line})


def look_for(world: DisturbedWorld, seconds: float) -> SignsSeen:
    """What the metrics show in this time."""
    seen, until = SignsSeen(), time.monotonic() + seconds
    while time.monotonic() < until:
        seen.look(world.scrape())
        time.sleep(0.5)
    return seen


def is_right_again(world: DisturbedWorld, disturbance: Disturbance, line: int) -> bool:
    """Whether the watch proves everything, and has noticed that the disturbance is over."""
    last = disturbance.says_at_the_end
    return (last is None or is_said(last, world.watch.lines[line:])) and world.is_healthy()


@pytest.mark.parametrize("disturbance", DISTURBANCES, ids=lambda one: one.name)
def test_verdicts_stay_right_and_the_watch_recovers(
    world: DisturbedWorld, disturbance: Disturbance, disturbance_results: DisturbanceResults | None
) -> None:
    eventually(world.is_healthy, RIGHT_S, "a healthy watch before the test")
    start, line = len(world.tail.published), len(world.watch.lines)
    before = look_for(world, BEFORE_S)
    healthy = healthy_transaction(world)
    during, after = hang_on(world, disturbance.node), hang_on(world, disturbance.node)
    if disturbance.is_cut_off:
        during.make()
    with disturbance.make(world):
        time.sleep(MADE_AFTER_S)
        if not disturbance.is_cut_off:
            during.make()
        seen = look_for(world, disturbance.lasts_s - MADE_AFTER_S)
        is_found_meanwhile = during.found_at_s() is not None
        last_line = len(world.watch.lines)
    ended_s = now_s()
    eventually(lambda: is_right_again(world, disturbance, last_line), RIGHT_S, "a healthy watch after the disturbance")
    healthy_s = now_s() - ended_s
    seen.look_at_counters(world.scrape())
    found_s = eventually(during.found_at_s, RIGHT_S, "the hang")
    after.make()
    after_s = eventually(after.found_at_s, FOUND_S, "the hang that was made afterwards") - after.at_s
    end(world, healthy, [during, after], start)
    lines = world.watch.lines[line:]
    result = DisturbanceResult(
        name=disturbance.name,
        fault=disturbance.fault,
        shown=disturbance.shown,
        version=world.kafka.version,
        date=datetime.now(UTC).date().isoformat(),
        machine=machine(),
        lasts_s=disturbance.lasts_s,
        said=said(lines),
        up=seen.up,
        unproven=seen.unproven,
        waiting=seen.waiting,
        query_starts=seen.rise("query_starts"),
        throttled_s=round(seen.rise("throttled_s"), 1),
        batch_before_s=round(before.batch_s, 3),
        batch_s=round(seen.batch_s, 3),
        clock_offset_s=round(seen.clock_offset_s, 1),
        found_s=round(found_s - during.at_s, 1),
        is_found_meanwhile=is_found_meanwhile,
        right_after_s=round(max(healthy_s, found_s - ended_s), 1),
        found_afterwards_s=round(after_s, 1),
        false_verdicts=false_verdicts(world, start, [during, after]),
    )
    assert_all_of(disturbance, result, lines)
    if disturbance_results is not None:
        disturbance_results.keep(result)


def end(world: DisturbedWorld, healthy: RawProducer, hangs: list[Hang], start: int) -> None:
    """Ends the transactions of a test, and waits until their incidents have ended and what must not come would have."""
    healthy.end(commit=True)
    for hang in hangs:
        hang.end()
    eventually(lambda: everything_ended(world, start), FOUND_S, "the end of the incidents")
    time.sleep(SETTLE_S)


def assert_all_of(disturbance: Disturbance, result: DisturbanceResult, lines: list[str]) -> None:
    """Everything that the page says about the row."""
    assert result.false_verdicts == []
    assert result.is_found_meanwhile or not disturbance.is_found_meanwhile
    assert [sign.words for sign in disturbance.sees if not sign.is_in(result)] == [], result
    assert not disturbance.says or any(is_said(says, lines) for says in disturbance.says), result.said
    assert [says for says in disturbance.then_says if not is_said(says, lines)] == [], result.said
