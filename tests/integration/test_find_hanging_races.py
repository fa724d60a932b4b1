"""find-hanging beside applications that begin and end transactions all the time: the hang is found, nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from support.kafka_faults import stray_write
from support.topics import create_topic, unique
from txnwatch.cli.compose import searcher_of
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.applications import exactly_once_copier, transactional_writer
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

LOOKS_S = 4.0


@pytest.fixture
def busy(kafka: EmbeddedKafka, cluster: Cluster) -> Iterator[list[TopicPartition]]:
    """Partitions that three applications write to without a pause, one of them copying to the other topic."""
    written, copied = create_topic(cluster, unique("busy"), 2), create_topic(cluster, unique("copied"))
    servers, topic = kafka.bootstrap_servers, written[0].topic
    applications = [
        *(transactional_writer(servers, unique("writer"), topic, seed=n, abort_every=4, pause_s=0.0) for n in (1, 2)),
        exactly_once_copier(servers, unique("copier"), topic, copied[0].topic, pause_s=0.0),
    ]
    for application in applications:
        application.start()
    yield [*written, *copied, TopicPartition("__consumer_offsets", 0)]
    for application in applications:
        application.stop()


def test_only_what_hangs_is_ever_reported_as_hanging(cluster: Cluster, busy: list[TopicPartition]) -> None:
    hung = stray_write(cluster, unique("stray"), busy[1])
    hang = (busy[1], hung.producer_id)
    covered, proven, deadline = 0, 0, time.monotonic() + LOOKS_S
    while time.monotonic() < deadline:
        found = searcher_of(cluster, DetectionPolicy()).search(busy)
        hanging = {(candidate.partition, candidate.producer_id) for candidate, _ in found.hanging}
        assert hanging <= {hang}
        assert hanging or found.not_checked, "the hang is found, or a missing answer is reported"
        covered, proven = covered + len(found.covered), proven + len(hanging)
    assert proven > 0
    assert covered > 0, "nothing was open while it was looked at: the test proves nothing"
