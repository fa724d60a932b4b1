"""`txnwatch fence` on a real broker: what it ends, what it refuses, and that an abort is possible after it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from support.incidents import an_event
from support.kafka_faults import abort_by_hand, late_write_after_abort
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.topics import create_topic, unique
from txnwatch.cli.main import main
from txnwatch.sinks.delivery.encoding import FORMATS
from txnwatch.sinks.delivery.event_log import read_events
from txnwatch.sinks.delivery.events_topic import KafkaEventsTopic
from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.transaction import DescribedTransaction, TransactionState
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import await_end

OTHERS: dict[str, dict[str, Any]] = {
    "cluster": {"cluster_id": "another"},
    "id": {"transactional_id": "another"},
    "producer id": {"producer_id": 1},
    "epoch": {"producer_epoch": 30_000},
    "ended": {"status": "resolved"},
}
UNVERIFIED = {"transaction.partition.verification.enable": "false"}
OLD = 4  # the last version of EndTxn that leaves the producer epoch as it is


@pytest.fixture
def partition(cluster: Cluster) -> TopicPartition:
    (found,) = create_topic(cluster, unique("fence"))
    return found


def fence(kafka: EmbeddedKafka, name: str, *flags: str) -> int:
    return main(["fence", name, "--bootstrap-server", kafka.bootstrap_servers, "--format", "json", *flags])


def row(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    (found,) = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    return dict(found)


def described(cluster: Cluster, name: str) -> DescribedTransaction:
    found = ClusterAdmin(cluster).describe_transactions([name])[name]
    assert isinstance(found, DescribedTransaction)
    return found


def test_after_a_fence_the_abort_that_was_refused_is_carried_out(
    kafka: EmbeddedKafka, cluster: Cluster, partition: TopicPartition, capsys: pytest.CaptureFixture[str]
) -> None:
    producer = late_write_after_abort(cluster, unique("old client"), partition)
    at = ("--topic", partition.topic, "--partition", "0", "--producer-id", str(producer.producer_id))
    abort = ["abort", *at, "--bootstrap-server", kafka.bootstrap_servers, "--format", "json", "--yes"]
    assert main(abort) == 5
    refused = row(capsys)
    assert refused["result"] == "refused (epoch_may_be_reused)"
    of_it = ("--producer-id", str(producer.producer_id), "--producer-epoch", str(producer.producer_epoch))
    hang = ("--topic", partition.topic, "--partition", "0", "--start-offset", "2")
    command = f"txnwatch fence --transactional-id '{producer.transactional_id}' {' '.join((*of_it, *hang))} "
    assert command in refused["detail"], "it works with every release"
    before = described(cluster, producer.transactional_id)
    assert fence(kafka, producer.transactional_id, *of_it, *hang, "--yes") == 0
    fenced = row(capsys)
    assert (fenced["result"], fenced["producer_epoch"]) == ("fenced", producer.producer_epoch)
    after = described(cluster, producer.transactional_id)
    assert after.producer_epoch is not None
    assert after.producer_epoch > producer.producer_epoch
    assert after.timeout_ms == before.timeout_ms, "the request replaces the timeout of the id"
    assert fence(kafka, producer.transactional_id, *of_it, "--yes") == 0
    assert row(capsys)["result"] == "fenced_before"
    again = described(cluster, producer.transactional_id)
    assert again == after, "an application that has started again is left alone"
    assert main(abort) == 0
    assert row(capsys)["result"] == "verified"


def test_an_open_transaction_is_aborted_and_its_client_is_fenced(
    kafka: EmbeddedKafka, cluster: Cluster, partition: TopicPartition, capsys: pytest.CaptureFixture[str]
) -> None:
    producer = RawProducer(cluster, unique("open")).init()
    producer.add(partition)
    producer.produce(partition)
    assert fence(kafka, producer.transactional_id, "--dry-run") == 0
    assert "its open transaction is aborted, on 1 partition" in row(capsys)["detail"]
    assert described(cluster, producer.transactional_id).state is TransactionState.ONGOING
    assert fence(kafka, producer.transactional_id) == 5, "nobody can be asked here"
    assert row(capsys)["detail"] == "not confirmed: nothing was sent"
    assert described(cluster, producer.transactional_id).state is TransactionState.ONGOING
    assert fence(kafka, producer.transactional_id, "--yes") == 0
    assert not described(cluster, producer.transactional_id).is_live
    reading = ClusterAdmin(cluster).read_partitions([partition])[partition]
    assert reading.open_transaction(producer.producer_id) is None
    with pytest.raises(TxnwatchError, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
        producer.end(commit=True, version=OLD)


def test_an_id_that_nobody_has_is_not_created(
    kafka: EmbeddedKafka, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    RawProducer(cluster, unique("somebody")).init()
    name = unique("nobody")
    assert fence(kafka, name, "--yes") == 1
    assert "there is nothing to fence" in capsys.readouterr().err
    assert not isinstance(ClusterAdmin(cluster).describe_transactions([name])[name], DescribedTransaction)


def test_without_the_id_of_a_hang_the_abort_behind_the_fence_is_not_held_up(
    kafka: EmbeddedKafka, cluster: Cluster, partition: TopicPartition, capsys: pytest.CaptureFixture[str]
) -> None:
    """`fence && abort` is suggested while the id is there, and pasted when it has expired."""
    producer = late_write_after_abort(cluster, unique("expired"), partition)
    hang = ("--producer-id", str(producer.producer_id), "--topic", partition.topic, "--partition", "0")
    name = unique("nobody")
    assert fence(kafka, name, *hang, "--start-offset", "2", "--yes") == 0
    found = row(capsys)
    assert (found["result"], found["transaction_state"]) == ("fenced_before", "unknown")
    assert "Nobody can write under it" in found["detail"]
    assert not isinstance(ClusterAdmin(cluster).describe_transactions([name])[name], DescribedTransaction)


def test_nothing_is_sent_if_the_transaction_that_hung_has_ended(
    kafka: EmbeddedKafka, cluster: Cluster, partition: TopicPartition, capsys: pytest.CaptureFixture[str]
) -> None:
    producer = late_write_after_abort(cluster, unique("ended"), partition)
    before = described(cluster, producer.transactional_id)
    hang = ("--producer-id", str(producer.producer_id), "--topic", partition.topic, "--partition", "0")
    assert fence(kafka, producer.transactional_id, *hang, "--start-offset", "1", "--yes") == 5, "it begins at 2"
    assert fence(kafka, producer.transactional_id, *hang, "--start-offset", "2", "--dry-run") == 0
    abort_by_hand(cluster, partition, producer.producer_id)
    capsys.readouterr()
    assert fence(kafka, producer.transactional_id, *hang, "--start-offset", "2", "--yes") == 5
    assert row(capsys)["detail"] == "the transaction that hung has ended: no fence is needed, and nothing was sent"
    assert described(cluster, producer.transactional_id) == before, "its application is healthy"


def test_a_place_is_given_whole(kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> None:
    assert fence(kafka, unique("half"), "--topic", "orders") == 2
    assert "need --partition, --start-offset, --producer-id" in capsys.readouterr().err


def test_the_open_incidents_about_the_id_get_the_fence_as_their_next_event(
    kafka: EmbeddedKafka, cluster: Cluster, partition: TopicPartition, capsys: pytest.CaptureFixture[str]
) -> None:
    producer = late_write_after_abort(cluster, unique("told"), partition)
    assert cluster.known.cluster_id is not None
    of_id = {
        "cluster_id": cluster.known.cluster_id,
        "transactional_id": producer.transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
    }
    first = an_event("first", action=None, **of_id)
    others = [an_event(f"other {name}", **{**of_id, **change}) for name, change in OTHERS.items()]
    (topic,) = create_topic(cluster, unique("events"))
    config = {"bootstrap.servers": kafka.bootstrap_servers}
    with contextlib.closing(KafkaEventsTopic(config, topic.topic, FORMATS["json"])) as writer:
        writer.publish([*others, first])
    assert fence(kafka, producer.transactional_id, "--events-topic", topic.topic, "--yes") == 0
    has = described(cluster, producer.transactional_id)
    assert row(capsys)["result"] == "fenced"
    written = [one for one in read_events(config, topic.topic) if isinstance(one, IncidentEvent)]
    begun, done = (one for one in written if one.action is not None and one.action.decision == "fence")
    assert begun.incident_id == done.incident_id == first.incident_id
    assert (begun.sequence, done.sequence) == (first.sequence + 1, first.sequence + 2)
    assert begun.action is not None
    assert done.action is not None
    assert (begun.action.decision, begun.action.result, begun.action.initiator) == ("fence", None, "operator")
    assert (done.action.result, done.action.detail) == (
        "verified",
        f"it has producer id {has.producer_id}, epoch {has.producer_epoch} now",
    )


@pytest.mark.long
@pytest.mark.parametrize("version", ["3.3.2", "3.9.2"])
def test_it_works_with_older_releases(
    version: str, clusters: Clusters, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their coordinators leave the producer epoch as it is, so every abort there needs a fence."""
    kafka = clusters.start(version, lambda: EmbeddedKafka(tmp_path, version=version, properties=UNVERIFIED))
    try:
        with contextlib.closing(connect(kafka)) as cluster:
            (at,) = create_topic(cluster, unique("older"))
            producer = RawProducer(cluster, unique("older client")).init()
            producer.add(at)
            producer.produce(at, version=9)
            producer.end(commit=False, version=3)
            await_end(cluster, producer, at)
            producer.produce(at, version=9)
            place = ("--topic", at.topic, "--partition", "0", "--start-offset", "2")
            abort = ["abort", *place, "--bootstrap-server", kafka.bootstrap_servers, "--format", "json", "--yes"]
            assert main(abort) == 5
            assert row(capsys)["result"] == "refused (outcome_unknown)", "before 4.0 no command knows an outcome"
            abort.append("--accept-unknown-outcome")
            assert main(abort) == 5
            assert row(capsys)["result"] == "refused (epoch_may_be_reused)"
            of_it = ("--producer-id", str(producer.producer_id), "--producer-epoch", str(producer.producer_epoch))
            assert fence(kafka, producer.transactional_id, *of_it, *place, "--yes") == 0
            assert row(capsys)["result"] == "fenced"
            assert main(abort) == 0
            assert row(capsys)["result"] == "verified"
    finally:
        clusters.end(version)
