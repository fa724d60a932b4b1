"""What the abort asks of a cluster: the right to write markers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclOperation, AclPermissionType, ResourceType  # type: ignore[attr-defined]

from support.acl_recipes import Grants, Right
from support.fake_groups import FakeGroups
from support.fake_lease import FakeLease
from support.incidents import an_event, an_evidence
from support.kafka_faults import stray_write
from support.log_lines import LogLines
from support.planted import as_it_was_found, plant
from support.recording_sink import RecordingTopic
from support.servers import Clusters, connect, create_coordinators
from support.topics import create_topic, unique
from txnwatch.sinks.abort.run_abort import RunningAbort
from txnwatch.sinks.delivery.outbox import TopicOutbox
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.abort.abort_policy import AbortPolicy
from txnwatch.state.telling.commands import Origin
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import security_of
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

USER, PASSWORD = "watcher", "secret"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(scope="module")
def guarded(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker on which one user may do anything but write markers."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{MODULE} user_{USER}="{PASSWORD}";',
    }
    directory = tmp_path_factory.mktemp("rights")
    listeners = {"SASL": "SASL_PLAINTEXT"}
    kafka = clusters.start("rights", lambda: EmbeddedKafka(directory, listeners=listeners, properties=properties))
    unwanted = [
        Right(operation, ResourceType.BROKER) for operation in (AclOperation.ALTER, AclOperation.CLUSTER_ACTION)
    ]
    Grants(kafka.bootstrap_servers, USER).add(*unwanted, permission=AclPermissionType.DENY)
    create_coordinators(kafka)
    yield kafka
    clusters.end("rights")


def test_a_missing_right_is_a_refusal_that_names_what_to_grant(guarded: EmbeddedKafka) -> None:
    set_verification(guarded.bootstrap_servers, [1], enabled=False)
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{MODULE} username="{USER}" password="{PASSWORD}";',
    }
    where = [Endpoint.parse(guarded.listener("SASL"))]
    with (
        contextlib.closing(connect(guarded)) as owner,
        contextlib.closing(Cluster(where, security_of(properties))) as ours,
        as_it_was_found(),
    ):
        (partition,) = create_topic(owner, unique("guarded"))
        producer = stray_write(owner, unique("stray"), partition)
        row = ClusterAdmin(owner).read_partitions([partition])[partition].open_transaction(producer.producer_id)
        assert row is not None
        producer.init()
        event = an_event(
            topic=partition.topic,
            partition=partition.partition,
            topic_id=owner.refresh().topics[partition.topic].topic_id,
            producer_id=row.producer_id,
            producer_epoch=row.producer_epoch,
            transactional_id=producer.transactional_id,
            txn_start_offset=row.txn_start_offset,
            evidence=an_evidence(last_sequence=row.last_sequence),
            expected_outcome="none",
        )
        sink = RecordingTopic()
        ledger = RunningLedger(
            Origin("cluster", "guarded"), ClusterAdmin(ours), FakeGroups(), TopicOutbox(sink, LogLines()), wall_clock_ms
        )
        plant(ledger, event, row)
        policy = AbortPolicy(after_ms=0)
        abort = RunningAbort("on", policy, 60_000, ledger, FakeLease(), "here", wall_clock_ms)

        abort.on_batch()

        action = sink.published[-1].action
        assert action is not None
        assert (action.decision, action.refusal, action.result) == ("refused", "not_authorized", None)
        assert "CLUSTER_AUTHORIZATION_FAILED: grant ALTER on the cluster" in action.detail
        reading = ClusterAdmin(owner).read_partitions([partition])[partition]
        assert reading.open_transaction(row.producer_id) == row, "nothing was written"
