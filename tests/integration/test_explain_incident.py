"""`explain` of an incident's id that nothing open has any more: the events topic says where to look in the logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from support.incidents import an_event, id_of
from support.kafka_faults import end_by_hand, late_write
from support.raw_producer import RawProducer
from support.topics import create_topic, delete_topic, unique
from txnwatch.cli.compose import searcher_of
from txnwatch.cli.main import main
from txnwatch.sinks.delivery.events_topic import KafkaEventsTopic
from txnwatch.state.incidents.event_builder import span_event
from txnwatch.state.model.incident import IncidentEvent, updated
from txnwatch.state.model.values import TimestampMs, TopicPartition
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.state.telling.commands import Origin
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

CLAIM = "By the events topic, which others may write, it is "
FITS = "(the id fits this place)"


class Ended(NamedTuple):
    """A hang that is over, and the last event that a watcher has published about it."""

    at: TopicPartition
    event: IncidentEvent


@pytest.fixture
def ended(cluster: Cluster) -> Ended:
    (at,) = create_topic(cluster, unique("ended"))
    late = late_write(cluster, unique("late"), at, commit=False)
    ((candidate, proof),) = searcher_of(cluster, DetectionPolicy()).search([at]).hanging
    opened = span_event(Origin(cluster.known.cluster_id, "a:1"), candidate, proof, None, wall_clock_ms())
    end_by_hand(cluster, at, late.producer_id, commit=False)
    return Ended(at, updated(opened, wall_clock_ms()))


Publish = Callable[..., str]


@pytest.fixture
def publish(kafka: EmbeddedKafka, cluster: Cluster) -> Publish:
    """Puts events on a topic of their own, and returns its name."""

    def published(*events: IncidentEvent) -> str:
        (created,) = create_topic(cluster, unique("events"), config={"cleanup.policy": "compact"})
        with closing(KafkaEventsTopic({"bootstrap.servers": kafka.bootstrap_servers}, created.topic)) as topic:
            topic.publish(list(events))
        return created.topic

    return published


Tell = Callable[[str, str], tuple[int, str, dict[str, Any]]]


@pytest.fixture
def tell(kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> Tell:
    """The exit code of `explain` of an id, its text (or its error), and its row."""

    def told(incident_id: str, events: str) -> tuple[int, str, dict[str, Any]]:
        where = ("--bootstrap-server", kafka.bootstrap_servers, "--events-topic", events, "--format", "json")
        code = main(["explain", incident_id, *where])
        out, err = capsys.readouterr()
        row = json.loads(out)["rows"][0] if out else {}
        return code, " ".join(row.get("text", ())) + err, row

    return told


def test_the_end_of_an_incident_is_that_of_the_log(ended: Ended, publish: Publish, tell: Tell) -> None:
    code, text, row = tell(ended.event.incident_id, publish(ended.event))
    assert (code, row["state"], row["target"]) == (0, "aborted", ended.event.incident_id)
    where = f"about {ended.at} from offset {ended.event.txn_start_offset} {FITS}"
    assert f"{CLAIM}updated since " in text
    assert where in text
    assert "aborted by the marker at offset " in text


def test_a_record_of_another_writer_is_only_a_place_to_look_at(
    cluster: Cluster, ended: Ended, publish: Publish, tell: Tell
) -> None:
    """It says that a healthy transaction hangs, under the id of the incident."""
    (healthy,) = create_topic(cluster, unique("healthy"))
    producer = RawProducer(cluster, unique("healthy")).init()
    producer.add(healthy)
    producer.produce(healthy)
    elsewhere = replace(
        ended.event,
        topic=healthy.topic,
        topic_id=cluster.refresh().topics[healthy.topic].topic_id,
        producer_id=producer.producer_id,
        txn_start_offset=0,
        suggested_command="txnwatch fence somebody --yes",
    )
    code, text, row = tell(ended.event.incident_id, publish(elsewhere))
    assert (code, row["state"]) == (0, "open")
    assert FITS not in text
    assert "somebody" not in json.dumps(row), "no command is taken from there"
    assert "hang" not in str(row["next"])
    producer.end(commit=True)


def test_a_record_of_another_cluster_hides_none_of_this_one(ended: Ended, publish: Publish, tell: Tell) -> None:
    other = replace(ended.event, cluster_id="another-cluster", sequence=99)
    for events in ((ended.event, other), (other, ended.event)):
        code, text, row = tell(ended.event.incident_id, publish(*events))
        assert (code, row["state"]) == (0, "aborted"), text
    code, text, row = tell(ended.event.incident_id, publish(other))
    assert row["state"] == "not_checked"
    assert "It is of the cluster another-cluster, and not of this one: ask there." in text


def test_where_its_topic_is_gone_it_is_said(cluster: Cluster, ended: Ended, publish: Publish, tell: Tell) -> None:
    events = publish(ended.event)
    delete_topic(cluster, ended.at.topic)
    _, text, row = tell(ended.event.incident_id, events)
    assert row["state"] == "not_checked"
    assert f"That topic {ended.at.topic} was deleted, or is hidden from this user" in text
    create_topic(cluster, ended.at.topic)
    _, text, row = tell(ended.event.incident_id, events)
    assert row["state"] == "not_checked", "a topic of this name is another one"


def test_an_incident_of_a_whole_transaction_leads_to_its_id(cluster: Cluster, publish: Publish, tell: Tell) -> None:
    (at,) = create_topic(cluster, unique("whole"))
    producer = RawProducer(cluster, unique("whole")).init()
    producer.add(at)
    producer.produce(at)
    producer.end(commit=True)
    whole = an_event(
        id_of("whole"),
        cluster_id=cluster.known.cluster_id,
        verdict="late",
        severity="warning",
        reason=None,
        expected_outcome="unknown",
        transactional_id=producer.transactional_id,
        time_ms=TimestampMs(wall_clock_ms()),
        **dict.fromkeys(("topic", "partition", "topic_id", "txn_start_offset"), None),
    )
    code, text, row = tell(whole.incident_id, publish(whole))
    assert (code, row["state"], row["transactional_id"]) == (0, "idle", producer.transactional_id)
    assert f"about transactional id '{producer.transactional_id}'" in text
    gone = replace(whole, transactional_id=unique("never"))
    _, text, row = tell(whole.incident_id, publish(gone))
    assert row["state"] == "not_checked"
    assert "No coordinator has this transactional id now, and the log has no record of it." in text


@pytest.mark.parametrize("has_topic", [False, True])
def test_an_id_that_nothing_names_is_not_found(publish: Publish, tell: Tell, ended: Ended, *, has_topic: bool) -> None:
    events = publish(ended.event) if has_topic else unique("no-events")
    code, text, row = tell(id_of("nobody's"), events)
    assert (code, row) == (1, {})
    why = "has no event of it" if has_topic else "does not exist, or is hidden from this user"
    assert f"Nothing that is open in this cluster now has this id, and the events topic {events} {why}." in text
    assert "What hangs now: `txnwatch find-hanging" in text
