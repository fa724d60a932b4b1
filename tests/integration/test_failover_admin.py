"""ClusterAdmin while a broker is away: an answer is whole or has a problem, at every moment of a failover.

What must never be: an answer without a problem in which an open transaction is missing. It would look like a hang.
The same goes for the commands that show names: `list` and `describe-producers`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as Position

from support.raw_producer import RawProducer
from support.servers import Clusters, connect, create_coordinators, whole
from support.topics import FAILOVER_S, admin_of, await_leader, create_topic, unique
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.state.model.ports import MarkerSpec, NotSent
from txnwatch.state.model.transaction import DescribedTransaction, NotDescribed, TransactionState
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.wire.transaction_log import coordinator_partition
from txnwatch_demo.embedded.kafka import EmbeddedKafka

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


def coordinated_by(cluster: Cluster, node: int) -> str:
    """A transactional id whose coordinator is this broker."""
    log = cluster.refresh().topics[TRANSACTION_STATE_TOPIC].partitions
    names = (unique("failover") for _ in range(1000))
    return next(name for name in names if log[coordinator_partition(name, len(log))].leader == node)


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


@pytest.fixture(scope="module")
def kafka2(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """Two brokers, and one replica of everything: what the second leads has no leader without it."""
    directory = tmp_path_factory.mktemp("kafka2")
    started = clusters.start("kafka2", lambda: EmbeddedKafka(directory, brokers=2))
    create_coordinators(started)
    yield started
    clusters.end("kafka2")


@pytest.fixture
def ask(kafka2: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    """A command's exit code and envelope."""

    def asked(*arguments: str) -> tuple[int, dict[str, Any]]:
        code = main([*arguments, "--bootstrap-server", kafka2.bootstrap_servers, "--format", "json"])
        return code, json.loads(capsys.readouterr().out)

    return asked


def test_ids_whose_coordinators_partition_has_no_leader_are_not_silently_missing(
    kafka2: EmbeddedKafka, ask: Callable[..., tuple[int, dict[str, Any]]]
) -> None:
    with contextlib.closing(connect(kafka2)) as cluster:
        (partition,) = create_topic(cluster, unique("named"), replicas=[[1]])
        here, there = (RawProducer(cluster, coordinated_by(cluster, node)).init() for node in (1, 2))
        for producer in (here, there):
            producer.add(partition)
            producer.produce(partition)
        names = {here.transactional_id, there.transactional_id}
        log = cluster.refresh().topics[TRANSACTION_STATE_TOPIC].partitions
        lost = {f"{TRANSACTION_STATE_TOPIC}-{number}" for number, info in log.items() if info.leader == 2}
        describe = ("describe-producers", "--topic", partition.topic, "--partition", "0")
        assert lost

        def listed(*arguments: str) -> tuple[int, set[str]]:
            code, answer = ask(*arguments)
            found = {row["transactional_id"] for row in answer["rows"]} & names
            assert answer["complete"] is (code == 0)
            assert code or found == names, "whole, and it is missing"
            return code, found

        assert listed("list") == listed(*describe) == (0, names)
        kafka2.broker(2).kill()
        listed("list")  # whatever the brokers know of it by now
        for number in (int(name.rpartition("-")[2]) for name in lost):
            await_leader(cluster, TopicPartition(TRANSACTION_STATE_TOPIC, number), None)
        for command, of in ((("list",), ""), (describe, "transactional ids of ")):
            assert listed(*command) == (1, {here.transactional_id})
            missing = {one["what"]: one["why"] for one in ask(*command)[1]["not_checked"]}
            assert {name: missing.get(of + name) for name in lost} == dict.fromkeys(
                lost, "has no leader: its ids cannot be listed"
            )

        kafka2.start_broker(2)
        eventually(lambda: listed("list")[0] == listed(*describe)[0] == 0, FAILOVER_S, "everything to be listed")
