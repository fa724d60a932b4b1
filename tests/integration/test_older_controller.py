"""A broker of Kafka 4.x under a controller of 3.9: a power failure keeps the leader epoch, so the connection counts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.raw_producer import RawProducer
from support.scenarios import KAFKA_3
from support.servers import Clusters, connect
from support.topics import create_topic, unique
from support.waiting import eventually
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.values import BrokerId, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

NODE, CONTROLLER = BrokerId(1), 1000


class OlderController(EmbeddedKafka):
    """A controller that is no broker: then a broker registers before the controller notices that it was away."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, version=KAFKA_3[0])

    def _server_properties(self, node: int) -> dict[str, str]:
        address = f"127.0.0.1:{self.controller_port}"
        mine = {
            "process.roles": "controller",
            "node.id": str(CONTROLLER),
            "controller.quorum.voters": f"{CONTROLLER}@{address}",
            "listeners": f"CONTROLLER://{address}",
        }
        not_of_a_controller = {"advertised.listeners", "inter.broker.listener.name"}
        usual = super()._server_properties(node).items()
        return {**{name: value for name, value in usual if name not in not_of_a_controller}, **mine}


class NewerBroker(EmbeddedKafka):
    """A broker of the newest version."""

    def __init__(self, directory: Path, older: OlderController) -> None:
        super().__init__(directory)
        self.cluster_id, self.controller_port = older.cluster_id, older.controller_port

    def _server_properties(self, node: int) -> dict[str, str]:
        mine = {
            "process.roles": "broker",
            "controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
        }
        return {**super()._server_properties(node), **mine}


@pytest.fixture(name="controller")
def an_older_controller(clusters: Clusters, tmp_path: Path) -> Iterator[OlderController]:
    older = clusters.start("older", lambda: OlderController(tmp_path / "older"))
    assert isinstance(older, OlderController)
    yield older
    clusters.end("older")


@pytest.mark.long
def test_a_restart_that_keeps_the_leader_epoch_is_seen_by_its_connection(
    controller: OlderController, tmp_path: Path
) -> None:
    with NewerBroker(tmp_path / "newer", controller) as newer:
        newer.start()
        with contextlib.closing(connect(newer)) as cluster:
            (partition,) = create_topic(cluster, unique("before-the-failure"))
            producer = RawProducer(cluster, "an-id").init()
            producer.add(partition)
            producer.produce(partition)
            before = led(cluster, partition)
            for kafka in (newer, controller):
                kafka.broker(1).kill()
            with ThreadPoolExecutor() as power:
                for started in [power.submit(kafka.start) for kafka in (controller, newer)]:
                    started.result()
            after = eventually(lambda: led(cluster, partition), 30.0, "the partition to be led again")
    assert before is not None
    assert after is not None
    assert before[0] == after[0], "the epoch shows the restart here: then nothing depends on the connection"
    assert "" not in (before[1], after[1])
    assert before[1] != after[1]


def led(cluster: Cluster, partition: TopicPartition) -> tuple[int | None, str] | None:
    """The leader epoch of the partition and what identifies the connection to its leader, once it answers."""
    with contextlib.suppress(BrokerError):
        cluster.refresh()
        listed = cluster.list_offsets([partition])[partition]
        if isinstance(listed, ListedOffset):
            return listed.leader_epoch, cluster.connection_to_keep(NODE)
    return None
