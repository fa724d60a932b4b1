"""The next step of an open transaction that is healthy: how to end it sooner, and what that costs."""

from __future__ import annotations

import shlex
from contextlib import closing
from itertools import takewhile
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from support.answered import answered
from support.raw_producer import RawProducer
from support.topics import create_topic, unique
from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.ownership import ADVICE_MEANS, Advice
from txnwatch.state.model.transaction import DescribedTransaction
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.telling.statements import SOONER_OF_FLINK, SOONER_OF_HEALTHY
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import await_end

RESUME = ADVICE_MEANS[Advice.RESUME_FLINK_JOB]
FORMS = ("{}-0-7", "{}-2893412567-0-7", f"Sink: {{}}-{'0af3' * 8}-7")  # the ids of Flink's sinks
NEW = 5  # the version of EndTxn that raises the producer epoch


def ask(kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    found = answered(capsys, *arguments, "--bootstrap-server", kafka.bootstrap_servers)
    return found.code, found.row


def is_open(cluster: Cluster, name: str) -> bool:
    found = ClusterAdmin(cluster).describe_transactions([name])[name]
    return isinstance(found, DescribedTransaction) and found.is_live


def test_a_healthy_one_is_ended_by_the_command_that_is_printed(
    kafka: EmbeddedKafka, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    (at,) = create_topic(cluster, unique("healthy"))
    producer = RawProducer(cluster, unique("healthy")).init()
    producer.add(at)
    producer.produce(at)
    code, row = ask(kafka, capsys, "explain", producer.transactional_id)
    assert (code, row["state"], row["ends_by_itself"]) == (0, "open", "yes")
    assert [step["text"] for step in row["steps"]] == [SOONER_OF_HEALTHY]
    _, of_partition = ask(kafka, capsys, "explain", str(at))
    _, followed = ask(kafka, capsys, *shlex.split(of_partition["next"])[1:-2])
    assert followed["next"] == row["next"], "the partition leads to the id, and the id to what ends it"
    costs = "its open transaction is aborted, on 1 partition: consumers do not get its data"
    printed = shlex.split(row["next"])[1:-2]
    code, row = ask(kafka, capsys, *printed, "--dry-run")
    assert (code, row["result"], costs in row["detail"]) == (0, "dry_run", True)
    assert is_open(cluster, producer.transactional_id)
    code, row = ask(kafka, capsys, *printed, "--yes")
    assert (code, row["result"], costs in row["detail"]) == (0, "fenced", True)
    assert not is_open(cluster, producer.transactional_id)


def test_one_of_flink_has_what_its_data_costs_and_no_command(
    kafka: EmbeddedKafka, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    (at,) = create_topic(cluster, unique("flink"))
    name = f"{unique('sink')}-0-7"
    producer = RawProducer(cluster, name).init()
    producer.add(at)
    producer.produce(at)
    code, row = ask(kafka, capsys, "explain", name)
    assert (code, row["next"], row["safe"]) == (0, None, RESUME)
    assert [step["text"] for step in row["steps"]] == [SOONER_OF_FLINK]
    assert RESUME.removesuffix(".") in ask(kafka, capsys, "fence", name, "--dry-run")[1]["detail"]
    assert RESUME.removesuffix(".") in ask(kafka, capsys, "fence", name, "--yes")[1]["detail"]


@pytest.mark.parametrize("form", FORMS, ids=("transaction", "route", "operator"))
@pytest.mark.parametrize("is_fenced", [False, True], ids=["as advised", "fenced"])
def test_a_job_that_is_resumed_commits_its_data_unless_it_was_fenced(
    kafka: EmbeddedKafka, cluster: Cluster, capsys: pytest.CaptureFixture[str], form: str, *, is_fenced: bool
) -> None:
    """A resumed job sends EndTxn with the producer id and the epoch of its checkpoint, and no InitProducerId."""
    (at,) = create_topic(cluster, unique("checkpoint"))
    job = RawProducer(cluster, form.format(unique("sink"))).init()
    job.add(at)
    job.produce(at, [b"of the checkpoint"])
    resumed = RawProducer(cluster, job.transactional_id, job.timeout_ms, job.producer_id, job.producer_epoch)
    assert ask(kafka, capsys, "explain", job.transactional_id)[1]["safe"] == RESUME
    assert ask(kafka, capsys, "fence", job.transactional_id, "--yes" if is_fenced else "--dry-run")[0] == 0
    if is_fenced:
        with pytest.raises(TxnwatchError, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
            resumed.end(commit=True)
    else:
        resumed.end(commit=True)
    await_end(cluster, resumed, at)
    assert committed(kafka, at) == ([] if is_fenced else [b"of the checkpoint"])


def committed(kafka: EmbeddedKafka, at: TopicPartition) -> list[bytes | None]:
    """What a read_committed consumer gets of a partition."""
    whole = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": unique("reader"), "enable.partition.eof": True}
    with closing(Consumer({**whole, "isolation.level": "read_committed", "enable.auto.commit": False})) as consumer:
        consumer.assign([Place(at.topic, at.partition, 0)])
        messages = iter(lambda: consumer.poll(10.0), None)
        return [one.value() for one in takewhile(lambda one: one.error() is None, messages)]


def test_a_job_whose_resume_was_fenced_is_not_told_to_resume(
    kafka: EmbeddedKafka, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    (at,) = create_topic(cluster, unique("resumed"))
    name = f"{unique('sink')}-0-7"
    producer = RawProducer(cluster, name).init()
    producer.add(at)
    producer.produce(at)
    producer.end(commit=True, version=NEW)
    await_end(cluster, producer, at)
    producer.add(at)
    producer.produce(at)
    for target in (name, str(at)):
        _, row = ask(kafka, capsys, "explain", target)
        said = " ".join(row["text"])
        assert "Its transaction under epoch 0 was committed at 2" in said
        assert "nobody will commit epoch 1" in said
        assert RESUME not in said
        assert SOONER_OF_FLINK not in [step["text"] for step in row["steps"]]
    detail = ask(kafka, capsys, "fence", name, "--dry-run")[1]["detail"]
    assert "nobody will commit epoch 1" in detail
    assert "when the job is resumed" not in detail
