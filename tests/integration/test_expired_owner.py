"""A hang whose transactional id has expired, on a real broker: a new watcher publishes it and then names its owner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from support.facts import BucketRun, seen
from support.fake_groups import FakeGroups
from support.kafka_faults import late_write
from support.log_lines import LogLines
from support.recording_sink import RecordingTopic
from support.servers import Clusters, connect
from support.topics import create_topic, unique
from support.waiting import eventually
from txnwatch.sinks.delivery.outbox import TopicOutbox
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.transaction import UnknownTransactionalId
from txnwatch.state.telling.commands import Origin
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import FormerOwnersReader
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

IDS_EXPIRE_SOON = {
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}


@pytest.fixture(scope="module")
def forgetful(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    directory = tmp_path_factory.mktemp("forgetful")
    kafka = clusters.start("forgetful", lambda: EmbeddedKafka(directory, properties=IDS_EXPIRE_SOON))
    set_verification(kafka.bootstrap_servers, [1], enabled=False)
    yield kafka
    clusters.end("forgetful")


def test_a_new_watcher_names_the_owner_of_a_hang_whose_id_has_expired(forgetful: EmbeddedKafka) -> None:
    with closing(connect(forgetful)) as cluster:
        named_in_an_update(cluster)


def named_in_an_update(cluster: Cluster) -> None:
    admin, name = ClusterAdmin(cluster), unique("expired")
    (partition,) = create_topic(cluster, unique("orders"), 1)
    producer_id = late_write(cluster, name, partition, commit=False).producer_id
    eventually(
        lambda: isinstance(admin.describe_transactions([name])[name], UnknownTransactionalId), 30.0, f"{name} to expire"
    )

    topic, run = RecordingTopic(), BucketRun()
    reading = admin.read_partitions([partition])[partition]
    (row,) = [one for one in reading.producers if one.producer_id == producer_id]
    start, at = row.start_offset, {"partition": partition, "topic_id": reading.topic_id}
    run.batch(seen(start, start + 1, data=start, producer_id=producer_id, **at))  # type: ignore[arg-type]
    (candidate,) = [one for one in run.batch() if isinstance(one, SpanCandidate)]
    outbox = TopicOutbox(topic, LogLines())
    origin = Origin(cluster.known.cluster_id, "kafka:9092")
    owners = FormerOwnersReader(cluster)
    ledger = RunningLedger(origin, admin, FakeGroups(), outbox, wall_clock_ms, former_owners=owners)
    ledger.on_batch([candidate])
    eventually(lambda: ledger.on_batch([]) or len(topic.published) > 1, 10.0, "the name of the owner")
    found = [(event.status, event.transactional_id) for event in topic.published]
    assert found == [("opened", None), ("updated", name)]
