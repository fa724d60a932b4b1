"""`txnwatch fence` on a real broker: what it ends, what it refuses, and that an abort is possible after it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.kafka_faults import late_write_after_abort
from support.raw_producer import RawProducer
from support.topics import create_topic, unique
from txnwatch.cli.main import main
from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.transaction import DescribedTransaction, TransactionState
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.kafka import EmbeddedKafka

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
    command = f"txnwatch fence --transactional-id '{producer.transactional_id}' {' '.join(of_it)} "
    assert command in refused["detail"], "it works with every release"
    before = described(cluster, producer.transactional_id)
    assert fence(kafka, producer.transactional_id, *of_it, "--yes") == 0
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
