"""What the brokers are asked: requests follow the number of brokers, and not the number of partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.sent_requests import sent_requests
from support.topics import commit_an_offset, create_topic, unique
from support.waiting import eventually
from txnwatch.state.evidence.hurt_groups import Hold, groups_of
from txnwatch.state.model.facts import CensusTaken
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.values import SpanStart, TopicPartition
from txnwatch.streaming.admin.groups import ClusterGroups
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.audit.gathering import gather
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.source.census_schedule import Asked, Census, take_census
from txnwatch.streaming.source.lister import Lister
from txnwatch.streaming.source.offsets import SourceOffset
from txnwatch.streaming.source.options import parse_options
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

SIZES = (3, 48)
ENDS_OF_DATA_AND_LOG = 2
BRACKET = ["ListOffsetsRequest", "DescribeProducersRequest", "ListOffsetsRequest", "MetadataRequest"]


OF_GROUPS = ["ListGroupsRequest", "OffsetFetchRequest", "DescribeGroupsRequest"]
OF_NEWER_GROUPS = {"ConsumerGroupDescribeRequest", "StreamsGroupDescribeRequest"}


@pytest.fixture
def sent() -> Iterator[list[str]]:
    """The kinds of requests that are sent, in order."""
    with sent_requests() as found:
        yield found


def topic_of(cluster: Cluster, size: int) -> list[TopicPartition]:
    made = create_topic(cluster, unique("counted"), partitions=size)
    eventually(
        lambda: all(isinstance(end, ListedOffset) for end in cluster.list_offsets(made).values()), 20.0, "their leaders"
    )
    return made


@pytest.mark.parametrize("size", SIZES)
def test_a_barrier_asks_each_broker_for_ends_and_nothing_else(cluster: Cluster, sent: list[str], size: int) -> None:
    topic = topic_of(cluster, size)[0].topic
    options = {"kafka.bootstrap.servers": str(cluster.bootstrap[0]), "subscribe": topic, "healIntervalMs": "600000"}
    lister, offset = Lister(parse_options(options), cluster), SourceOffset.beginning()
    for _ in range(2):
        offset = lister.next_offset(offset) or offset
    sent.clear()
    assert lister.next_offset(offset) is not None
    assert sent == ["ListOffsetsRequest"] * ENDS_OF_DATA_AND_LOG


@pytest.mark.parametrize("size", SIZES)
def test_a_census_asks_each_broker_three_times_and_one_of_them_for_the_ids_of_topics(
    cluster: Cluster, sent: list[str], size: int
) -> None:
    partitions = topic_of(cluster, size)
    topic_id = cluster.refresh().topics[partitions[0].topic].topic_id
    sent.clear()
    *_, found = take_census(cluster, Census(dict.fromkeys(partitions, Asked(topic_id)), 1, is_round=True))
    assert isinstance(found, CensusTaken)
    assert found.taken.keys() == set(partitions)
    assert sent == BRACKET


OF_AN_AUDIT = ["MetadataRequest", "DescribeProducersRequest", "DescribeConfigsRequest", "DescribeAclsRequest"]
OF_THE_LOG = "FetchRequest"  # as many as the log has parts


@pytest.mark.parametrize("size", SIZES)
def test_an_audit_asks_each_broker_once_for_each_thing(cluster: Cluster, sent: list[str], size: int) -> None:
    """Without the log, as a watch repeats it, it sends as many requests as a census."""
    topic_of(cluster, size)
    sent.clear()
    gather(cluster, None)
    assert sent == OF_AN_AUDIT
    assert len(sent) <= len(BRACKET)
    sent.clear()
    gather(cluster, 100_000_000)
    assert [name for name in sent if name != OF_THE_LOG] == OF_AN_AUDIT
    assert list(dict.fromkeys(sent)) == [*OF_AN_AUDIT[:1], OF_THE_LOG, *OF_AN_AUDIT[1:]]


@pytest.mark.parametrize("size", SIZES)
def test_the_groups_of_any_number_of_hangs_cost_the_same(
    kafka: EmbeddedKafka, cluster: Cluster, sent: list[str], size: int
) -> None:
    partitions = topic_of(cluster, size)
    commit_an_offset(kafka, partitions[0])
    readings = ClusterAdmin(cluster).read_partitions(partitions).values()
    holds = [Hold(SpanStart(reading.partition, number, 0), reading) for number, reading in enumerate(readings)]

    def requests_for(some: list[Hold]) -> list[str]:
        sent.clear()
        problems = groups_of(ClusterGroups(cluster), some, 0).problems  # groups of other tests may be rebalancing
        assert not [one for one in problems if "what the members of" not in one]
        return list(sent)

    found, of_one = requests_for(holds), requests_for(holds[:1])
    assert len(found) <= len(of_one) + 1, "groups of other tests that have committed on some partitions are described"
    # Other tests leave groups on the broker: many of them need several requests for their offsets, and a group that
    # changes its protocol or its members meanwhile is described again.
    kinds = [name for name in dict.fromkeys(found) if name not in OF_NEWER_GROUPS]
    assert kinds == OF_GROUPS
