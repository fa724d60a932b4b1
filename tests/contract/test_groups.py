"""The contract of ConsumerGroups, on the fake and on a real broker; and there many groups, and a budget."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from contract.groups_contract import GroupsContract
from support.fake_groups import FakeGroups
from support.kafka_faults import end_by_hand
from support.pending_offsets import late_offsets
from support.topics import commit_an_offset, create_topic, unique
from support.waiting import eventually
from txnwatch.state.model.values import CONSUMER_OFFSETS_TOPIC, SpanStart, TopicPartition
from txnwatch.streaming.admin.groups import ClusterGroups
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import security_of
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

MANY = 1_200


class FakeStage:
    def __init__(self) -> None:
        self.groups = FakeGroups()
        self._joined: dict[str, tuple[TopicPartition, int]] = {}

    def topic(self, partitions: int) -> list[TopicPartition]:
        return [TopicPartition("t", number) for number in range(partitions)]

    def commit(self, group_id: str, partition: TopicPartition, offset: int) -> None:
        self.groups.commit(group_id, partition, offset, joined=False)

    def join(self, group_id: str, partition: TopicPartition, offset: int) -> None:
        self.groups.commit(group_id, partition, offset)

    def assign(self, group_id: str, partition: TopicPartition) -> None:
        self.groups.join(group_id, partition)

    def leave(self, group_id: str) -> None:
        self.groups.leave(group_id)

    def hang(self, group_id: str, partition: TopicPartition) -> SpanStart:
        span = SpanStart(TopicPartition(CONSUMER_OFFSETS_TOPIC, 0), 7, 0)
        self.groups.pend(span, group_id, partition)
        return span

    def end(self, span: SpanStart) -> None:
        self.groups.end(span)


class BrokerStage:
    def __init__(self, kafka: EmbeddedKafka, cluster: Cluster) -> None:
        self.groups = ClusterGroups(cluster)
        self._cluster = cluster
        self._kafka = kafka
        self._members: dict[str, Consumer] = {}

    def topic(self, partitions: int) -> list[TopicPartition]:
        return create_topic(self._cluster, unique("groups"), partitions)

    def consumer(self, group_id: str) -> Consumer:
        return Consumer(
            {"bootstrap.servers": self._kafka.bootstrap_servers, "group.id": group_id, "enable.auto.commit": False}
        )

    def commit(self, group_id: str, partition: TopicPartition, offset: int) -> None:
        commit_an_offset(self._kafka, partition, group_id, offset)

    def join(self, group_id: str, partition: TopicPartition, offset: int) -> None:
        self.assign(group_id, partition)
        self._members[group_id].commit(offsets=[Position(*partition, offset)], asynchronous=False)

    def assign(self, group_id: str, partition: TopicPartition) -> None:
        consumer = self._members[group_id] = self.consumer(group_id)
        consumer.subscribe([partition.topic])

        def has_joined() -> bool:
            consumer.poll(0.1)
            return bool(consumer.assignment())

        eventually(has_joined, 20.0, "the member to join")

    def leave(self, group_id: str) -> None:
        self._members.pop(group_id).close()

    def hang(self, group_id: str, partition: TopicPartition) -> SpanStart:
        _, span = late_offsets(self._cluster, group_id, partition)
        return span

    def end(self, span: SpanStart) -> None:
        end_by_hand(self._cluster, span.partition, span.producer_id, commit=False)

    def close(self) -> None:
        for group_id in list(self._members):
            self.leave(group_id)


class TestFakeGroups(GroupsContract):
    @pytest.fixture
    def stage(self) -> FakeStage:
        return FakeStage()


class TestClusterGroups(GroupsContract):
    @pytest.fixture
    def stage(self, kafka: EmbeddedKafka, cluster: Cluster) -> Iterator[BrokerStage]:
        with contextlib.closing(BrokerStage(kafka, cluster)) as stage:
            yield stage


def test_more_groups_than_one_request_has_room_for(kafka: EmbeddedKafka, cluster: Cluster) -> None:
    stage = BrokerStage(kafka, cluster)
    (partition,) = stage.topic(1)
    prefix = unique("many")
    commit_for_many(cluster, partition, prefix)
    found = stage.groups.committed_offsets([partition])
    assert found.problems == ()
    assert sorted(one.group_id for one in found.offsets[partition]) == sorted(f"{prefix}-{n}" for n in range(MANY))


def commit_for_many(cluster: Cluster, partition: TopicPartition, prefix: str) -> None:
    from kafka.protocol.consumer import OffsetCommitRequest

    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    row = topic.OffsetCommitRequestPartition
    connection = cluster.any_connection()
    version = connection.require_version(OffsetCommitRequest, highest=8)
    for number in range(MANY):
        rows = [row(version=version, partition_index=partition.partition, committed_offset=number)]
        request = OffsetCommitRequest(
            version=version,
            group_id=f"{prefix}-{number}",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[topic(version=version, name=partition.topic, partitions=rows)],
        )
        answer = cluster.call(connection, request)
        assert answer.topics[0].partitions[0].error_code == 0


def test_a_read_beyond_the_budget_is_a_problem(kafka: EmbeddedKafka, cluster: Cluster) -> None:
    stage = BrokerStage(kafka, cluster)
    (partition,) = stage.topic(1)
    stage.commit(unique("group"), partition, 5)
    with cluster.budget(0.0):
        found = stage.groups.committed_offsets([partition])
    assert found.offsets[partition] == ()
    assert found.problems


def test_a_broker_that_is_away_is_a_problem() -> None:
    with contextlib.closing(Cluster([Endpoint("127.0.0.1", 1)], security_of({}), timeout_s=0.5)) as nobody:
        found = ClusterGroups(nobody).committed_offsets([TopicPartition("t", 0)])
    assert found.offsets == {TopicPartition("t", 0): ()}
    assert "127.0.0.1:1" in found.problems[0]
