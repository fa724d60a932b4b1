"""The whole job with one partition far behind: the others are not affected, and its leader shows a hang on it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.kafka_faults import LONG_TIMEOUT_MS, late_write_after_abort
from support.raw_producer import RawProducer
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch, events_about, events_of
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.job.checkpoint import last_offset
from txnwatch.streaming.source.offsets import Position
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

pytestmark = pytest.mark.long

LOG = logging.getLogger(__name__)
RECORDS, A_BATCH, LIMIT = 400_000, 1_000, 4_000
ELSEWHERE_S, TWO_ROUNDS_S = 3.0, 10.0
GENEROUS = 6.0
EVENTS = "behind.events"


@pytest.fixture(scope="module")
def behind(kafka: EmbeddedKafka) -> TopicPartition:
    """Pinned by a healthy transaction, with 400,000 records after its beginning."""
    from support.servers import connect

    cluster = connect(kafka)
    (partition,) = create_topic(cluster, unique("far-behind"))
    healthy = RawProducer(cluster, unique("healthy"), LONG_TIMEOUT_MS).init()
    healthy.add(partition)
    healthy.produce(partition)
    plain = RawProducer(cluster, unique("plain")).init()
    for _ in range(RECORDS // A_BATCH):
        plain.produce(partition, [b"x"] * A_BATCH, transactional=False)
    cluster.close()
    return partition


@pytest.fixture(scope="module")
def elsewhere(kafka: EmbeddedKafka) -> TopicPartition:
    from support.servers import connect

    cluster = connect(kafka)
    (partition,) = create_topic(cluster, unique("elsewhere"))
    cluster.close()
    return partition


@pytest.fixture(scope="module")
def watch(
    kafka: EmbeddedKafka, behind: TopicPartition, elsewhere: TopicPartition, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningWatch]:
    flags = ("--topics", f"{behind.topic}|{elsewhere.topic}", "--census-topics", "nothing", "--events-topic", EVENTS)
    limit = ("--max-offsets-per-trigger", str(LIMIT))
    with RunningWatch(kafka.bootstrap_servers, tmp_path_factory.mktemp("checkpoint"), *flags, *limit) as running:
        yield running.until_ready()


def published_after(kafka: EmbeddedKafka, partition: TopicPartition, within_s: float) -> tuple[IncidentEvent, float]:
    begun = time.monotonic()
    found = eventually(
        lambda: events_about(kafka.bootstrap_servers, partition, EVENTS), within_s * GENEROUS, str(partition)
    )
    return found[0], time.monotonic() - begun


def read_to(watch: RunningWatch, partition: TopicPartition) -> Position:
    at = last_offset(Path(watch.state))
    assert at is not None
    return at.read_positions[partition]


def test_hangs_are_reported_elsewhere_and_on_the_partition_that_is_behind(
    watch: RunningWatch, kafka: EmbeddedKafka, cluster: Cluster, behind: TopicPartition, elsewhere: TopicPartition
) -> None:
    late_write_after_abort(cluster, unique("zombie"), elsewhere)
    event, took_s = published_after(kafka, elsewhere, ELSEWHERE_S)
    LOG.info("elsewhere: %.1f s, detection latency %d ms", took_s, event.detection_latency_ms)
    assert (event.verdict, event.txn_start_offset) == ("hanging", 2)

    producer = late_write_after_abort(cluster, unique("zombie"), behind)
    event, took_s = published_after(kafka, behind, TWO_ROUNDS_S)
    at = read_to(watch, behind)
    LOG.info("on the one behind: %.1f s, read to %d of %d", took_s, at.offset, at.listed)
    assert (event.verdict, event.producer_id) == ("hanging", producer.producer_id)
    assert event.txn_start_offset is not None
    assert event.txn_start_offset > at.offset, "the log had not been read so far: only its leader could show it"


def test_nothing_is_reported_about_the_healthy_transaction(watch: RunningWatch, kafka: EmbeddedKafka) -> None:
    assert len({event.incident_id for event in events_of(kafka.bootstrap_servers, EVENTS)}) == 2
    assert not [line for line in watch.lines if "not in our copy of the log" in line]
