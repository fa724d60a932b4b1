"""An outcome survives the fence that an abort demands, on real brokers: an InitProducerId hides nothing before it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from functools import partial

import pytest

from support.fault_world import FaultWorld
from support.kafka_faults import abort_by_hand, late_write, stray_write
from support.raw_producer import RawProducer
from support.scenarios import KAFKA_3, VERSIONS
from support.topics import unique
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster

pytestmark = pytest.mark.faults

IN_TIME_S = 60.0
Make = Callable[[Cluster, str, TopicPartition], RawProducer]
MAKES: dict[str, Make] = {
    "never begun": stray_write,
    "late after a commit": partial(late_write, commit=True),
    "late after an abort": partial(late_write, commit=False),
}


def outcomes(world: FaultWorld, producer: RawProducer) -> list[tuple[str, str | None]]:
    """The expected outcomes that were published, each with its doubt."""
    published = [one.event for one in world.published_after(0, [producer.producer_id])]
    return [(event.expected_outcome, event.outcome_doubt) for event in published]


def pass_a_hang(world: FaultWorld) -> None:
    """Waits until a hang that begins now is reported: everything before it was read."""
    partition = world.partition(3)
    producer = stray_write(world.cluster, unique("after"), partition)
    eventually(lambda: outcomes(world, producer), IN_TIME_S, "the hang after it")
    abort_by_hand(world.cluster, partition, producer.producer_id)


@pytest.mark.parametrize("is_found_before", [True, False], ids=["found before", "found after"])
@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_outcome_is_none_before_and_after_the_fence(
    world: FaultWorld, make: Make, capsys: pytest.CaptureFixture[str], *, is_found_before: bool
) -> None:
    partition = world.partition(2)
    with contextlib.ExitStack() as stack:
        if not is_found_before:
            stack.enter_context(world.watch.paused())
        producer = make(world.cluster, unique("app"), partition)
        if is_found_before:
            eventually(lambda: ("none", None) in outcomes(world, producer), IN_TIME_S, "the outcome before the fence")
        producer.init()
    pass_a_hang(world)
    eventually(lambda: outcomes(world, producer), IN_TIME_S, "the hang")
    eventually(lambda: outcomes(world, producer)[-1] == ("none", None), IN_TIME_S, "the outcome")
    # Before Kafka 4.0 an outcome counts once a later listing shows the same reign, and a command has seen none.
    is_old = world.kafka.version in KAFKA_3
    awaited = {("unknown", "listing_awaited")} if is_old else set()
    assert set(outcomes(world, producer)) - awaited == {("none", None)}

    capsys.readouterr()
    at = ("--topic", partition.topic, "--partition", str(partition.partition))
    assert main(["find-hanging", *at, "--bootstrap-server", world.bootstrap, "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert (row["producer_id"], row["expected_outcome"]) == (producer.producer_id, "unknown" if is_old else "none")
    abort_by_hand(world.cluster, partition, producer.producer_id)
