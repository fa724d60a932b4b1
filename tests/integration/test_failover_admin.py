"""ClusterAdmin while a broker is away: an answer is whole or has a problem, at every moment of a failover.

What must never be: an answer without a problem in which an open transaction is missing. It would look like a hang.
test_no_coordinator.py asks the same of the commands that show names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as Position

from support.raw_producer import RawProducer
from support.servers import connect, whole
from support.topics import FAILOVER_S, admin_of, await_leader, coordinated_by, create_topic, unique
from support.waiting import eventually
from txnwatch.state.model.ports import MarkerSpec, NotSent
from txnwatch.state.model.transaction import DescribedTransaction, NotDescribed, TransactionState
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

AWAY = 3


@pytest.fixture
def cluster(kafka3: EmbeddedKafka) -> Iterator[Cluster]:
    """Fresh connections that do not wait long; before and after, every broker leads what it should."""
    with contextlib.closing(connect(kafka3, timeout_s=1.0)) as found:
        lead_as_assigned(found)
        yield found
    kafka3.broker(AWAY).resume()
    whole(kafka3)


def lead_as_assigned(cluster: Cluster) -> None:
    """Gives every partition its first replica as leader."""
    log = [
        Position(TRANSACTION_STATE_TOPIC, number)
        for number in cluster.refresh().topics[TRANSACTION_STATE_TOPIC].partitions
    ]
    admin = admin_of(cluster)

    def away_leads() -> bool:
        admin.elect_leaders(ElectionType.PREFERRED, log).result(15.0)
        found = cluster.refresh().topics[TRANSACTION_STATE_TOPIC].partitions
        return any(info.leader == AWAY for info in found.values())

    eventually(away_leads, FAILOVER_S, f"broker {AWAY} to coordinate something")


@dataclass
class Watched:
    """An open transaction, and every answer about it."""

    admin: ClusterAdmin
    producer: RawProducer
    partition: TopicPartition

    def ask_all(self) -> bool:
        """Asks everything once; whether every answer was whole."""
        name, producer_id = self.producer.transactional_id, self.producer.producer_id
        reading = self.admin.read_partitions([self.partition])[self.partition]
        described = self.admin.describe_transactions([name])[name]
        listing = self.admin.list_transactions([producer_id])
        if reading.problem is None:
            assert reading.open_transaction(producer_id) is not None, "read as closed"
        if not isinstance(described, NotDescribed):
            assert isinstance(described, DescribedTransaction), "its coordinator does not know it"
            assert described.state is TransactionState.ONGOING
            assert described.partitions == {self.partition}
        if not listing.problems:
            # A broker that was away may still list it beside its new coordinator, for a moment.
            assert {row.transactional_id for row in listing.transactions} == {name}, "whole, and it is missing"
        return not reading.problem and isinstance(described, DescribedTransaction) and not listing.problems

    def ask_until_whole(self) -> None:
        """Asks again and again."""
        eventually(self.ask_all, FAILOVER_S, "whole answers to everything")


@pytest.mark.parametrize("how", ["killed", "paused"])
def test_an_open_transaction_is_never_missing_from_a_whole_answer_while_its_broker_is_away(
    kafka3: EmbeddedKafka, cluster: Cluster, how: str
) -> None:
    (partition,) = create_topic(cluster, unique("open"), replicas=[[AWAY, 1, 2]])
    await_leader(cluster, partition, AWAY)
    producer = RawProducer(cluster, coordinated_by(cluster, AWAY)).init()
    producer.add(partition)
    producer.produce(partition)
    watched = Watched(ClusterAdmin(cluster), producer, partition)
    watched.ask_until_whole()

    (kafka3.broker(AWAY).kill if how == "killed" else kafka3.broker(AWAY).pause)()
    assert not watched.ask_all(), "what the broker leads and coordinates cannot be known at once"
    watched.ask_until_whole()
    reading = watched.admin.read_partitions([partition])[partition]
    assert reading.leader in {1, 2}
    assert reading.leader_epoch > 0

    if how == "killed":
        kafka3.start_broker(AWAY)
    else:
        kafka3.broker(AWAY).resume()
    eventually(lambda: watched.ask_all() and len(cluster.refresh().brokers) == 3, FAILOVER_S, "the broker to be back")


def test_a_partition_without_a_leader_is_a_problem_of_that_partition_only(
    kafka3: EmbeddedKafka, cluster: Cluster
) -> None:
    lonely, safe = create_topic(cluster, unique("leaderless"), replicas=[[AWAY], [1]])
    kafka3.broker(AWAY).kill()
    await_leader(cluster, lonely, None)
    admin = ClusterAdmin(cluster)
    readings = admin.read_partitions([lonely, safe])
    assert readings[lonely].problem
    assert readings[safe].problem is None
    assert admin.write_marker(MarkerSpec(lonely, 1, 0, 0)) == NotSent("no leader")
    assert admin.write_marker(MarkerSpec(safe, 1, 0, 0)) is None
