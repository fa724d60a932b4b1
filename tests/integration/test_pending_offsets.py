"""Groups whose committed offsets hang in a transaction, on a real broker: who is named, and where."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position

from support.group_protocols import StreamsMember
from support.kafka_faults import end_by_hand, late_write
from support.offset_producer import OffsetProducer
from support.pending_offsets import late_offsets, offsets_partition
from support.plans import FollowUpReads
from support.servers import Clusters, connect
from support.topics import commit_an_offset, create_topic, unique
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.state.model.incident import WaitingGroup
from txnwatch.state.model.values import SpanStart, TopicPartition
from txnwatch.streaming.admin.groups import ClusterGroups
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

Row = dict[str, Any]
Ask = Callable[..., Row]


@pytest.fixture(scope="module")
def four(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker whose `__consumer_offsets` has four partitions, so that it matters where a group is."""
    directory = tmp_path_factory.mktemp("four")
    kafka = clusters.start("four", lambda: EmbeddedKafka(directory, properties={"offsets.topic.num.partitions": "4"}))
    set_verification(kafka.bootstrap_servers, [1], enabled=False)
    yield kafka
    clusters.end("four")


@pytest.fixture
def cluster(four: EmbeddedKafka) -> Iterator[Cluster]:
    with closing(connect(four)) as found:
        yield found


@pytest.fixture
def source(four: EmbeddedKafka, cluster: Cluster) -> TopicPartition:
    """A topic that groups read; the offsets' topic exists."""
    (created,) = create_topic(cluster, unique("orders"))
    commit_an_offset(four, created)
    return created


@pytest.fixture
def ask(four: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> Ask:
    """The one row of `explain`."""

    def asked(*arguments: str, code: int = 0) -> Row:
        server = ("--bootstrap-server", four.bootstrap_servers)
        assert main(["explain", *arguments, *server, "--format", "json"]) == code
        answer = json.loads(capsys.readouterr().out)
        assert answer["complete"], answer["not_checked"]
        (row,) = answer["rows"]
        return dict(row)

    return asked


class Hang:
    """A group whose offsets hang, until `end`."""

    def __init__(self, cluster: Cluster, group: str, *sources: TopicPartition) -> None:
        self.cluster, self.group = cluster, group
        self.client, self.span = late_offsets(cluster, group, *sources)

    def end(self) -> None:
        end_by_hand(self.cluster, self.span.partition, self.client.producer_id, commit=False)


@pytest.fixture
def hang(cluster: Cluster, source: TopicPartition) -> Iterator[Hang]:
    made = Hang(cluster, unique("billing"), source)
    yield made
    made.end()


def test_a_group_whose_offsets_hang_is_named_with_its_partitions_until_the_marker_is_written(
    cluster: Cluster, source: TopicPartition
) -> None:
    (second,) = create_topic(cluster, unique("payments"))
    made = Hang(cluster, unique("billing"), source, second)
    groups = ClusterGroups(cluster)
    found = groups.waiting([made.span])
    names = tuple(map(str, sorted((source, second))))
    assert found.groups == {made.span: (WaitingGroup(group_id=made.group, partitions=names),)}
    assert found.problems == ()
    made.end()
    assert groups.waiting([made.span]).groups == {made.span: ()}


def test_the_event_of_a_hang_has_its_own_groups_only(cluster: Cluster, source: TopicPartition, hang: Hang) -> None:
    reports: list[str] = []
    follow_up = FollowUpReads(ClusterAdmin(cluster), ClusterGroups(cluster), reports.append)
    readings = follow_up.admin.read_partitions([hang.span.partition])
    around = follow_up.around(readings, 0, spans=[hang.span])[hang.span.partition]
    assert around.waiting_groups[hang.span] == (WaitingGroup(group_id=hang.group, partitions=(str(source),)),)
    assert reports == []


def test_the_pending_offsets_of_a_live_transaction_of_another_group_are_not_in_the_hang(
    cluster: Cluster, source: TopicPartition, hang: Hang
) -> None:
    other = next(name for name in map(unique, ["app"] * 100) if offsets_partition(cluster, name) == hang.span.partition)
    live = OffsetProducer(cluster, unique("live"))
    live.init()
    live.add_offsets(other)
    live.commit_offset(other, source, 5)
    found = ClusterGroups(cluster).waiting([hang.span]).groups[hang.span]
    assert [group.group_id for group in found] == [hang.group]
    live.end(commit=True)


def test_a_name_that_no_coordinator_confirms_is_not_believed(cluster: Cluster, hang: Hang) -> None:
    """After the marker the records are still in the log, but the coordinator returns the offset."""
    hang.end()
    again = Hang(cluster, hang.group, TopicPartition(*_source_of(cluster)))
    stale = SpanStart(hang.span.partition, hang.client.producer_id, hang.span.start_offset)
    assert ClusterGroups(cluster).waiting([stale]).groups[stale] == ()
    hang.client, hang.span = again.client, again.span


def _source_of(cluster: Cluster) -> TopicPartition:
    (created,) = create_topic(cluster, unique("elsewhere"))
    return created


def test_the_partition_of_the_offsets_is_explained_by_the_group_that_waits(ask: Ask, hang: Hang) -> None:
    row = ask(str(hang.span.partition), "--fail-on-found", code=3)
    text = " ".join(row["text"])
    assert (row["state"], row["waiting_groups"]) == ("hanging", [hang.group])
    assert "UNSTABLE_OFFSET_COMMIT" in text
    assert "by its broker's clock" in text
    assert f"Consumer group '{hang.group}' waits" in text
    assert "read_committed consumers of" not in text, "nobody reads that topic"


def test_the_input_partition_is_not_all_clear(ask: Ask, source: TopicPartition, hang: Hang) -> None:
    row = ask(str(source), "--fail-on-found", code=3)
    text = " ".join(row["text"])
    assert (row["state"], row["waiting_groups"], row["target"]) == ("hanging", [hang.group], str(source))
    assert f"But consumer group '{hang.group}' waits" in text
    assert str(hang.span.partition) in text
    assert "txnwatch" in row["next"]


def test_the_group_is_explained_by_its_name(ask: Ask, source: TopicPartition, hang: Hang) -> None:
    row = ask(hang.group, "--fail-on-found", code=3)
    assert (row["state"], row["waiting_groups"], row["target"]) == ("hanging", [hang.group], hang.group)
    assert f"{hang.group}: a consumer group" in row["text"][0]
    hang.end()
    after = ask("--group", hang.group, "--fail-on-found")
    assert (after["state"], after["waiting_groups"]) == ("all_clear", [])
    hang.client, hang.span = Hang(hang.cluster, hang.group, source).client, hang.span


def test_a_transaction_that_ends_by_itself_is_no_reason(ask: Ask, cluster: Cluster, source: TopicPartition) -> None:
    live, group = OffsetProducer(cluster, unique("live")), unique("busy")
    live.init()
    live.add_offsets(group)
    live.commit_offset(group, source, 5)
    row = ask(str(source), "--fail-on-found")
    assert (row["state"], row["waiting_groups"]) == ("all_clear", [])
    live.end(commit=True)


def test_the_groups_that_stop_at_a_hang_are_named(
    four: EmbeddedKafka, cluster: Cluster, source: TopicPartition, ask: Ask
) -> None:
    at_it, below, beyond = unique("billing"), unique("audit"), unique("raw")
    late = late_write(cluster, unique("late"), source, commit=False)
    write(four, source, 3)
    commit_an_offset(four, source, at_it, 2)
    commit_an_offset(four, source, beyond, 4)
    member = joined(four, below, source.topic, "classic")
    member.commit(offsets=[Position(*source, 1)], asynchronous=False)
    row = ask(str(source), "--fail-on-found", code=3)
    assert (row["state"], row["affected_groups"], row["waiting_groups"]) == ("hanging", [below, at_it], [])
    text = " ".join(row["text"])
    assert f"these groups stop here; they have reached this offset: '{at_it}' (at 2, lag 4)." in text
    assert f"these groups stop here; they have not reached it yet: '{below}' (at 1, lag 5)." in text
    group = ask(at_it, "--fail-on-found", code=3)
    assert (group["state"], group["target"]) == ("hanging", at_it)
    assert f"{source}: hanging. It has committed offset 2; read_committed stops at 2." in " ".join(group["text"])
    member.close()
    end_by_hand(cluster, source, late.producer_id, commit=False)
    assert ask(at_it, "--fail-on-found")["state"] == "all_clear"


def find(four: EmbeddedKafka, capsys: pytest.CaptureFixture[str], partition: TopicPartition) -> Row:
    """The one row of `find-hanging` about a partition."""
    at = ("--topic", partition.topic, "--partition", str(partition.partition))
    assert main(["find-hanging", *at, "--bootstrap-server", four.bootstrap_servers, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["groups_not_known"] == []
    (row,) = answer["rows"]
    return dict(row)


def test_find_hanging_names_the_groups_that_wait_and_those_that_stop(
    four: EmbeddedKafka, cluster: Cluster, source: TopicPartition, hang: Hang, capsys: pytest.CaptureFixture[str]
) -> None:
    row = find(four, capsys, hang.span.partition)
    assert (row["verdict"], row["waiting_groups"], row["affected_groups"]) == ("hanging", [hang.group], [])
    group = unique("billing")
    late = late_write(cluster, unique("late"), source, commit=False)
    commit_an_offset(four, source, group, 2)
    row = find(four, capsys, source)
    assert (row["verdict"], row["waiting_groups"], row["affected_groups"]) == ("hanging", [], [group])
    end_by_hand(cluster, source, late.producer_id, commit=False)


def test_a_transaction_as_a_whole_is_explained_and_found_with_its_groups(
    four: EmbeddedKafka, cluster: Cluster, source: TopicPartition, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    """A long running one stands for a late one: a broker does not leave a transaction late."""
    old, reader, stream = OffsetProducer(cluster, unique("old")), unique("billing"), unique("stream")
    old.init()
    old.add(source)
    old.produce(source)
    old.add_offsets(stream)
    old.commit_offset(stream, source, 1)
    commit_an_offset(four, source, reader, 0)
    soon = ("--long-running-fraction", "0.0001", "--long-running-min-ms", "1")
    row = ask("--transactional-id", old.transactional_id, *soon, "--fail-on-found", code=3)
    assert (row["state"], reader in row["affected_groups"], row["waiting_groups"]) == ("long_running", True, [stream])
    assert f"they have reached this offset: '{reader}' (at 0, lag 1)" in " ".join(row["text"])
    assert main(["find-hanging", *soon, "--bootstrap-server", four.bootstrap_servers, "--format", "json"]) in {0, 1}
    rows = json.loads(capsys.readouterr().out)["rows"]
    (found,) = [one for one in rows if one["transactional_id"] == old.transactional_id]
    assert (found["verdict"], found["waiting_groups"]) == ("long_running", [stream])
    assert found["affected_groups"] == row["affected_groups"]
    assert str(source) in found["partitions"]
    old.end(commit=True)


def write(four: EmbeddedKafka, partition: TopicPartition, count: int) -> None:
    producer = Producer({"bootstrap.servers": four.bootstrap_servers})
    for number in range(count):
        producer.produce(partition.topic, partition=partition.partition, value=str(number))
    assert producer.flush(10.0) == 0


def joined(four: EmbeddedKafka, group: str, topic: str, protocol: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": four.bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])

    def has_partitions() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    eventually(has_partitions, 30.0, "the member to join")
    return consumer


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_named(
    four: EmbeddedKafka, cluster: Cluster, source: TopicPartition, protocol: str
) -> None:
    group = unique(protocol)
    member = joined(four, group, source.topic, protocol)
    made = Hang(cluster, group, source)
    found = ClusterGroups(cluster).waiting([made.span]).groups[made.span]
    assert found == (WaitingGroup(group_id=group, partitions=(str(source),)),)
    made.end()
    member.close()


def test_a_group_of_kafka_streams_own_protocol_is_named(cluster: Cluster, source: TopicPartition, ask: Ask) -> None:
    group = unique("streams")
    StreamsMember(cluster, group, source.topic).join_until_assigned()
    made = Hang(cluster, group, source)
    found = ClusterGroups(cluster).waiting([made.span]).groups[made.span]
    assert found == (WaitingGroup(group_id=group, partitions=(str(source),)),)
    assert f"{group}: a streams group" in ask(group)["text"][0]
    made.end()
