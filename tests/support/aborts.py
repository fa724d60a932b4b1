"""The life of the incidents of one partition in a world whose watch aborts by itself."""

from __future__ import annotations

from support.event_tail import PublishedEvent
from support.fault_world import FaultWorld
from support.metrics import Scrape
from support.waiting import eventually
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin

IN_TIME_S = 60.0


def about(world: FaultWorld, partition: TopicPartition) -> list[PublishedEvent]:
    """The events about a partition."""
    return [one for one in world.tail.published if (one.event.topic, one.event.partition) == partition]


def actions(world: FaultWorld, partition: TopicPartition) -> list[tuple[str, str | None, str | None]]:
    """Each decision about a partition, its refusal and its result, once."""
    found = [one.event.action for one in about(world, partition) if one.event.action is not None]
    published = [(action.decision, action.refusal, action.result) for action in found]
    return list(dict.fromkeys(published))


def until(world: FaultWorld, partition: TopicPartition, *action: str | None) -> None:
    """Waits for a decision about a partition."""

    def published() -> str:
        return f"{action} on {partition}; published: {about(world, partition)}; printed: {world.watch.lines[-30:]}"

    eventually(lambda: action in actions(world, partition), IN_TIME_S, published)


def batches(world: FaultWorld) -> float:
    """How many micro-batches the watch has completed."""
    return Scrape.at(world.watch.metrics_url).value("batches_total") or 0.0


def is_open(world: FaultWorld, partition: TopicPartition, producer_id: int) -> bool:
    """Whether a producer has an open transaction on a partition."""
    reading = ClusterAdmin(world.cluster).read_partitions([partition])[partition]
    assert reading.problem is None
    return reading.open_transaction(producer_id) is not None
