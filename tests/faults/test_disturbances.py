"""Full and slow disks, paused brokers, cut networks, clocks that jump, quotas: what is said, and until when.

The verdicts stay right: a hang that is made meanwhile is found, at the latest afterwards, and nothing else is
reported, although healthy applications write and one transaction stays open all the time. `make faults` writes
docs/disturbances.json.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from support.disturbance_results import DisturbanceResult, DisturbanceResults
from support.disturbances import DISTURBANCES, Disturbance
from support.disturbed_world import DisturbedWorld, disturbed_world, now_s
from support.kafka_faults import abort_by_hand
from support.raw_producer import RawProducer
from support.servers import Clusters
from support.shim import compiler
from support.small_disks import refusal
from support.waiting import eventually
from txnwatch.state.model.ids import TopicPartition

pytestmark = pytest.mark.faults

FOUND_S, RIGHT_S = 60.0, 120.0
LONG_MS = 900_000  # the most that brokers allow: no clock here jumps so far
MADE_AFTER_S = 2.0  # so that the disturbance is felt
SETTLE_S = 3.0


@dataclass
class Seen:
    """The worst of the metrics while a disturbance is in effect."""

    up: float = 1.0
    unproven: float = 0.0
    first: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)

    def look(self, world: DisturbedWorld) -> None:
        found = world.scrape()
        if found is None:
            return
        self.up = min(self.up, found.value("up") or 0.0)
        unproven = sum(found.value("unproven_partitions", log=log) or 0.0 for log in ("data", "coordinator"))
        self.unproven = max(self.unproven, unproven)
        self.last = {
            "query_starts": found.value("query_starts_total") or 0.0,
            "batches": found.value("batches_total") or 0.0,
            "throttled_s": sum(
                sample.value
                for sample in found.families["txnwatch_throttled_seconds"].samples
                if sample.name.endswith("_total")
            ),
        }
        self.first = self.first or self.last

    def rise(self, name: str) -> float:
        return self.last.get(name, 0.0) - self.first.get(name, 0.0)


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


def said(world: DisturbedWorld, start: int) -> list[str]:
    """The kinds of warnings, without their numbers and without what differs from run to run."""
    warnings = [line for line in world.watch.lines[start:] if "warning:" in line]
    return sorted({re.sub(r"\d+", "N", re.sub(r" /\S+", " FILE", line.partition("warning: ")[2])) for line in warnings})


def is_seen(what: str | None, result: DisturbanceResult) -> bool:
    found = {"down": result.up == 0, "unproven": result.unproven > 0, "throttled": result.throttled_s > 0}
    return what is None or found[what]


@pytest.mark.parametrize("disturbance", DISTURBANCES, ids=lambda one: one.name)
def test_verdicts_stay_right_and_the_watch_recovers(
    world: DisturbedWorld, disturbance: Disturbance, disturbance_results: DisturbanceResults | None
) -> None:
    eventually(world.is_healthy, RIGHT_S, "a healthy watch before the test")
    start, line = len(world.tail.published), len(world.watch.lines)
    healthy, seen = healthy_transaction(world), Seen()
    during, after = hang_on(world, disturbance.node), hang_on(world, disturbance.node)
    if disturbance.is_cut_off:
        during.make()
    with disturbance.make(world):
        until = time.monotonic() + disturbance.lasts_s
        time.sleep(MADE_AFTER_S)
        if not disturbance.is_cut_off:
            during.make()
        while time.monotonic() < until:
            seen.look(world)
            time.sleep(0.5)
        is_found_meanwhile = during.found_at_s() is not None
    ended_s = now_s()
    eventually(world.is_healthy, RIGHT_S, "a healthy watch after the disturbance")
    healthy_s = now_s() - ended_s
    found_s = eventually(during.found_at_s, RIGHT_S, "the hang")
    after.make()
    after_s = eventually(after.found_at_s, FOUND_S, "the hang that was made afterwards") - after.at_s
    healthy.end(commit=True)
    for hang in (during, after):
        hang.end()
    eventually(lambda: everything_ended(world, start), FOUND_S, "the end of the incidents")
    time.sleep(SETTLE_S)  # for what must not come
    result = DisturbanceResult(
        name=disturbance.name,
        fault=disturbance.fault,
        shown=disturbance.shown,
        version=world.kafka.version,
        lasts_s=disturbance.lasts_s,
        said=said(world, line),
        up=seen.up,
        unproven=seen.unproven,
        query_starts=seen.rise("query_starts"),
        throttled_s=round(seen.rise("throttled_s"), 1),
        found_s=round(found_s - during.at_s, 1),
        is_found_meanwhile=is_found_meanwhile,
        right_after_s=round(max(healthy_s, found_s - ended_s), 1),
        found_afterwards_s=round(after_s, 1),
        false_verdicts=false_verdicts(world, start, [during, after]),
    )
    if disturbance_results is not None:
        disturbance_results.keep(result)
    assert result.false_verdicts == []
    assert is_found_meanwhile or not disturbance.is_found_meanwhile
    assert is_seen(disturbance.sees, result), result
    if disturbance.says is not None:
        assert [text for text in world.watch.lines[line:] if disturbance.says in text], result.said
