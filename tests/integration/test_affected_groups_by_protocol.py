"""Groups of Kafka Streams' own protocol, and share groups, behind a real hang: read_committed readers are affected."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Producer

from support.group_protocols import StreamsMember, configure_group
from support.kafka_faults import late_write_after_abort
from support.plans import FollowUpReads
from support.topics import commit_an_offset, create_topic, unique
from support.waiting import eventually
from txnwatch.state.model.incident import AffectedGroup
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.groups import ClusterGroups
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

BEFORE, MORE, IN_TIME_S = 7, 5, 60.0
IDLE_MS, TOOL_S = 20_000, 150.0  # a new share group can take 10 s before its first record


@pytest.fixture
def partition(kafka: EmbeddedKafka, cluster: Cluster) -> TopicPartition:
    (created,) = create_topic(cluster, unique("protocols"))
    write(kafka, created, BEFORE)
    late_write_after_abort(cluster, unique("zombie"), created)
    write(kafka, created, BEFORE)
    commit_an_offset(kafka, created)  # until a coordinator exists, no group can be listed
    return created


def write(kafka: EmbeddedKafka, partition: TopicPartition, count: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(count):
        producer.produce(partition.topic, partition=partition.partition, value=str(number))
    assert producer.flush(10.0) == 0


@pytest.fixture
def reports() -> list[str]:
    return []


@pytest.fixture
def follow_up(cluster: Cluster, reports: list[str]) -> FollowUpReads:
    return FollowUpReads(ClusterAdmin(cluster), ClusterGroups(cluster), reports.append)


def look(follow_up: FollowUpReads, partition: TopicPartition, now_ms: int) -> dict[str, AffectedGroup]:
    found = follow_up.around(follow_up.admin.read_partitions([partition]), now_ms)[partition]
    return {group.group_id: group for group in found.consumer_groups or ()}


def test_a_group_of_kafka_streams_own_protocol_is_stopped(
    kafka: EmbeddedKafka, cluster: Cluster, partition: TopicPartition, follow_up: FollowUpReads, reports: list[str]
) -> None:
    group = unique("streams")
    member = StreamsMember(cluster, group, partition.topic)
    member.join()
    stable = follow_up.admin.read_partitions([partition])[partition].last_stable_offset
    member.commit(partition, stable)
    assert look(follow_up, partition, 0)[group].state == "at_risk"
    write(kafka, partition, MORE)
    assert look(follow_up, partition, 10_000)[group].state == "stopped"
    assert reports == []


def consume_as_share_group(kafka: EmbeddedKafka, group: str, topic: str) -> threading.Thread:
    arguments = ("--bootstrap-server", kafka.bootstrap_servers, "--topic", topic, "--group", group)
    main = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
    command = (main, *arguments, "--timeout-ms", str(IDLE_MS))
    thread = threading.Thread(target=kafka.tool, args=command, kwargs={"timeout_s": TOOL_S})
    thread.start()
    return thread


@pytest.mark.long
def test_of_share_groups_those_that_read_committed_are_stopped(
    kafka: EmbeddedKafka, cluster: Cluster, partition: TopicPartition, follow_up: FollowUpReads, reports: list[str]
) -> None:
    frozen, free, usual = unique("share-committed"), unique("share-uncommitted"), unique("share-usual")
    configure_group(cluster, frozen, share_isolation_level="read-committed", share_auto_offset_reset="earliest")
    configure_group(cluster, free, share_isolation_level="read-uncommitted", share_auto_offset_reset="earliest")
    configure_group(cluster, usual, share_auto_offset_reset="earliest")
    threads = [consume_as_share_group(kafka, group, partition.topic) for group in (frozen, free, usual)]
    stable = follow_up.admin.read_partitions([partition])[partition].last_stable_offset

    def arrived() -> AffectedGroup | None:
        found = look(follow_up, partition, 0).get(frozen)
        return found if found is not None and found.committed_offset >= stable else None

    first = eventually(arrived, IN_TIME_S, "the share group to read what it can")
    assert (first.state, first.committed_offset) == ("at_risk", stable)
    groups = ClusterGroups(cluster)
    positions = {name: groups.offsets_of(known) for name in (frozen, free) if (known := groups.find(name).group)}
    assert positions[frozen].offsets == {partition: stable}
    assert positions[free].is_never_stopped
    write(kafka, partition, MORE)
    now = look(follow_up, partition, 10_000)
    assert now[frozen].state == "stopped"
    for thread in threads:
        thread.join()
    assert not look(follow_up, partition, 20_000).keys() & {free, usual}, "nothing keeps them from reading"
    assert reports == []
