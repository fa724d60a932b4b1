"""`explain` after an abort, on a real broker: the log is asked about each claim of the events topic."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from support.kafka_faults import end_by_hand, late_write
from support.raw_producer import RawProducer
from support.topics import create_topic, unique
from txnwatch.cli.main import main
from txnwatch.sinks.delivery.event_log import read_events
from txnwatch.sinks.delivery.events_topic import KafkaEventsTopic
from txnwatch.state.model.incident import IncidentEvent, repeat_incident_id
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import await_end

Row = dict[str, Any]
Run = Callable[..., Row]
MARKER = 3  # the offset of the marker behind data, marker, late data
SUSPECTED = "an administrator has written it"


@pytest.fixture
def run(kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> Run:
    """A command's one row."""

    def ran(*arguments: str) -> Row:
        assert main([*arguments, "--bootstrap-server", kafka.bootstrap_servers, "--format", "json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["complete"], answer["not_checked"]
        (row,) = answer["rows"]
        return dict(row)

    return ran


@pytest.fixture
def partition(cluster: Cluster) -> TopicPartition:
    (created,) = create_topic(cluster, unique("ended"))
    return created


@pytest.fixture
def events(cluster: Cluster) -> str:
    """An events topic."""
    (created,) = create_topic(cluster, unique("events"), config={"cleanup.policy": "compact"})
    return created.topic


def hang(cluster: Cluster, partition: TopicPartition) -> RawProducer:
    """A hang whose id has been initialised since, so that its epoch cannot be used again."""
    late = late_write(cluster, unique("late"), partition, commit=False)
    RawProducer(cluster, late.transactional_id).init()
    return late


def abort(run: Run, partition: TopicPartition, late: RawProducer, events: str) -> None:
    at = ("--topic", partition.topic, "--partition", "0", "--producer-id", str(late.producer_id))
    assert run("abort", *at, "--events-topic", events, "--yes")["result"] == "verified"


def test_an_abort_by_hand_is_told_by_whom_and_when_and_by_its_marker(
    run: Run, cluster: Cluster, partition: TopicPartition, events: str
) -> None:
    late = hang(cluster, partition)
    before = run("explain", str(partition), "--events-topic", events)
    assert (before["state"], before["marker_by_hand"]) == ("hanging", None)
    assert f"--events-topic {events}" in before["next"], "the abort is published where it is looked for"
    abort(run, partition, late, events)
    for target in (str(partition), late.transactional_id, f"{partition}@2"):
        row = run("explain", target, "--events-topic", events)
        text = " ".join(row["text"])
        assert f"announced the ABORT marker for {partition}@2 at " in text
        marker = f"the ABORT marker at offset {MARKER} (producer id {late.producer_id}, epoch "
        assert f"The log shows that it was ended so: {marker}" in text
        assert SUSPECTED not in text
        seen = row["marker_by_hand"]
        assert (seen["partition"], seen["marker_offset"], seen["is_commit"]) == (str(partition), MARKER, False)
        assert "@" in seen["by"]


def test_without_an_events_topic_the_marker_of_an_administrator_is_found_in_the_log(
    run: Run, cluster: Cluster, partition: TopicPartition
) -> None:
    late = hang(cluster, partition)
    end_by_hand(cluster, partition, late.producer_id, commit=False)
    for target in (str(partition), late.transactional_id):
        row = run("explain", target, "--events-topic", "nothing-here")
        text = " ".join(row["text"])
        assert (
            f"The log of {partition} has the ABORT marker at offset {MARKER} (producer id {late.producer_id}, " in text
        )
        assert re.search(r"coordinator epoch \d+\), written at ", text), "it rises with each election"
        assert SUSPECTED in text
        assert (row["marker_by_hand"]["marker_offset"], row["marker_by_hand"]["by"]) == (MARKER, None)


def test_an_abort_of_a_client_is_nobody_elses(run: Run, cluster: Cluster, partition: TopicPartition) -> None:
    client = RawProducer(cluster, unique("app")).init()
    client.add(partition)
    client.produce(partition)
    client.end(commit=False)
    await_end(cluster, client, partition)
    for target in (str(partition), client.transactional_id):
        row = run("explain", target)
        assert (SUSPECTED in " ".join(row["text"]), row["marker_by_hand"]) == (False, None)


def test_a_claim_without_its_marker_is_only_a_claim(
    run: Run, kafka: EmbeddedKafka, cluster: Cluster, partition: TopicPartition, events: str
) -> None:
    """The claim of another abort, at a hang that is still open, and at one that a client's next marker has ended."""
    other = hang(cluster, partition)
    abort(run, partition, other, events)
    config = {"bootstrap.servers": kafka.bootstrap_servers}
    told = [one for one in read_events(config, events) if isinstance(one, IncidentEvent) and one.is_by_hand][-1]
    late = hang(cluster, partition)
    assert told.action is not None
    forged = replace(
        told, producer_id=late.producer_id, producer_epoch=late.producer_epoch, txn_start_offset=MARKER + 3
    )
    forged = replace(forged, incident_id=repeat_incident_id(str(forged.first_id), told.action.at_ms))
    with closing(KafkaEventsTopic(config, events)) as topic:
        topic.publish([forged])
    row = run("explain", str(partition), "--events-topic", events)
    assert (row["state"], "but that transaction is still open" in " ".join(row["text"])) == ("hanging", True)
    end_by_hand(cluster, partition, late.producer_id, commit=True)
    row = run("explain", str(partition), "--events-topic", events)
    text = " ".join(row["text"])
    assert f"but another marker has ended it: the COMMIT marker at offset {MARKER + 4}" in text
    assert row["marker_by_hand"]["marker_offset"] == MARKER, "that of the other abort"
