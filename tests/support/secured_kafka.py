"""A broker with a login, for tests of the whole job: its start, the flags of a way in, and a hang on it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from support.kafka_faults import late_write_after_abort
from support.raw_producer import RawProducer
from support.servers import Clusters, connect, create_coordinators
from support.topics import create_topic, unique
from support.ways import Broker, Way
from txnwatch.state.model.values import TopicPartition
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification


def start_secured(clusters: Clusters, broker: Broker, name: str) -> EmbeddedKafka:
    """Starts the broker in place of the cluster that is running; it does not verify transactional writes."""
    started = clusters.start(name, broker.kafka)
    broker.add_users(started)
    set_verification(started.bootstrap_servers, [1], enabled=False)
    create_coordinators(started)
    return started


def flags_of(secured: EmbeddedKafka, way: Way, directory: Path) -> list[str]:
    """The flags of this way in, which name a file with its properties."""
    path = directory / "client.properties"
    values = {name: value.replace("\\", "\\\\").replace("\n", "\\n") for name, value in way.properties.items()}
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return ["--bootstrap-server", secured.listener(way.listener), "--command-config", str(path)]


def hang(secured: EmbeddedKafka, topic: str | None = None) -> tuple[TopicPartition, RawProducer, str]:
    """A hang on a new topic: where it is, its producer, and its transactional id."""
    transactional_id = unique("way")
    with contextlib.closing(connect(secured)) as cluster:
        (partition,) = create_topic(cluster, topic or unique("ways"))
        return partition, late_write_after_abort(cluster, transactional_id, partition), transactional_id
