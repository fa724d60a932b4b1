"""The life of the incidents of one partition in a world whose watch aborts by itself."""

from __future__ import annotations

from support.event_tail import PublishedEvent
from support.fault_world import FaultWorld, begins
from support.metrics import Scrape
from support.raw_log import read_log
from support.raw_producer import RawProducer
from support.waiting import eventually
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition, coordinator_partition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.wire.record_batch import MarkerType

IN_TIME_S = 60.0
CHANCES = 5  # micro-batches in which an abort could be written


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


def hangs(world: FaultWorld, partition: TopicPartition, client: RawProducer) -> list[IncidentEvent]:
    """The events about a hang of a client on a partition."""
    found = [one.event for one in about(world, partition) if one.event.producer_id == client.producer_id]
    return [event for event in found if event.verdict == "hanging"]


def outcomes(world: FaultWorld, partition: TopicPartition, client: RawProducer) -> list[tuple[str, str | None]]:
    """The expected outcomes that were published of a client's hang, each with its doubt, in order."""
    return [(event.expected_outcome, event.outcome_doubt) for event in hangs(world, partition, client)]


def aborted(world: FaultWorld, partition: TopicPartition, client: RawProducer) -> int:
    """How many ABORT markers of a client are in the log of a partition."""
    found = [one for one in read_log(world.cluster, partition) if one.header.producer_id == client.producer_id]
    return len([one for one in found if one.marker is not None and one.marker.type is MarkerType.ABORT])


def pass_chances(world: FaultWorld) -> None:
    """Waits for micro-batches in which an abort could be written."""
    seen = batches(world)
    eventually(lambda: batches(world) >= seen + CHANCES, IN_TIME_S, "micro-batches in which it could be aborted")


def begin(client: RawProducer, partition: TopicPartition) -> None:
    """Begins a transaction, once the one before is complete."""
    eventually(lambda: begins(client, partition), IN_TIME_S, "the transaction before to be complete")


def log_of(world: FaultWorld, client: RawProducer) -> TopicPartition:
    """The partition of the coordinators' log with the records of a client."""
    count = len(world.cluster.refresh().topics[TRANSACTION_STATE_TOPIC].partitions)
    return TopicPartition(TRANSACTION_STATE_TOPIC, coordinator_partition(client.transactional_id, count))
