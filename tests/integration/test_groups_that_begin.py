"""A group of a first deployment: a member has a partition that hangs at its start, and nothing was ever committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer

from support.answered import answered
from support.group_protocols import StreamsMember
from support.kafka_faults import end_by_hand, late_write_after_abort
from support.plans import FollowUpReads
from support.topics import commit_an_offset, create_topic, unique
from support.waiting import eventually
from txnwatch.state.model.incident import AffectedGroup, GroupState
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.groups import ClusterGroups
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def partition(kafka: EmbeddedKafka, cluster: Cluster) -> Iterator[TopicPartition]:
    (created,) = create_topic(cluster, unique("begins"))
    producer = late_write_after_abort(cluster, unique("zombie"), created)
    commit_an_offset(kafka, create_topic(cluster, unique("else"))[0])  # then a coordinator of groups exists
    yield created
    end_by_hand(cluster, created, producer.producer_id, commit=False)


@pytest.fixture(params=["classic", "consumer", "streams"])
def group(
    request: pytest.FixtureRequest, kafka: EmbeddedKafka, cluster: Cluster, partition: TopicPartition
) -> Iterator[str]:
    """A group with one member, which has the partition and commits nothing."""
    name = unique(request.param)
    with ExitStack() as left:
        if request.param == "streams":
            StreamsMember(cluster, name, partition.topic).join_until_assigned()
        else:
            how = {"group.protocol": request.param} if request.param == "consumer" else {}
            servers = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": name, "enable.auto.commit": False}
            consumer = Consumer({**servers, **how, "auto.offset.reset": "earliest"})
            left.callback(consumer.close)
            consumer.subscribe([partition.topic])
            eventually(lambda: consumer.poll(0.1) or consumer.assignment(), 30.0, "the member to join")
        yield name


@pytest.fixture
def ask(kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> Ask:
    def asked(*command: str) -> dict[str, Any]:
        found = answered(capsys, *command, "--bootstrap-server", kafka.bootstrap_servers, "--fail-on-found")
        assert found.code == 3
        return found.row

    return asked


def test_a_group_that_has_committed_nothing_is_hurt_by_a_hang_at_the_start(
    cluster: Cluster, partition: TopicPartition, group: str, ask: Ask
) -> None:
    row = ask("explain", "--group", group)
    assert (row["state"], row["affected_groups"]) == ("hanging", [group])
    assert "Its members are assigned 1 partition of which it has committed nothing." in row["text"][0]
    assert "A member has it, and nothing was committed; read_committed stops at " in " ".join(row["text"])
    row = ask("explain", str(partition))
    assert row["affected_groups"] == [group]
    assert "have committed nothing of it: " in " ".join(row["text"])
    assert ask("find-hanging", "--topic", partition.topic)["affected_groups"] == [group]
    follow_up = FollowUpReads(ClusterAdmin(cluster), ClusterGroups(cluster), lambda _: None)
    reading = follow_up.admin.read_partitions([partition])[partition]
    hidden = reading.high_watermark - reading.last_stable_offset
    expected = AffectedGroup(group_id=group, state=GroupState.AT_RISK, committed_offset=None, hidden_lag=hidden)
    assert follow_up.around({partition: reading}, 0)[partition].consumer_groups == (expected,)
