"""The commands that show names, while a partition of the coordinators' log has no leader: no id is silently missing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from support.answered import Answered, answered
from support.raw_producer import RawProducer
from support.servers import Clusters, connect, create_coordinators
from support.topics import FAILOVER_S, await_leader, coordinated_by, create_topic, unique
from support.waiting import eventually
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch_demo.embedded.real_servers import EmbeddedKafka


@pytest.fixture(scope="module")
def kafka2(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """Two brokers, and one replica of everything: what the second leads has no leader without it."""
    directory = tmp_path_factory.mktemp("kafka2")
    started = clusters.start("kafka2", lambda: EmbeddedKafka(directory, brokers=2))
    create_coordinators(started)
    yield started
    clusters.end("kafka2")


@pytest.fixture
def ask(kafka2: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answered]:
    return lambda *command: answered(capsys, *command, "--bootstrap-server", kafka2.bootstrap_servers)


@pytest.mark.long
def test_ids_whose_coordinators_partition_has_no_leader_are_not_silently_missing(
    kafka2: EmbeddedKafka, ask: Callable[..., Answered]
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
            code, answer, _ = ask(*arguments)
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
                lost, "has no leader: its ids cannot be listed until one of its replicas is back: broker 2"
            )
        for command in (("explain", there.transactional_id), ("fence", there.transactional_id, "--dry-run")):
            code, _, error = ask(*command)
            assert (code, "Bring broker 2 back: no other broker may lead it." in error) == (1, True)

        kafka2.start_broker(2)
        eventually(lambda: listed("list")[0] == listed(*describe)[0] == 0, FAILOVER_S, "everything to be listed")
