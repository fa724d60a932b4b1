"""The whole job where the log alone is not enough: topics that are not scanned, and beginnings that are gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition as ConfluentPartition

from support.kafka_faults import abort_by_hand, late_write_after_abort
from support.page_client import get
from support.raw_producer import RawProducer
from support.topics import admin_of, create_topic, delete_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch, events_about, events_of, statuses
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

pytestmark = pytest.mark.long

VERDICT_S = 30.0
EVENTS = "census.events"
SCANNED = "scanned"


@pytest.fixture(scope="module")
def forgotten(kafka: EmbeddedKafka) -> tuple[TopicPartition, RawProducer]:
    """A hang from before the watch, of which retention has left nothing in the log."""
    from support.servers import connect

    cluster = connect(kafka)
    (partition,) = create_topic(cluster, unique(SCANNED))
    producer = late_write_after_abort(cluster, unique("zombie"), partition)
    wanted = ConfluentPartition(partition.topic, partition.partition, 3)
    admin = admin_of(cluster)
    admin.delete_records([wanted])[wanted].result(10.0)
    cluster.close()
    return partition, producer


@pytest.fixture(scope="module")
def watch(
    kafka: EmbeddedKafka, forgotten: tuple[TopicPartition, RawProducer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningWatch]:
    assert forgotten
    # Not what other tests of the session have left hanging.
    topics = ("--topics", f"{SCANNED}.*", "--census-topics", "by-census.*")
    flags = (*topics, "--events-topic", EVENTS, "--http-port", "0")
    with RunningWatch(kafka.bootstrap_servers, tmp_path_factory.mktemp("checkpoint"), *flags) as running:
        yield running.until_ready()


def opened(kafka: EmbeddedKafka, partition: TopicPartition) -> IncidentEvent:
    found = eventually(lambda: events_about(kafka.bootstrap_servers, partition, EVENTS), VERDICT_S, str(partition))
    return found[0]


def lane_of(watch: RunningWatch, partition: TopicPartition, hidden: int) -> dict[str, Any] | None:
    """The lane of the page, once it hides so many records."""
    lane = get(watch.page_url, "/api/v1/snapshot").json["picture"]["lanes"].get(str(partition))
    return lane if lane is not None and lane["hidden"] == hidden else None


def until(kafka: EmbeddedKafka, partition: TopicPartition, *expected: str) -> list[IncidentEvent]:
    def found() -> list[IncidentEvent]:
        events = events_about(kafka.bootstrap_servers, partition, EVENTS)
        return events if statuses(events) == list(expected) else []

    return eventually(found, VERDICT_S, f"{expected} about {partition}")


def test_a_hang_of_which_the_log_has_nothing_left_is_named(
    watch: RunningWatch, kafka: EmbeddedKafka, forgotten: tuple[TopicPartition, RawProducer]
) -> None:
    partition, producer = forgotten
    event = opened(kafka, partition)
    assert (event.verdict, event.reason, event.txn_start_offset) == ("hanging", "already_completed", 2)
    assert event.transactional_id == producer.transactional_id
    assert not [line for line in watch.lines if "not in our copy of the log" in line], "it was open before we looked"


def test_a_hang_on_a_topic_that_is_not_scanned_is_named_and_resolved(
    watch: RunningWatch, kafka: EmbeddedKafka, cluster: Cluster
) -> None:
    (partition,) = create_topic(cluster, unique("by-census"))
    producer = late_write_after_abort(cluster, unique("zombie"), partition)
    event = opened(kafka, partition)
    assert (event.verdict, event.reason, event.txn_start_offset) == ("hanging", "already_completed", 2)
    assert (event.transactional_id, event.hidden_records) == (producer.transactional_id, 1)
    other = RawProducer(cluster, unique("other")).init()
    other.add(partition)
    other.produce(partition, [b"a", b"b"])
    other.end(commit=True)
    lane = eventually(lambda: lane_of(watch, partition, hidden=4), VERDICT_S, "what the hang hides now")
    assert (lane["holder"]["phase"], lane["last_stable"], lane["end"]) == ("hanging", 2, 6)
    found = get(watch.page_url, f"/api/v1/partitions/{partition.topic}/{partition.partition}").json["answer"]
    assert found["watched"] == "by census; the offsets are those of the last one"
    abort_by_hand(cluster, partition, producer.producer_id)
    resolved = until(kafka, partition, "opened", "resolved")[-1]
    assert resolved.resolution is not None
    assert (resolved.resolution.how, resolved.resolution.by) == ("aborted", "administrator"), "its marker is read then"
    assert watch.lines


def test_a_topic_that_is_deleted_takes_its_incident_along(
    watch: RunningWatch, kafka: EmbeddedKafka, cluster: Cluster
) -> None:
    (partition,) = create_topic(cluster, unique("by-census"))
    late_write_after_abort(cluster, unique("zombie"), partition)
    opened(kafka, partition)
    delete_topic(cluster, partition.topic)
    resolved = until(kafka, partition, "opened", "resolved")[-1]
    assert resolved.resolution is not None
    assert resolved.resolution.how == "partition_gone"
    assert watch.lines


def test_data_that_the_next_transaction_absorbs_is_a_stray_write(
    watch: RunningWatch, kafka: EmbeddedKafka, cluster: Cluster
) -> None:
    (partition,) = create_topic(cluster, unique(SCANNED))
    name = unique("stray")
    first = RawProducer(cluster, name).init()
    first.produce(partition, [b"never added"])
    second = RawProducer(cluster, name).init()
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, first.producer_epoch + 1)
    second.add(partition)
    second.produce(partition, [b"a", b"b"])
    second.end(commit=True)
    event, *_, resolved = until(kafka, partition, "opened", "resolved")
    assert (event.verdict, event.txn_start_offset, event.transactional_id) == ("stray_write", 0, name)
    assert (event.evidence.joined_at_offset, event.evidence.joined_by_epoch) == (1, second.producer_epoch)
    assert resolved.resolution is not None
    assert (resolved.resolution.how, resolved.resolution.marker_offset) == ("absorbed", 3)
    assert watch.lines


def test_nothing_else_was_reported(watch: RunningWatch, kafka: EmbeddedKafka) -> None:
    events = events_of(kafka.bootstrap_servers, EVENTS)
    about_data = {event.incident_id for event in events if event.topic is not None}  # ids are the whole cluster's
    assert len(about_data) == 4
    assert watch.warnings == []
